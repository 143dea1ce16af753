package workload

import (
	"context"
	"sync"
)

// limiter bounds how many workloads one account has from here at once, so that
// calls wait for each other where the platform would refuse them. What others
// have with the same account it does not know: see create. It is safe for
// concurrent use.
type limiter struct {
	mu      sync.Mutex
	most    int // 0 = no limit
	held    int
	waiting []chan struct{} // first come, first served
}

// acquire waits for a place, which release gives back.
func (l *limiter) acquire(ctx context.Context) error {
	l.mu.Lock()
	if ctx.Err() == nil && (l.most == 0 || l.held < l.most && len(l.waiting) == 0) {
		l.held++
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came at the same time: pass it on
		l.held--
		l.admit()
	default:
		for i, w := range l.waiting {
			if w == turn {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				break
			}
		}
	}
	return context.Cause(ctx)
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held--
	l.admit()
}

// set tells how many there may be; 0 = no limit.
func (l *limiter) set(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	l.admit()
}

func (l *limiter) admit() {
	for len(l.waiting) > 0 && (l.most == 0 || l.held < l.most) {
		l.held++
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
