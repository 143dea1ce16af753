package srt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var (
	_ sandbox.Session = (*session)(nil)
	_ sandbox.Files   = (*session)(nil)
)

// guestKernel is where the interpreter's side of the talk lies, read-only.
const guestKernel = "/run/mcp-sandbox/kernel/"

// workspaceDir is a workspace of the session's own, in its directory.
const workspaceDir = "workspace"

// session is one interpreter behind one wall. If the wall's first process dies,
// the next call raises another: the session lives on, its variables don't.
type session struct {
	local *Local
	id    string
	dir   string // private to the server; the guest sees only the workspace
	log   *slog.Logger

	workspace string // host path
	apart     bool   // it lies beside dir, so that it keeps its path when that gets its name
	root      *os.Root
	folder    *os.File      // the same
	disk      *disk         // nil = the workspace is read-only
	turn      chan struct{} // holds one token while a call is under way
	changes   changes       // guarded by turn: which files the call changes
	made      time.Time     // when its interpreter was ready, before anybody asked for it

	mu      sync.Mutex
	closed  bool
	lazy    bool // no interpreter has been started: that is for the first call of code
	live    *interpreter
	outputs *outputs // guarded by mu: what was too long for results; nil = nobody has asked yet
	warden  *warden  // of the wall for commands; nil = no command has been run yet
	lost    string   // what the next result must say of an interpreter that died
	ran     bool     // the live interpreter may hold variables
	used    bool     // code has run since the session was new, or was reset: there may be variables to lose
	found   bool     // an earlier server left it
	empty   bool     // guarded by turn: its record says that there is nothing to restore

	saved   string             // the file that an interpreter to come is to be given, see hibernate.go; "" = none
	tries   tries              // guarded by turn: to restore from it, so far
	waiting int                // calls that wait for the turn
	warming context.CancelFunc // ends what holds the turn though nobody asked for it; nil = nothing does

	revived []string // what the next result must say of variables that were restored; nil = nothing
}

// makeWorkspace makes the session's own directory, or takes the shared one.
func (s *session) makeWorkspace() (err error) {
	switch cfg := s.local.cfg; {
	case cfg.Workspace == "":
		s.workspace = filepath.Join(s.dir, workspaceDir)
		if s.apart = s.local.stays(); s.apart {
			s.workspace = filepath.Join(s.local.runtime.path, "workspaces", rand.Text())
		}
		if err := os.MkdirAll(s.workspace, 0o700); err != nil {
			return err
		}
		uid, gid := s.local.wall.hostIDs()
		if err := os.Chown(s.workspace, uid, gid); err != nil {
			return err
		}
		if w, ok := s.local.wall.(passer); ok && s.local.state == nil { // a state directory stays closed to all others
			if err := w.letPass(s.local.runtime.path, s.dir); err != nil {
				return err
			}
		}
	case cfg.WorkspaceApart:
		s.workspace = filepath.Join(cfg.Workspace, s.id)
		if err := s.makeFolder(); err != nil {
			return err
		}
	default:
		s.workspace = cfg.Workspace
	}
	if s.root, err = os.OpenRoot(s.workspace); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.root.Close())
		}
	}()
	if s.folder, err = s.root.Open("."); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.folder.Close())
		}
	}()
	if policy := s.local.policy(s.workspace, s.local.wall.places(s.workspace)); policy.Workspace.Writable {
		s.disk = newDisk(policy, s.local.before)
	}
	if s.local.cfg.workspace == nil || s.local.cfg.WorkspaceApart {
		return nil
	}
	return s.sameWorkspace()
}

// sameWorkspace refuses a shared workspace that is no longer the one that New saw.
func (s *session) sameWorkspace() error {
	saw, err := s.local.cfg.workspace.Stat()
	if err != nil {
		return err
	}
	is, err := s.root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(saw, is) {
		return fmt.Errorf("%s: %w", s.workspace, errReplaced)
	}
	return nil
}

