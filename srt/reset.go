package srt

import (
	"context"
	"errors"
)

// Reset implements sandbox.Session. It raises a fresh wall: a guest may have
// left more behind than variables.
func (s *session) Reset(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	if err := s.restart(ctx); err != nil {
		s.give()
		return err
	}
	warming, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.warming = cancel
	idle := s.waiting == 0
	s.mu.Unlock()
	go func() { // the turn is its own, so that Close waits for it
		defer s.give()
		defer cancel()
		if idle {
			s.warmUp(warming)
		}
		s.mu.Lock()
		s.warming = nil
		s.mu.Unlock()
	}()
	return nil
}

func (s *session) restart(ctx context.Context) error {
	s.mu.Lock()
	live, warden, lazy := s.live, s.warden, s.lazy
	s.live, s.warden, s.lost, s.ran, s.used, s.revived = nil, nil, "", false, false, nil
	s.mu.Unlock()
	s.forgetSaved()
	var errs []error
	if warden != nil {
		errs = append(errs, warden.close()) // the next command raises another
	}
	if live != nil {
		errs = append(errs, live.close())
	}
	if err := errors.Join(errs...); err != nil {
		return infra(err)
	}
	if lazy {
		return nil // there was no interpreter, and nobody has asked for one
	}
	return s.start(ctx, restoreTime{}) // there is nothing to restore
}

// warmUp imports, while nobody waits, what new sessions find imported. The end of
// ctx ends it at once, and the interpreter with it: half an import is of no use,
// and another interpreter is there sooner than the rest of one.
func (s *session) warmUp(ctx context.Context) {
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	if live == nil || len(s.local.cfg.Preload) == 0 || live.client.IsWarm() {
		return
	}
	stop := context.AfterFunc(ctx, live.client.Close)
	err := live.client.Warm(context.WithoutCancel(ctx), s.local.cfg.Preload, startTimeout)
	if stop() {
		if err != nil && live.client.Err() == nil {
			s.log.Warn("a fresh interpreter did not import what it should", "err", err)
		}
		return
	}
	s.mu.Lock()
	if s.live == live {
		s.live = nil
	}
	s.mu.Unlock()
	if err := live.close(); err != nil {
		s.log.Warn("an interpreter that nobody waits for is left", "err", err)
	}
}
