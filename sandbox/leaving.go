package sandbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// saveShares is the part of the time for saving all sessions, one in so many, after which
// one that is still being saved makes room for another, and goes on beside it: it may have
// much to save, or wait for ever.
const saveShares = 16

// leaveAll saves every session for the next server, as far as time allows. Principals
// take turns, so that the sessions of one don't take the time of another's.
func (s *Sessions) leaveAll(all []*owned) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), s.cfg.SaveTime, errors.New("there was no time left to save it"))
	defer cancel()
	for _, o := range all { // all at once: then every call has ended when its session's turn comes
		o.finish(ErrClosed)
	}
	places := make(chan struct{}, napping())
	errs := make([]error, len(all))
	var leaving sync.WaitGroup
	for i, o := range s.inTurns(all) {
		select {
		case places <- struct{}{}:
		case <-ctx.Done(): // the rest only has to end
		}
		leaving.Go(func() {
			free := sync.OnceFunc(func() {
				select {
				case <-places:
				default: // it had none
				}
			})
			late := time.AfterFunc(s.cfg.SaveTime/saveShares, free)
			defer free()
			defer late.Stop()
			errs[i] = s.leaveOne(ctx, o)
		})
	}
	leaving.Wait()
	return errors.Join(errs...)
}

// inTurns sorts sessions: one of each principal, the latest used first, then another of each.
func (s *Sessions) inTurns(all []*owned) []*owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[string][]*owned{}
	for _, o := range all {
		of[o.owner] = append(of[o.owner], o)
	}
	owners := slices.Sorted(maps.Keys(of))
	for _, owner := range owners {
		slices.SortFunc(of[owner], func(a, b *owned) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.id, b.id)) })
	}
	sorted := make([]*owned, 0, len(all))
	for i := 0; len(sorted) < len(all); i++ {
		for _, owner := range owners {
			if i < len(of[owner]) {
				sorted = append(sorted, of[owner][i])
			}
		}
	}
	return sorted
}

func (s *Sessions) leaveOne(ctx context.Context, o *owned) error {
	session := o.live()
	h, ok := session.(Hibernator)
	if !ok {
		if session == nil && o.kept {
			return nil // as the earlier server left it
		}
		return o.close()
	}
	saved := make(chan error, 1)
	var saving sync.WaitGroup
	saving.Go(func() {
		select {
		case o.turn <- struct{}{}:
			defer o.unlock()
			saved <- h.Hibernate(ctx)
		case <-ctx.Done():
			saved <- context.Cause(ctx)
		}
	})
	var failed error
	select {
	case failed = <-saved:
	case <-ctx.Done(): // nobody waits until it obeys: with the end of the session it has to
		failed = context.Cause(ctx)
	}
	if failed != nil {
		s.cfg.Log.Warn("session not saved", "session", o.id, "err", failed)
	}
	err := h.Leave()
	saving.Wait()
	s.log(err, "session left to the next server", "session", o.id)
	return err
}