// Root implements sandbox.Files.
func (s *session) Root() *os.Root { return s.root }

// start raises the wall and starts the interpreter behind it, unless it lives. until
// bounds what saved variables take besides.
func (s *session) start(ctx context.Context, until restoreTime) error {
	s.mu.Lock()
	closed, live := s.closed, s.live
	s.mu.Unlock()
	if closed {
		return sandbox.ErrClosed
	}
	if live != nil {
		select {
		case <-live.client.Broken():
			s.bury(live)
		default:
			return nil
		}
	}
	if err := s.openWorkspace(); err != nil {
		return infra(failed(layerWorkspace, err))
	}
	return s.raise(ctx, until)
}

// raise starts an interpreter, and gives it the variables that were saved.
func (s *session) raise(ctx context.Context, until restoreTime) error {
	started, err := s.newInterpreter(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.live, s.ran, s.lazy = started, false, false
	}
	s.mu.Unlock()
	if closed { // Close came in between and could not see it
		return errors.Join(sandbox.ErrClosed, started.close())
	}
	return s.revive(ctx, started, until)
}

// newInterpreter takes one that is ready, or else starts one.
func (s *session) newInterpreter(ctx context.Context) (_ *interpreter, err error) {
	started := s.local.spare()
	if started == nil {
		if started, err = s.startInterpreter(ctx); err != nil {
			return nil, err
		}
	}
	s.watch(started)
	return started, nil
}

// openWorkspace gives the owner's rights back to a workspace whose guest took
// them: nobody could enter it any more.
func (s *session) openWorkspace() error {
	if s.disk == nil {
		return nil
	}
	// By the descriptor: a directory without rights can't be named, even by its owner.
	info, err := s.folder.Stat()
	if err != nil || info.Mode().Perm()&0o700 == 0o700 {
		return err
	}
	return s.folder.Chmod(info.Mode().Perm() | 0o700)
}

// bury takes away an interpreter that died, or broke the protocol.
func (s *session) bury(dead *interpreter) {
	reason := dead.client.Err()
	err := dead.close()
	s.log.Warn("the interpreter is gone", "reason", reason, "err", err)
	s.mu.Lock()
	ran := s.ran
	if s.live == dead {
		s.live = nil
	}
	s.ran = false
	s.mu.Unlock()
	if ran {
		ended := "the interpreter ended"
		if why := dead.watchdog.reason(); why != "" {
			ended = why + " The interpreter was ended"
		}
		s.setLost(ended + " between the calls: " + kernel.Fresh)
	}
}

// take waits for the session's turn.
func (s *session) take(ctx context.Context) error {
	s.mu.Lock()
	s.waiting++
	if s.warming != nil {
		s.warming()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) give() { <-s.turn }

// Run implements sandbox.Session.
func (s *session) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := s.take(ctx); err != nil {
		return sandbox.Result{}, err
	}
	defer s.give()
	begun := time.Now()
	if err := s.start(ctx, restoreWithin(req.Timeout)); err != nil {
		var late *lateError
		if errors.As(err, &late) {
			return outOfTime(req, late, time.Since(begun)), nil
		}
		return sandbox.Result{}, err
	}
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	if live == nil {
		return sandbox.Result{}, sandbox.ErrClosed
	}
	started := time.Since(begun)
	if s.disk != nil {
		if why := s.disk.refuses(); why != "" {
			return sandbox.Result{
				Status: sandbox.StatusError, ExitCode: sandbox.StatusError.ExitCode(), Error: why,
				State: sandbox.StateKept, Backend: "local", Code: req.Code, Provisioning: started,
			}, nil
		}
	}
	err := s.openWorkspace()
	if err == nil {
		err = s.outdate()
	}
	if err != nil {
		return sandbox.Result{}, infra(failed(layerWorkspace, err))
	}
	live.watchdog.running(true)
	s.changes.begin()
	res, err := live.client.Run(ctx, req)
	live.watchdog.running(false)
	if res.Status == "" { // no code ran: what is to be told of the past still is
		return res, s.explain(err, live)
	}
	res.Backend = "local"
	res.Provisioning += started
	if errors.Is(err, sandbox.ErrClosed) {
		return res, err // whoever closes it clears up, or keeps what is saved
	}
	if s.disk != nil {
		s.changes.end(s.root, &res)
	}
	s.tell(&res)
	if res.State == sandbox.StateLost {
		s.forgetSaved()
	}
	if res.State == sandbox.StateLost && (res.Status == sandbox.StatusOOM || live.client.Err() != nil) {
		// What is left behind the wall must not wait for the next call; and after
		// the end of an interpreter for want of memory, what fills it may lie in
		// /tmp or in shared memory, which only a fresh wall empties.
		s.mu.Lock()
		s.ran, s.used = false, false // res says already that all is lost
		s.mu.Unlock()
		s.bury(live)
	}
	s.giveUpFull(live, res)
	if res.Status == sandbox.StatusCancelled { // whoever cancelled does not read res
		if lost := kernel.Untold(res); lost != "" {
			s.mu.Lock()
			s.lost = lost
			s.mu.Unlock()
		}
	}
	return res, err
}

