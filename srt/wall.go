package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcp-sandbox/sandbox"
)

// wall is one way to keep what runs for a guest away from the host. It is safe for
// concurrent use. Close it after the last cage.
type wall interface {
	// name is what --wall calls it.
	name() string

	// admits returns all that cfg asks for and this wall can't give: no session may get less
	// without a word. prefixes are the interpreter's.
	admits(cfg Config, prefixes []string) error

	// places says where a guest whose workspace lies at a path of the host, "" for none, will
	// find things: each time anew, for one cage. Nothing is made.
	places(workspace string) places

	// pipe makes a pipe between the server and a guest that is to be started at at. The
	// command is given the guest's end, which stays the caller's.
	pipe(at places, name string, serverReads bool) (server, guest *os.File, err error)

	// start raises the wall and executes c behind it. It returns when the program has been
	// executed, or with the [LayerError] that says why not; then nothing is left of the
	// attempt. ctx bounds the start alone. The files of c stay the caller's.
	start(ctx context.Context, p Policy, c command) (*cage, error)

	// describe tells a person what p is behind this wall, a line for each subject.
	describe(p Policy) string

	// concedes names what the self-test would refuse and this wall can't give, as the test
	// calls it; each is harmless for a reason that is written there.
	concedes() []string

	// lesser tells what this wall gives less of than the native one, for cfg, a sentence each.
	lesser(cfg Config) []string

	// limitsMemory reports whether the kernel bounds the memory of all processes of a
	// session together; where it does not, the watchdog has to.
	limitsMemory() bool

	// hostIDs are the user and group to whom a directory that the server makes for a guest
	// must belong.
	hostIDs() (uid, gid int)

	// close gives back what is kept between starts.
	close() error
}

// passer is a wall whose guests may have to walk to their workspace themselves, as a user
// to whom the server's own directories are closed.
type passer interface {
	// letPass lets the guest's group through dirs. It can't list them.
	letPass(dirs ...string) error
}

// places are paths as a guest knows them.
type places struct {
	Workspace string   // "" = there is none
	Kernel    string   // of the directory of the kernel's files, with a slash at its end
	Warden    string   // this very binary
	Tmp       string   // HOME and TMPDIR, private and writable
	Scratch   []string // directories that end with the wall, Tmp among them

	// Host says that these are the host's own paths: there is no mount namespace, or none
	// that we furnish.
	Host bool
	dir  string // the host's directory of the cage, if it has one: what pipe has made is there
}

// commandScratch are the directories that a command can write.
func (at places) commandScratch() []string {
	if at.Host {
		return []string{at.Tmp} // there is no need of shared memory, and so no right to it
	}
	return at.Scratch
}

// drop takes away what was made for a start that has not come about.
func (at places) drop() error {
	if at.dir == "" {
		return nil
	}
	return removeAll(at.dir)
}

// tmp is what a Policy is told of the place of temporary files: nothing, where the wall
// makes its own.
func (at places) tmp() string {
	if at.Host {
		return at.Tmp
	}
	return ""
}

// The walls, as --wall calls them.
const (
	WallAuto     = "auto" // the first of native, srt that holds
	WallNative   = "native"
	WallSRT      = "srt"
	WallLandlock = "landlock"
)

// Walls are the walls of this system, the ones that auto tries first.
func Walls() []string {
	if runtime.GOOS == "linux" {
		return []string{WallNative, WallSRT, WallLandlock}
	}
	return []string{WallSRT}
}

// wallNames are the values of [Config.Wall].
var wallNames = []string{WallAuto, WallNative, WallSRT, WallLandlock}

// CheckWall refuses a name that is no wall's. "" is auto.
func CheckWall(name string) error {
	if name == "" || slices.Contains(wallNames, name) {
		return nil
	}
	return fmt.Errorf("wall: %q is none: there are %s", name, strings.Join(wallNames, ", "))
}

// candidates are the walls to be tried, in order. It never goes below srt by itself.
func (c Config) candidates() []string {
	switch {
	case c.Wall != "" && c.Wall != WallAuto:
		return []string{c.Wall}
	case runtime.GOOS == "linux":
		return []string{WallNative, WallSRT}
	}
	return []string{WallSRT}
}

