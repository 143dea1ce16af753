package srt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt/egress"
)

var (
	_ sandbox.Sandbox = (*Local)(nil)
	_ sandbox.Keeper  = (*Local)(nil)
)

// Config says what sessions get. The zero value is the strictest.
type Config struct {
	Wall              string          // auto, native, srt or landlock; "" = auto, the first of native and srt that holds
	Python            string          // interpreter: a path or a name on PATH; "" = python3 of PATH
	Workspace         string          // host directory that all sessions share; "" = a temporary one for each
	WorkspaceReadOnly bool            // the shared workspace can't be written
	WorkspaceApart    bool            // each session has a folder of its own in Workspace, by its id; it stays. Excludes Warm
	Mounts            []Mount         // further host directories or files; read-only unless they say otherwise
	Limits            sandbox.Limits  // zero values have defaults
	PythonEnv         []string        // NAME=VALUE for the one run of Python outside the wall that tells what it is; nil = none
	StateDir          string          // host directory in which sessions outlive the server; "" = they end with it
	Env               []string        // NAME=VALUE for the guest's environment, besides what it needs
	Settings          Settings        // of a file for Anthropic's Sandbox Runtime: code gets no more than these allow besides
	Commands          *allowlist.List // which commands sessions can run besides; nil = none
	Network           egress.Rules    // hosts that code may reach, through the server's proxy; the zero value allows none
	Log               *slog.Logger    // nil = none

	Checkpoint sandbox.Checkpoint // when variables are saved against the interpreter's end; "" = always
	Warm       int                // interpreters that are kept ready for sessions to come
	Preload    []string           // modules imported in these, such as numpy; New fails if one can't be

	proxy  egress.Config        // for tests; Network's rules are served
	native nativeConfig         // for tests; the zero value is right for every server
	srt    srtConfig            // likewise
	bounds func() []memoryBound // likewise; nil = what this machine tells

	space     func(dir string) (total, free int64, err error) // likewise, in bytes; nil = the file system's word
	workspace *os.File                                        // Workspace as New found it; nil = none
}

// Local opens sessions behind the wall of this machine. It is safe for
// concurrent use.
type Local struct {
	cfg      Config
	python   Interpreter
	wall     wall
	programs *programs // of cfg.Commands; nil = none
	runtime  *runtimeDir
	state    *stateDir      // nil = sessions end with the server
	kept     []sandbox.Kept // sessions of earlier servers
	held     []*os.File     // of the workspace and the mounts
	before   before         // what a shared workspace held at the start
	pool     *pool          // nil = none is kept ready

	checkpoints checkpoints

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
}