// explain tells why an interpreter did not even start.
func (s *session) explain(err error, live *interpreter) error {
	var known *sandbox.Error
	if why := live.watchdog.reason(); why != "" && err != nil {
		return &sandbox.Error{Status: sandbox.StatusInfra, Layer: "limits", Err: errors.New(why)}
	}
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, sandbox.ErrClosed):
		return sandbox.ErrClosed
	}
	return &sandbox.Error{Status: sandbox.StatusInfra, Layer: "python", Err: err, Stderr: live.lastWords()}
}

// Close implements sandbox.Session.
func (s *session) Close() error {
	return s.end(func() error {
		s.local.dropFolder(s.id)
		var err error
		if s.apart {
			err = removeAll(s.workspace)
		}
		return errors.Join(err, s.local.removeDir(s.dir))
	})
}

// end kills everything, waits, and does what is last.
func (s *session) end(last func() error) error {
	s.mu.Lock()
	closed, live, warden := s.closed, s.live, s.warden
	s.closed, s.live, s.warden = true, nil, nil
	s.mu.Unlock()
	var err error
	if warden != nil {
		err = warden.close()
	}
	if live != nil {
		err = errors.Join(err, live.close())
	}
	s.turn <- struct{}{} // wait for the call under way, or for another Close
	defer s.give()
	if closed {
		return err
	}
	s.local.forget(s)
	if s.root != nil {
		err = errors.Join(err, s.root.Close(), s.folder.Close())
	}
	if err != nil {
		return err // something may still run in it: the next server's sweep takes it
	}
	return last()
}

// guestEnv is the whole environment inside the wall. The operator's variables
// take the place of ours.
func (l *Local) guestEnv(at places) []string {
	threads := strconv.Itoa(min(runtime.NumCPU(), 4)) // pools as large as a big machine die under a task limit
	env := []string{
		"PATH=" + strings.Join([]string{filepath.Dir(l.python.Path), "/usr/local/bin", "/usr/bin", "/bin"}, ":"),
		"HOME=" + at.Tmp, "TMPDIR=" + at.Tmp, "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "MPLBACKEND=Agg", "MPLCONFIGDIR=" + at.Tmp + "/.matplotlib",
		"OMP_NUM_THREADS=" + threads, "OPENBLAS_NUM_THREADS=" + threads, "MKL_NUM_THREADS=" + threads, "NUMEXPR_NUM_THREADS=" + threads,
	}
	env = append(env, networkEnv(l.cfg.Network)...)
	env = slices.DeleteFunc(env, func(ours string) bool {
		name, _, _ := strings.Cut(ours, "=")
		return slices.ContainsFunc(l.cfg.Env, func(theirs string) bool { return strings.HasPrefix(theirs, name+"=") })
	})
	return append(env, l.cfg.Env...)
}
