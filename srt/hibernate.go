package srt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var _ sandbox.Hibernator = (*session)(nil)

// saveLimit is short, so that what was saved is also restored before a client gives up.
const saveLimit = 20 * time.Second

// Hibernate implements sandbox.Hibernator.
func (s *session) Hibernate(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	s.mu.Lock()
	closed, live, ran := s.closed, s.live, s.ran
	s.mu.Unlock()
	if closed {
		return sandbox.ErrClosed
	}
	if live != nil {
		select {
		case <-live.client.Broken():
			s.bury(live)
			ran = false
		default:
		}
	}
	if ran {
		if err := s.save(ctx, live); err != nil {
			return err
		}
	}
	return s.endProcesses()
}

// endProcesses ends what runs in the session, which is as if nothing had been
// started yet: the next call raises what it needs.
func (s *session) endProcesses() error {
	s.mu.Lock()
	live, warden := s.live, s.warden
	s.live, s.warden, s.ran, s.lazy = nil, nil, false, true
	s.mu.Unlock()
	var errs []error
	if warden != nil {
		errs = append(errs, warden.close())
	}
	if live != nil {
		errs = append(errs, live.close())
	}
	return errors.Join(errs...)
}

// save writes the variables of a live interpreter to the session's state file,
// all or nothing.
func (s *session) save(ctx context.Context, live *interpreter) (err error) {
	limit, full := s.local.cfg.Limits.Disk, error(nil)
	switch spare, err := s.local.spareDisk(s.dir); {
	case err != nil:
		return err
	case spare <= 0:
		return errDiskFull
	case spare < limit:
		limit, full = spare, errDiskFull
	}
	path := filepath.Join(s.dir, newFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := createState(path)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, w.f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	live.watchdog.running(true)
	snapshot, err := live.client.Save(ctx, w, kernel.SaveLimits{Bytes: limit, Time: saveLimit, Scratch: live.places.Scratch})
	live.watchdog.running(false)
	if errors.Is(err, kernel.ErrDied) {
		s.saveKilled(live, err)
	}
	if err != nil {
		var cannot kernel.CannotError
		if full != nil && errors.As(err, &cannot) {
			err = fmt.Errorf("%w, and %w", err, full)
		}
		return err
	}
	head := stateHead{Session: s.id, Saved: time.Now(), Table: snapshot.Table, Notes: snapshot.Notes}
	if err := w.finish(head, s.local.state != nil); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(s.dir, stateFile)); err != nil {
		return err
	}
	s.setSaved()
	if s.local.state != nil {
		if err := errors.Join(syncDir(s.dir), s.touch()); err != nil { // it is there all the same
			s.log.Warn("the disk may not know of a saved state", "err", err)
		}
	}
	return s.dropState(staleFile)
}

// diskLeft is the part of the server's disk, one in so many, that no saved state takes:
// what else runs there needs it, and a full disk would fail live sessions for idle ones.
const diskLeft = 10

var errDiskFull = errors.New("the server's disk is nearly full: a tenth of it stays free")

// spareDisk is how many bytes a saved state may take where dir is.
func (l *Local) spareDisk(dir string) (int64, error) {
	space := l.cfg.space
	if space == nil {
		space = diskSpace
	}
	total, free, err := space(dir)
	if err != nil {
		return 0, err
	}
	if total <= 0 { // some file systems don't tell
		return math.MaxInt64, nil
	}
	return free - total/diskLeft, nil
}

// diskSpace is how many bytes the file system of dir has, and has left for this user.
func diskSpace(dir string) (total, free int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("room on %s: %w", dir, err)
	}
	return int64(fs.Blocks) * int64(fs.Bsize), int64(fs.Bavail) * int64(fs.Bsize), nil
}

// touch notes on the disk when the session was last used.
func (s *session) touch() error {
	now := time.Now()
	return os.Chtimes(filepath.Join(s.dir, recordFile), now, now)
}

// saveKilled takes note that an interpreter was lost while it saved its variables.
func (s *session) saveKilled(live *interpreter, err error) {
	s.bury(live)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = fmt.Sprintf("the interpreter was lost while the variables of the idle session were saved (%v): this call ran in a fresh one, without the variables of earlier calls", err)
}

// savedAs is the name of the state file to restore from.
func (s *session) savedAs() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved, s.saved != ""
}

func (s *session) setSaved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved, s.tries = stateFile, tries{}
}

// setLost takes note of what the next result must say, and removes what was
// saved: what is said to be lost must not come back.
func (s *session) setLost(why string) {
	s.mu.Lock()
	s.lost, s.ran, s.revived = why, false, nil
	s.mu.Unlock()
	s.forgetSaved()
}

// outdate takes note that code is about to run which no saved state will know
// of. Where sessions don't outlive the server, nobody will want it any more.
func (s *session) outdate() error {
	s.mu.Lock()
	name := s.saved
	s.used = true
	s.mu.Unlock()
	if s.empty {
		if err := s.recordEmpty(false); err != nil {
			return err
		}
	}
	switch {
	case name == "" || name == staleFile && s.local.state != nil:
		return nil
	case s.local.state == nil:
		s.forgetSaved()
		return nil
	}
	if err := os.Rename(filepath.Join(s.dir, stateFile), filepath.Join(s.dir, staleFile)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = staleFile
	return nil
}

func (s *session) forgetSaved() {
	s.mu.Lock()
	s.saved, s.tries = "", tries{}
	s.mu.Unlock()
	if err := errors.Join(s.dropState(stateFile), s.dropState(staleFile)); err != nil {
		s.log.Error("a saved state can't be removed", "err", err)
	}
}

func (s *session) dropState(name string) error {
	if err := os.Remove(filepath.Join(s.dir, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// recordEmpty writes down whether there is nothing to restore. The turn is held.
func (s *session) recordEmpty(empty bool) error {
	r, _, err := s.local.state.record(s.id)
	if err != nil {
		return err
	}
	r.Empty = empty
	if err := writeRecord(s.dir, r); err != nil {
		return err
	}
	s.empty = empty
	return nil
}

// find looks for what an earlier server saved. A session without it, which has
// been used, has lost its variables.
func (s *session) find(r sessionRecord) error {
	if r.Empty {
		s.empty = true
		return nil
	}
	s.used = true
	for _, name := range []string{stateFile, staleFile} {
		switch _, err := os.Lstat(filepath.Join(s.dir, name)); {
		case err == nil:
			s.saved = name
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	s.lost = "the server was ended before it could save the session: this call ran in a fresh interpreter, without the variables of earlier calls; the files in the workspace are there"
	return nil
}

// Shed implements sandbox.Hibernator.
func (s *session) Shed(why string) error {
	s.mu.Lock()
	ran := s.ran
	s.mu.Unlock()
	err := s.endProcesses()
	if ran {
		s.setLost(why + ": this call ran in a fresh interpreter, without the variables of earlier calls")
	}
	return err
}

// Leave implements sandbox.Hibernator.
func (s *session) Leave() error {
	if s.local.state == nil {
		return s.Close()
	}
	return s.end(func() error {
		switch {
		case s.id == "": // it was ready, and became nobody's
			return s.local.removeDir(s.dir)
		case !s.used && !s.empty:
			return s.recordEmpty(true)
		}
		return s.touch()
	})
}