// New finds the interpreter, takes away what killed servers left behind, raises
// the wall and tries to get through it. It returns all that is wrong with cfg,
// or the layer that could not be raised. Close ends what it returns.
//
// What lies at the workspace and the mounts now is what sessions get: a session
// is refused once something else lies there.
func New(ctx context.Context, cfg Config) (_ *Local, err error) {
	cfg, err = cfg.resolve()
	if err != nil {
		return nil, err
	}
	held, err := cfg.hold()
	if err != nil {
		return nil, err
	}
	l := &Local{cfg: cfg, held: held, sessions: map[*session]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.python, err = safeInterpreter(ctx, cfg); err != nil {
		return nil, &sandbox.Error{Status: sandbox.StatusInfra, Layer: "python", Err: err}
	}
	if cfg.Commands != nil && runtime.GOOS != "linux" {
		cfg.Log.Warn("commands are not offered: they need Linux")
		cfg.Commands, l.cfg.Commands = nil, nil
	}
	if cfg.Commands != nil {
		if l.programs, err = findPrograms(cfg.Commands); err != nil {
			return nil, infra(failed(layerPolicy, err))
		}
	}
	if err := l.openState(); err != nil {
		return nil, err
	}
	if cfg.Workspace != "" && !cfg.WorkspaceReadOnly && !cfg.WorkspaceApart {
		if l.before, err = holdings(cfg.Workspace); err != nil {
			return nil, infra(failed(layerWorkspace, err))
		}
	}
	if n, err := sweepRuntimeDirs(); err != nil || n > 0 {
		cfg.Log.Info("took away what an earlier server left behind", "directories", n, "err", err)
	}
	if err := sweepCgroups(); err != nil {
		cfg.Log.Warn("control groups of an earlier server are left", "err", err)
	}
	if l.runtime, err = newRuntimeDir(); err != nil {
		return nil, err
	}
	if err := l.raise(ctx); err != nil {
		return nil, err
	}
	if err := l.pool.proven(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

func (c Config) resolve() (Config, error) {
	var errs []error
	var err error
	if c.Limits, err = c.Limits.Resolve(); err != nil {
		errs = append(errs, err)
	}
	if c.Checkpoint, err = c.Checkpoint.Resolve(); err != nil {
		errs = append(errs, err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	errs = append(errs, CheckWall(c.Wall), CheckWarm(c.Warm, c.Preload))
	c.Preload = append([]string{}, c.Preload...)
	c.Mounts = append([]Mount{}, c.Mounts...)
	c.Env = append([]string{}, c.Env...)
	c.PythonEnv = append([]string{}, c.PythonEnv...)
	if c.WorkspaceApart && (c.Workspace == "" || c.WorkspaceReadOnly) {
		errs = append(errs, errors.New("srt: sessions can have folders of their own only in a workspace that can be written"))
	}
	if c.WorkspaceApart && c.Warm > 0 { // which has no name before there is a session
		errs = append(errs, errors.New("srt: warm: what is to have a folder of its own can't be kept ready before there is a session"))
	}
	errs = append(errs, c.applySettings(), c.findPlaces(), c.findStateDir())
	return c, errors.Join(errs...)
}

// Python is the interpreter that sessions run.
func (l *Local) Python() Interpreter { return l.python }

// Ready is how many interpreters are ready now for sessions to come.
func (l *Local) Ready() int { return l.pool.size() }

// Checkpoints implements sandbox.Checkpointer.
func (l *Local) Checkpoints() sandbox.Checkpoints { return l.checkpoints.read() }

// String implements sandbox.Sandbox.
func (l *Local) String() string {
	described := l.described()
	return l.wall.describe(l.policy(described, l.wall.places(described)))
}

// described is the workspace in words.
func (l *Local) described() string {
	switch {
	case l.cfg.WorkspaceApart:
		return "a folder of each session's own in " + l.cfg.Workspace
	case l.cfg.Workspace != "":
		return l.cfg.Workspace
	}
	return "a temporary directory of each session's own"
}

// policy is what a session with this workspace may see and use, who finds it at a place
// that the wall has named.
func (l *Local) policy(workspace string, at places) Policy {
	lim := l.cfg.Limits
	held := l.cfg.workspace
	if l.cfg.WorkspaceApart {
		held = nil // the folder lies where no guest could put another
	}
	return Policy{
		Workspace: Mount{
			Host: workspace, Guest: at.Workspace, held: held,
			Writable: l.cfg.Workspace == "" || !l.cfg.WorkspaceReadOnly,
		},
		Mounts:    l.cfg.Mounts,
		ReadOnly:  l.python.Prefixes,
		Network:   l.cfg.Network,
		AllowExec: true, // compiled modules and virtual environments in a workspace
		Memory:    lim.Memory, Disk: lim.Disk, Shm: lim.Shm, FileSize: lim.Disk,
		Tasks: lim.Tasks, OpenFiles: lim.OpenFiles, Inodes: lim.Inodes,
		Tmp: at.tmp(),
	}
}

// Open implements sandbox.Sandbox. It hands out a session that is ready, or else
// starts one, whose interpreter starts in the background of the caller's next step, or,
// if spec says so, with the first call of code.
func (l *Local) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	s, err := l.openReady(spec)
	if s == nil && err == nil {
		s, err = l.openCold(ctx, spec)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *Local) openCold(ctx context.Context, spec sandbox.Spec) (*session, error) {
	s, err := l.newSession(spec)
	if err != nil {
		return nil, err
	}
	if spec.Lazy || s.found { // what is to be restored, a call restores within its limit
		return s, nil
	}
	if err := s.start(ctx, restoreTime{}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// dirOf is where the session with an id has its directory.
func (l *Local) dirOf(id string) string {
	if l.state != nil {
		return filepath.Join(l.state.sessions, id)
	}
	return filepath.Join(l.runtime.path, id)
}

// blank is a session that has nothing yet.
func (l *Local) blank(dir string, log *slog.Logger) *session {
	return &session{local: l, dir: dir, turn: make(chan struct{}, 1), lazy: true, log: log}
}

func (l *Local) newSession(spec sandbox.Spec) (*session, error) {
	if !validID(spec.ID) {
		return nil, fmt.Errorf("srt: %q can't name a session", spec.ID)
	}
	s := l.blank(l.dirOf(spec.ID), l.cfg.Log.With("session", spec.ID))
	s.id = spec.ID
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, sandbox.ErrClosed
	}
	if err := s.makeDir(spec); err != nil {
		return nil, infra(failed(layerWorkspace, err))
	}
	l.sessions[s] = struct{}{}
	return s, nil
}

func (l *Local) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

// Close ends all sessions, leaves those of a state directory to the next server,
// and removes the server's own directory. It may be called twice.
func (l *Local) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var all []*session
	for s := range l.sessions {
		all = append(all, s)
	}
	l.mu.Unlock()
	l.pool.close()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Leave() })
	}
	wg.Wait()
	closeAll(l.held)
	if l.wall != nil { // New may have come no further
		errs = append(errs, l.wall.close())
	}
	if l.runtime != nil {
		errs = append(errs, l.runtime.close())
	}
	if l.state != nil {
		errs = append(errs, l.state.close())
	}
	return errors.Join(errs...)
}

const startTimeout = 60 * time.Second