// newWall checks what can be checked without starting anything.
func (l *Local) newWall(ctx context.Context, name string) (wall, error) {
	switch name {
	case WallNative:
		n, err := newNative(l.cfg.native)
		if err != nil {
			return nil, err // and no interface around a nil
		}
		return n, nil
	case WallLandlock:
		return l.newLandlock()
	case WallSRT:
		w, err := newSRT(ctx, l.cfg, filepath.Join(l.runtime.path, "wall"))
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	return nil, failed(layerPolicy, fmt.Errorf("the wall %s is not built yet", name))
}

// raise takes the first wall that can give what is asked for, stands, and holds.
func (l *Local) raise(ctx context.Context) error {
	names := l.cfg.candidates()
	var refused []error
	for i, name := range names {
		err := l.try(ctx, name)
		switch {
		case err == nil:
			if name == WallLandlock {
				l.cfg.Log.Warn("the wall landlock is weaker than the others", "less", strings.Join(l.Lesser(), "; "))
				return nil
			}
			for _, less := range l.Lesser() {
				l.cfg.Log.Info("the wall gives less than the native one", "wall", name, "less", less)
			}
			for j, r := range refused {
				l.cfg.Log.Warn("the wall can't be raised, and another one was", "wall", names[j], "instead", name, "err", r)
			}
			return nil
		case len(names) == 1, ctx.Err() != nil:
			return err
		case i == 0 && errors.Is(err, errNotAdmitted): // what was asked for is at fault, and not this machine
			return err
		}
		refused = append(refused, err)
	}
	return noWall(names, refused)
}

// errNotAdmitted is in the error of a wall that can't give what was asked for.
var errNotAdmitted = errors.New("it can't be had behind this wall")

// noWall is the error of a machine on which no wall holds, with what each has said.
func noWall(names []string, refused []error) error {
	e := &sandbox.Error{Status: sandbox.StatusInfra}
	var known *sandbox.Error
	if errors.As(refused[0], &known) {
		e.Layer = known.Layer
	}
	var said []error
	for i, err := range refused {
		said = append(said, fmt.Errorf("the wall %s: %w", names[i], err))
	}
	e.Err = fmt.Errorf("no wall can be raised on this machine:\n%w", errors.Join(said...))
	return e
}

// try raises one wall and tries to get through it. What is made ready for sessions to come
// is started meanwhile. On an error nothing is left of it.
func (l *Local) try(ctx context.Context, name string) (err error) {
	if l.wall, err = l.newWall(ctx, name); err != nil {
		return infra(err)
	}
	defer func() {
		if err != nil {
			l.pool.close()
			err = errors.Join(err, l.wall.close())
			l.pool, l.wall = nil, nil
		}
	}()
	shown := slices.Concat(systemDirs, etc, l.python.Prefixes)
	if name == WallSRT {
		shown = append(shown, systemReads...)
	}
	if err := errors.Join(l.wall.admits(l.cfg, l.python.Prefixes), l.cfg.unhonoured(name, shown)); err != nil {
		return infra(failed(layerPolicy, unadmitted{err}))
	}
	if !l.wall.limitsMemory() {
		if err := canWatchMemory(); err != nil {
			return infra(err)
		}
	}
	l.pool = newPool(l)
	return l.selfTest(ctx) // and the pool is closed, if it fails
}

// unadmitted is an error with errNotAdmitted in it, and none of its words.
type unadmitted struct{ error }

func (u unadmitted) Unwrap() []error { return []error{u.error, errNotAdmitted} }

// HostPaths reports whether code finds its workspace where the host has it.
func (l *Local) HostPaths() bool { return l.wall.places("").Host }

// Lesser tells, a sentence each, what the wall gives less of than the native one; nil for
// that one.
func (l *Local) Lesser() []string { return l.wall.lesser(l.cfg) }

// stays reports whether the workspace of a session's own has to keep the path that it had
// before the session had a name: a guest who is shown the host's paths knows it.
func (l *Local) stays() bool {
	return l.cfg.Workspace == "" && l.state == nil && l.wall.places("").Host
}

// Wall is the name of the wall that sessions stand behind.
func (l *Local) Wall() string { return l.wall.name() }
