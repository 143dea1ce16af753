package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Hibernation of sessions: which, and when. An entry of the books is awake
// (its session may have processes), napping (it is being hibernated, and stops
// if a call comes) or asleep (it costs disk alone).

// nap is a hibernation under way.
type nap struct {
	wake context.CancelFunc // a call has come
	room string             // why another session is to have its place: what can't be saved is given up, unless a call comes; "" = none is
	done chan struct{}
}

// napping bounds how many sessions are hibernated at once: each takes a processor.
func napping() int { return 2 * runtime.GOMAXPROCS(0) }

// canNap reports whether a session could be hibernated at all. mu is held.
func (s *Sessions) canNap(o *owned) bool {
	session := o.live()
	if session == nil {
		return o.kept
	}
	_, ok := session.(Hibernator)
	return ok
}

// startNap hibernates a session that nobody uses, in the background. room says
// why, if another is to have its place. mu is held.
func (s *Sessions) startNap(o *owned, room string) *nap {
	ctx, cancel := context.WithCancel(context.Background())
	n := &nap{wake: cancel, room: room, done: make(chan struct{})}
	o.nap = n
	s.wg.Go(func() {
		defer close(n.done)
		defer cancel()
		select {
		case s.naps <- struct{}{}:
			defer func() { <-s.naps }()
			s.takeNap(ctx, o, n)
		case <-ctx.Done():
			s.wakeUp(o, ctx.Err())
		}
	})
	return n
}

func (s *Sessions) takeNap(ctx context.Context, o *owned, n *nap) {
	start := time.Now()
	if err := o.lock(ctx); err != nil {
		s.wakeUp(o, err)
		return
	}
	defer o.unlock()
	err := o.hibernate(ctx)
	used := ctx.Err() != nil // also where it was too late for the nap to be given up
	if err != nil && !used && n.room != "" {
		why := fmt.Sprintf("the session was the longest idle one when %s, and its variables could not be saved (%v)", n.room, err)
		s.cfg.Log.Warn("session not saved", "session", o.id, "err", err)
		err = o.shed(why)
	}
	s.mu.Lock()
	o.nap = nil
	if o.asleep = err == nil; !o.asleep && !used {
		o.stubborn = true
	}
	s.tellFreed()
	s.thinOut()
	s.mu.Unlock()
	switch {
	case err == nil:
		s.hibernations.Add(1)
		s.log(nil, "session hibernated", "session", o.id, "for_room", n.room != "", "took", time.Since(start))
	case !used && !errors.Is(err, ErrClosed): // it was ended meanwhile
		s.cfg.Log.Warn("session stays awake", "session", o.id, "err", err)
	}
}

// wakeUp ends a nap that came to nothing.
func (s *Sessions) wakeUp(o *owned, err error) {
	s.mu.Lock()
	o.nap = nil
	s.tellFreed()
	s.thinOut()
	s.mu.Unlock()
	s.cfg.Log.Debug("session not hibernated", "session", o.id, "reason", err)
}

// awake waits until a session has a place among those that may have processes.
// The turn is held, and no place among the running calls: these must be able to
// end, or none would ever become idle.
func (s *Sessions) awake(ctx context.Context, o *owned) error {
	for {
		wait, err := s.place(o)
		if wait == nil || err != nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx) // leave takes it out of those who wait
		}
	}
}

// place gives o its place, or something to wait for before it is asked again.
func (s *Sessions) place(o *owned) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.stubborn = false // what it holds may be about to change
	if wait := o.room; wait != nil {
		o.room = nil
		return wait, nil
	}
	if !o.asleep {
		return nil, nil
	}
	switch err := s.makeRoom(o); {
	case err == nil:
		o.asleep = false
		wait := o.room
		o.room = nil
		return wait, nil
	case s.sleepless[o.owner] >= s.cfg.MaxQueue:
		return nil, err
	}
	s.sleepless[o.owner]++
	return s.freed, nil
}

// tellFreed lets those who wait for a place look again. mu is held.
func (s *Sessions) tellFreed() {
	if len(s.sleepless) > 0 {
		close(s.freed)
		s.freed, s.sleepless = make(chan struct{}), map[string]int{}
	}
}

// thinOut ends the longest unused of those that sleep, where there are too many,
// of whoever has the most, and has another go to sleep for one that was to and
// did not. mu is held.
func (s *Sessions) thinOut() {
	if s.closed {
		return
	}
	s.makeUp()
	asleep, n := map[string]int{}, 0
	for _, o := range s.byID {
		if o.asleep {
			asleep[o.owner]++
			n++
		}
	}
	for ; n > s.cfg.MaxHibernated; n-- {
		o := s.giver("", asleep, func(o *owned) bool { return o.asleep })
		if o == nil {
			return
		}
		asleep[o.owner]--
		s.drop(o, fmt.Sprintf("the session's variables are gone: it was the longest unused of more than %d hibernated ones", s.cfg.MaxHibernated))
		s.wg.Go(func() { s.closeEnded(o, "hibernated sessions") })
	}
}

// makeUp has a session go to sleep where more are awake than may be, since
// another was to and did not. mu is held.
func (s *Sessions) makeUp() {
	s.over = false
	c := s.crowd(nil)
	can := func(o *owned) bool { return o.hasPlace() && s.canNap(o) }
	for who, n := range c.of {
		quota := s.cfg.Quotas[who].Sessions
		if quota == 0 || n <= quota {
			continue
		}
		if o := s.longestIdle(func(o *owned) bool { return o.owner == who && can(o) }); o != nil {
			s.startNap(o, forQuota) // at whose end this is looked at again
			return
		}
		s.over = true
	}
	if c.taken > s.cfg.MaxSessions {
		if o := s.giver("", c.of, can); o != nil {
			s.startNap(o, forServer)
			return
		}
		s.over = true
	}
}

// adopt enters the sessions that an earlier server left.
func (s *Sessions) adopt() {
	keeper, ok := s.cfg.Sandbox.(Keeper)
	if !ok {
		return
	}
	for _, k := range keeper.Kept() {
		o := newOwned(k.ID, k.Principal)
		o.created, o.used, o.asleep, o.kept = k.Created, k.Used, true, true
		o.ran.Store(true)
		s.byID[o.id] = o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thinOut()
}
