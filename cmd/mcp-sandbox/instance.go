package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// instance is this process among those that use the same account: a name that
// its workloads bear, and a lock by which a later process on this machine knows
// whether it lives. A kill leaves the lock's file behind, and with it the word
// that what bears the name may be deleted.
type instance struct {
	id   string
	dead []string // names of those that have ended
	lock *os.File // nil = there is no place for one: nobody will know
}

// remembered is how long the name of a process that has ended is kept, at least:
// far longer than the platform keeps its workloads.
const remembered = 7 * 24 * time.Hour

const unlocked = ".new-" // before the name, until the file is locked

func newInstance(log *slog.Logger) *instance {
	in := &instance{id: uuid.NewString()}
	if err := in.register(); err != nil {
		log.Warn("if this server is killed, its remote containers end by their own time alone: there is no place to remember it", "err", err)
	}
	return in
}

func (in *instance) register() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "mcp-sandbox", "instances")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name, ok := ended(root, e.Name()); ok {
			in.dead = append(in.dead, name)
		}
	}
	// It is locked before it has the name that others look at.
	file, err := root.OpenFile(unlocked+in.id, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("lock: %w", err), file.Close())
	}
	if err := root.Rename(unlocked+in.id, in.id); err != nil {
		return errors.Join(err, file.Close())
	}
	in.lock = file
	return nil
}

// ended reports whether a file is that of a process which has ended, and removes
// it if that was long ago.
func ended(root *os.Root, name string) (id string, ok bool) {
	id = strings.TrimPrefix(name, unlocked)
	if uuid.Validate(id) != nil {
		return "", false
	}
	file, err := root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	old := time.Since(info.ModTime()) > remembered
	if name != id { // not finished: in a moment it is, or its owner was killed just then
		if old {
			_ = root.Remove(name)
		}
		return "", false
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return "", false // its owner lives
	}
	if old {
		_ = root.Remove(name)
	}
	return id, true
}

// end forgets the process, where nothing of it is left; else its name stays for the
// next one.
func (in *instance) end(clean bool) {
	if in.lock == nil {
		return
	}
	if clean {
		_ = os.Remove(in.lock.Name()) // it is remembered in vain, at worst
	}
	_ = in.lock.Close()
}
