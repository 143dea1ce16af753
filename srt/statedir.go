package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mcp-sandbox/sandbox"
)

// stateDir is a directory in which sessions outlive the server: for each one a
// directory by its id, with what the server knows of it, its workspace and its
// saved variables. One server has it at a time.
type stateDir struct {
	sessions string // path
	root     *os.Root
	lock     *os.File
}

// What lies in a session's directory. The server alone can reach it; the guest
// is shown the workspace.
const (
	recordFile = "session.json"
	stateFile  = "state.pkl" // the variables, as of now
	staleFile  = "state.old" // those of a session that has run code since
	newFile    = "state.new" // being written

	maxRecord = 64 << 10
)

const (
	// markerFile tells a state directory from any other that is closed to others.
	markerFile = "mcp-sandbox-state"
	markerText = "Sessions of mcp-sandbox. What lies here is the server's alone.\n"

	// gonePrefix begins the name of a session that is being removed: a server that is
	// killed meanwhile must not leave half of one. No session's id does.
	gonePrefix = ".gone-"
)

// openStateDir makes path, unless it is there, and locks it. Another program's
// directory is refused: what is no session in ours may be taken away.
func openStateDir(path string) (_ *stateDir, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("srt: state-dir: %w", err)
		}
	}()
	if err := ownDir(path); err != nil {
		return nil, err
	}
	if path, err = resolved(path); err != nil {
		return nil, err
	}
	if err := mark(path); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(path, "lock"), os.O_CREATE)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s is in use by another server: give each its own", path)
	}
	if err != nil {
		return nil, err
	}
	d := &stateDir{sessions: filepath.Join(path, "sessions"), lock: lock}
	if err = ownDir(d.sessions); err == nil {
		d.root, err = os.OpenRoot(d.sessions)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// ownDir makes a directory that nobody else can enter, or makes sure that what
// is there is such a one: whoever could write to it could read and change sessions.
func ownDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", path)
	case info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%s belongs to another user: name a directory of the server's own", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users: chmod 700 %s", path, path)
	}
	return nil
}

// mark claims an empty directory, and refuses one that holds something and has no mark.
func mark(path string) error {
	marker := filepath.Join(path, markerFile)
	info, err := os.Lstat(marker)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", marker)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case "lost+found": // a disk of its own
		case markerFile: // another server was faster: the lock decides
		default:
			return fmt.Errorf("%s holds %s, and nothing that marks it as the server's: name a directory that is empty, or not there yet", path, e.Name())
		}
	}
	return errors.Join(writeDurably(marker, []byte(markerText)), syncDir(filepath.Dir(path)))
}

func (d *stateDir) close() error { return errors.Join(d.root.Close(), d.lock.Close()) }

// kept lists the sessions, and removes what a server was killed over: what it
// made for nobody yet, what it was removing, and the directory of a session that
// has neither a record nor variables. Whatever else can't be read stays where it
// is: the fault may pass, and the session's owner comes back.
func (d *stateDir) kept(log *slog.Logger) ([]sandbox.Kept, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var all []sandbox.Kept
	for _, e := range entries {
		name := e.Name()
		k, err := d.read(name)
		switch {
		case strings.HasPrefix(name, warmPrefix), strings.HasPrefix(name, gonePrefix), isUUID(name) && d.isNone(name, err):
			log.Info("took away what is no session", "name", name)
			err = removeAll(filepath.Join(d.sessions, name))
		case err == nil:
			all = append(all, k)
			err = d.remove(name, newFile)
		}
		if err != nil {
			log.Warn("something in the state directory is left as it is", "name", name, "err", err)
		}
	}
	return all, nil
}

// isNone reports whether there is surely no session under an id, of which read has said err.
func (d *stateDir) isNone(id string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for _, name := range []string{recordFile, stateFile, staleFile} {
		if _, err := d.root.Lstat(filepath.Join(id, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func (d *stateDir) remove(id, name string) error {
	if err := d.root.Remove(filepath.Join(id, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// findStateDir resolves the state directory, which need not be there yet.
func (c *Config) findStateDir() error {
	if c.StateDir == "" {
		return nil
	}
	abs, err := filepath.Abs(c.StateDir)
	if err != nil {
		return fmt.Errorf("state-dir: %w", err)
	}
	for there, rest := abs, ""; ; there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest) {
		real, err := resolved(there)
		if errors.Is(err, fs.ErrNotExist) && there != "/" {
			continue
		}
		if err != nil {
			return fmt.Errorf("state-dir: %w", err)
		}
		c.StateDir = filepath.Join(real, rest)
		return nil
	}
}

// openState opens the state directory, if there is to be one. None of it may be
// what code inside is shown.
func (l *Local) openState() (err error) {
	dir := l.cfg.StateDir
	if dir == "" {
		return nil
	}
	shown := append([]string{"/usr"}, l.python.Prefixes...)
	if l.cfg.Workspace != "" {
		shown = append(shown, l.cfg.Workspace)
	}
	for _, m := range l.cfg.Mounts {
		shown = append(shown, m.Host)
	}
	for _, place := range shown {
		if within(dir, place) || within(place, dir) {
			return fmt.Errorf("srt: state-dir: of %s and %s one lies in the other, and code inside is shown the latter, where it could see "+
				"all sessions' variables: give them places apart", dir, place)
		}
	}
	if l.state, err = openStateDir(dir); err != nil {
		return err
	}
	l.kept, err = l.state.kept(l.cfg.Log)
	return err
}

// Kept implements sandbox.Keeper.
func (l *Local) Kept() []sandbox.Kept { return slices.Clone(l.kept) }

// Discard implements sandbox.Keeper.
func (l *Local) Discard(id string) error {
	if l.state == nil || !validID(id) {
		return fmt.Errorf("srt: %w: %q", sandbox.ErrUnknownSession, id)
	}
	l.dropFolder(id)
	return l.removeDir(filepath.Join(l.state.sessions, id))
}

// removeDir removes a session's directory. In a state directory it is no
// session's any more before the first of its files goes.
func (l *Local) removeDir(dir string) error {
	if l.state == nil {
		return removeAll(dir)
	}
	gone := filepath.Join(l.state.sessions, gonePrefix+filepath.Base(dir))
	if err := removeAll(gone); err != nil { // what an earlier try left
		return err
	}
	if err := os.Rename(dir, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return removeAll(gone)
}

// makeDir makes what a session has on the server's disk, or finds what an
// earlier server left of it.
func (s *session) makeDir(spec sandbox.Spec) error {
	if s.local.state == nil {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return err
		}
		return s.makeWorkspace()
	}
	state := s.local.state
	switch r, _, err := state.record(spec.ID); {
	case err == nil:
		s.found = true
		if err := s.find(r); err != nil {
			return err
		}
		return s.makeWorkspace()
	case !state.isNone(spec.ID, err): // it may be read the next time
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(record(s.dir, spec), syncDir(state.sessions)); err != nil {
		return err
	}
	return s.makeWorkspace()
}

// isUUID reports whether a name could be that of a session: a UUID in its usual form.
func isUUID(name string) bool {
	if len(name) != 36 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
		default:
			return false
		}
	}
	return true
}

func validID(id string) bool {
	return id != "" && id == filepath.Base(id) && id[0] != '.'
}
