package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// sweepIdle hibernates sessions that have been idle for too long, or ends them
// where that can't be, and those that are too old. A session with a call under way or waiting is never swept.
func (s *Sessions) sweepIdle() {
	tick := time.NewTicker(max(min(s.cfg.Idle, s.cfg.MaxAge)/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case now := <-tick.C:
			s.sweep(now)
		}
	}
}

func (s *Sessions) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, o := range s.byID {
		switch {
		case o.users > 0, o.nap != nil:
		case s.tooOld(o, now):
			s.endOld(o)
		case o.asleep, o.stubborn, now.Sub(o.used) < s.cfg.Idle:
		case s.canNap(o):
			s.startNap(o, "")
		default:
			s.drop(o, fmt.Sprintf("the session's variables are gone: it was idle for %v", s.cfg.Idle))
			s.wg.Go(func() { s.closeEnded(o, "idle") })
		}
	}
}

func (s *Sessions) tooOld(o *owned, now time.Time) bool { return now.Sub(o.created) >= s.cfg.MaxAge }

// endOld ends a session that nobody uses. mu is held.
func (s *Sessions) endOld(o *owned) {
	s.drop(o, fmt.Sprintf("the session's variables are gone: it reached its greatest age of %v", s.cfg.MaxAge))
	s.wg.Go(func() { s.closeEnded(o, "age") })
}

func (s *Sessions) closeEnded(o *owned, reason string) { s.logEnd(o, reason, s.remove(o)) }

// remove ends a session for good.
func (s *Sessions) remove(o *owned) error {
	err := o.close()
	if keeper, ok := s.cfg.Sandbox.(Keeper); ok && s.cfg.Keep && o.live() == nil {
		err = errors.Join(err, keeper.Discard(o.id)) // nobody has opened what an earlier server left
	}
	return err
}
