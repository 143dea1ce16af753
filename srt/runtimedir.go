package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runtimeDir is the server's own directory for as long as it lives: workspaces
// of sessions, and a lock that tells the next server whether this one is alive.
// A kill leaves it behind; the next start takes it away.
type runtimeDir struct {
	path string
	lock *os.File
}

const (
	runtimePrefix = "mcp-sandbox-"
	unfinished    = ".new-" + runtimePrefix // until it is locked

	// finishing is how long a directory may be unfinished: far longer than it takes.
	finishing = time.Minute
)

// tempDir is where servers have their directories: an absolute path without links.
func tempDir() (string, error) {
	dir, err := resolved(os.TempDir())
	if err != nil {
		return "", noTempDir(dir, err)
	}
	return dir, nil
}

func noTempDir(dir string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) { // its path is a name that nobody has heard of
		err = p.Err
	}
	return fmt.Errorf("srt: no directory for sessions can be made in %s: %w: set TMPDIR to a directory that this user can write to", dir, err)
}

func newRuntimeDir() (_ *runtimeDir, err error) {
	base, err := tempDir()
	if err != nil {
		return nil, err
	}
	// It is locked before it has the name that a sweep looks for.
	path, err := os.MkdirTemp(base, fmt.Sprintf("%s%d-", unfinished, os.Getpid()))
	if err != nil {
		return nil, noTempDir(base, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}()
	lock, err := lockFile(filepath.Join(path, "lock"), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	final := filepath.Join(base, strings.TrimPrefix(filepath.Base(path), ".new-"))
	if err := os.Rename(path, final); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &runtimeDir{path: final, lock: lock}, nil
}

// lockFile fails with EWOULDBLOCK while its owner lives. The kernel drops the
// lock with the owner, however that ended.
func lockFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

func (r *runtimeDir) close() error {
	return errors.Join(removeAll(r.path), r.lock.Close())
}

// sweepRuntimeDirs removes what servers of this user left behind when they were
// killed. It returns how many.
func sweepRuntimeDirs() (int, error) {
	base, err := tempDir()
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0, err
	}
	var errs []error
	swept := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), runtimePrefix) && !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		gone, err := sweep(filepath.Join(base, e.Name()))
		errs = append(errs, err)
		if gone {
			swept++
		}
	}
	return swept, errors.Join(errs...)
}

// makerLives reports whether a process has the number in an unfinished directory's name.
func makerLives(name string) bool {
	number, _, _ := strings.Cut(strings.TrimPrefix(name, unfinished), "-")
	pid, err := strconv.Atoi(number)
	return err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// sweep removes dir if it is a dead server's. An unfinished one has its lock soon, or
// never: only its age tells.
func sweep(dir string) (gone bool, err error) {
	info, err := os.Lstat(dir)
	// In a shared directory anybody can choose such a name: only a real directory of our
	// own is ours.
	if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return false, nil
	}
	born := strings.HasPrefix(filepath.Base(dir), runtimePrefix)
	if !born && time.Since(info.ModTime()) < finishing && makerLives(filepath.Base(dir)) {
		return false, nil
	}
	lock, err := lockFile(filepath.Join(dir, "lock"), 0)
	switch {
	case err == nil:
		defer lock.Close()
	case born || !errors.Is(err, fs.ErrNotExist):
		return false, nil // its server is alive, or it is none of ours
	}
	return true, removeAll(dir)
}
