package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// errCrowded is what a call hears whose place another principal needed, before
// anything of it had begun.
var errCrowded = fmt.Errorf("%w: you have the most sessions, all are in use, and another client needed one; try again in a few seconds, or close some", ErrFull)

// beginCall marks that a call no longer waits: from then on nobody takes its
// session's place. It fails where that was done already. The func ends the mark.
func (s *Sessions) beginCall(ctx context.Context, o *owned) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	o.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.busy--
	}, nil
}

// pushOut refuses calls that only wait, in the latest session of whoever has the
// most, so that another principal can have its place: who sends without end shuts
// out itself alone. It reports false where that one has no more than one session
// beyond what who has, or all of its calls have begun. mu is held.
func (s *Sessions) pushOut(who string, held map[string]int) bool {
	var last *owned
	for _, o := range s.byID {
		if o.owner == who || o.users == 0 || o.busy > 0 || o.crowded || !o.hasPlace() || held[o.owner] < held[who]+2 {
			continue
		}
		if last == nil || held[o.owner] > held[last.owner] || held[o.owner] == held[last.owner] && o.created.After(last.created) {
			last = o
		}
	}
	switch {
	case last == nil:
		return false
	case last.live() == nil && !last.kept: // nothing is in it
		s.drop(last, "")
		if last.owed != "" {
			s.ended[last.connection] = last.owed // nobody was told yet
		}
		last.finish(errCrowded)
	default: // it is hibernated for the one too many, as soon as its calls have left
		last.crowded, s.over = true, true
		last.interrupt(errCrowded)
	}
	return true
}

// crowdedOut reports whether a call failed since its place was needed.
func crowdedOut(err error) bool { return errors.Is(err, errCrowded) }
