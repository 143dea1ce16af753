package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// queue hands out a bounded number of places, in turn among those who ask: a
// principal with a hundred calls waiting delays another's first one by one
// place at most. It is safe for concurrent use.
type queue struct {
	limit func(who string) int // of places that one may have; 0 = all

	places int // all there are

	mu      sync.Mutex
	free    int
	room    int                  // how many more may wait
	ring    []string             // principals with waiters, next first
	waiters map[string][]*waiter // each principal's own, oldest first
	running map[string]int       // places that each has
}

// waiter is a call that waits for a place.
type waiter struct {
	ready chan struct{} // closed when it has one, or is refused
	full  bool          // refused, to make room for another's
}

func newQueue(places, room int, limit func(string) int) *queue {
	return &queue{limit: limit, places: places, free: places, room: room, waiters: map[string][]*waiter{}, running: map[string]int{}}
}

// count tells how many have a place, and how many wait for one.
func (q *queue) count() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiters {
		waiting += len(w)
	}
	return q.places - q.free, waiting
}

// acquire takes a place, waiting for it until ctx ends. With too many waiting
// already it fails at once with ErrFull, or whoever has the most waiting does
// with its latest: a principal that fills the queue shuts out itself alone.
func (q *queue) acquire(ctx context.Context, who string) error {
	q.mu.Lock()
	if q.free > 0 && !q.atLimit(who) {
		q.free--
		q.running[who]++
		q.mu.Unlock()
		return nil
	}
	if err := ctx.Err(); err != nil { // it must not push out one that waits
		q.mu.Unlock()
		return err
	}
	if q.room == 0 && !q.shed(who) {
		q.mu.Unlock()
		return errQueueFull
	}
	q.room--
	w := &waiter{ready: make(chan struct{})}
	if len(q.waiters[who]) == 0 {
		q.ring = append(q.ring, who)
	}
	q.waiters[who] = append(q.waiters[who], w)
	q.mu.Unlock()

	select {
	case <-w.ready:
		if w.full {
			return errQueueFull
		}
		return nil
	case <-ctx.Done():
		if !q.leave(who, w) && !w.full {
			q.release(who) // the place came at the same moment: pass it on
		}
		return ctx.Err()
	}
}

var errQueueFull = fmt.Errorf("%w: too many calls are waiting already; try again in a few seconds", ErrFull)

// atLimit reports whether who has all places that one may have. mu is held.
func (q *queue) atLimit(who string) bool {
	limit := q.limit(who)
	return limit > 0 && q.running[who] >= limit
}

// shed refuses the latest waiter of whoever has the most, if that is at least
// two more than who has. mu is held.
func (q *queue) shed(who string) bool {
	most := who
	for other, w := range q.waiters {
		if len(w) > len(q.waiters[most]) {
			most = other
		}
	}
	n := len(q.waiters[most])
	if n <= len(q.waiters[who])+1 {
		return false
	}
	last := q.waiters[most][n-1]
	q.remove(most, n-1)
	last.full = true
	close(last.ready)
	return true
}

// leave takes a waiter out, and reports false if it was answered already.
func (q *queue) leave(who string, w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters[who], w)
	if i < 0 {
		return false
	}
	q.remove(who, i)
	return true
}

// remove takes the i-th waiter of who out. mu is held.
func (q *queue) remove(who string, i int) {
	q.room++
	q.waiters[who] = slices.Delete(q.waiters[who], i, i+1)
	if len(q.waiters[who]) == 0 {
		delete(q.waiters, who)
		q.ring = slices.DeleteFunc(q.ring, func(w string) bool { return w == who })
	}
}

// release gives who's place back, to the principal whose turn it is.
func (q *queue) release(who string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running[who]--; q.running[who] == 0 {
		delete(q.running, who)
	}
	q.free++
	for i, next := range q.ring {
		if q.atLimit(next) {
			continue
		}
		w := q.waiters[next][0]
		q.ring = slices.Delete(q.ring, i, i+1)
		if len(q.waiters[next]) > 1 {
			q.ring = append(q.ring, next)
		}
		q.waiters[next] = q.waiters[next][1:]
		if len(q.waiters[next]) == 0 {
			delete(q.waiters, next)
		}
		q.room++
		q.free--
		q.running[next]++
		close(w.ready)
		return
	}
}
