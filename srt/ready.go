package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// openReady hands out a session that is ready, under the id of spec; nil if there is none
// that is fit, or if something lies where its directory is to be, which is then the
// session's own.
func (l *Local) openReady(spec sandbox.Spec) (*session, error) {
	if l.pool == nil || !validID(spec.ID) {
		return nil, nil
	}
	dir := l.dirOf(spec.ID)
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for {
		s, err := l.adoptReady()
		if s == nil || err != nil {
			return nil, err
		}
		err = s.become(spec, dir)
		s.give()
		if err == nil {
			return s, nil
		}
		ended, late := errors.Is(err, errUnfit), errors.Is(err, kernel.ErrLate)
		switch err = errors.Join(err, s.Close()); {
		case errors.Is(err, sandbox.ErrClosed):
			return nil, err
		case !ended: // the next one would fare no better
			return nil, infra(err)
		}
		l.cfg.Log.Info("an interpreter that was ready is of no use", "err", err)
		if late { // what stopped this one may have stopped all: to start one is sooner done than to ask each
			return nil, nil
		}
	}
}

// adoptReady takes a session into the books, with its turn held.
func (l *Local) adoptReady() (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, sandbox.ErrClosed
	}
	s := l.pool.take()
	if s != nil {
		s.turn <- struct{}{}
		l.sessions[s] = struct{}{}
	}
	return s, nil
}

// become makes a session that was ready the one with an id. The turn is held.
func (s *session) become(spec sandbox.Spec, dir string) error {
	s.mu.Lock()
	live, closed := s.live, s.closed
	s.mu.Unlock()
	if closed {
		return sandbox.ErrClosed
	}
	switch err := s.local.isFit(live); {
	case errors.Is(err, errUnfit):
		return err
	case err != nil:
		return failed(layerWorkspace, err)
	}
	if s.local.state != nil { // before it has its name: a directory without a record is none
		if err := record(s.dir, spec); err != nil {
			return failed(layerWorkspace, err)
		}
	}
	if err := os.Rename(s.dir, dir); err != nil { // mounts follow
		return failed(layerWorkspace, err)
	}
	if s.local.cfg.Workspace == "" && !s.apart {
		s.workspace = filepath.Join(dir, workspaceDir)
		s.disk.dir = s.workspace // nobody watches it yet
	}
	s.id, s.dir, s.log = spec.ID, dir, s.local.cfg.Log.With("session", spec.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return sandbox.ErrClosed
	}
	s.watch(live)
	return nil
}

// errUnfit is in the error of an interpreter that is of no use, though another may be.
var errUnfit = errors.New("it has ended")

// isFit refuses an interpreter that has died, or that sees what New did not.
func (l *Local) isFit(i *interpreter) error {
	if err := l.samePlaces(); err != nil {
		return err
	}
	if !i.client.IsWarm() {
		return errUnfit
	}
	if err := i.client.Ping(); err != nil { // its end may just not have been heard of
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	return nil
}

// spare is an interpreter for a session that needs another; nil if there is none. A
// session with a workspace of its own needs one that was started with it.
func (l *Local) spare() *interpreter {
	if l.cfg.Workspace == "" {
		return nil
	}
	for s := l.pool.take(); s != nil; s = l.pool.take() {
		i, err := s.live, l.isFit(s.live)
		if err == nil {
			s.live = nil // no longer its own
		}
		if closed := s.Close(); err != nil || closed != nil {
			l.cfg.Log.Info("an interpreter that was ready is of no use", "err", errors.Join(err, closed))
		}
		if err == nil {
			return i
		}
		if !errors.Is(err, errUnfit) || errors.Is(err, kernel.ErrLate) {
			return nil // the next one would fare no better
		}
	}
	return nil
}
