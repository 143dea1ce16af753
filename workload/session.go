package workload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var (
	_ sandbox.Session = (*session)(nil)
	_ sandbox.Files   = (*filedSession)(nil)
)

// session is one interpreter in one container. When either is lost the next call
// starts another: the session lives on, its variables don't.
type session struct {
	w      *Workload
	t      *tenant // held until the session is closed
	id     string
	log    *slog.Logger
	mirror *mirror       // nil = files stay in the container; its use takes the turn
	turn   chan struct{} // holds one token while a call is under way

	mu         sync.Mutex
	closed     bool
	waits      map[*context.CancelFunc]struct{} // what Close gives up: a start, a transfer of files
	live       *interpreter
	remote     *remote // nil = there is no container
	generation int64   // of the interpreters in that container
	lost       string  // what the next result must say of variables that are gone
	ran        bool    // the live interpreter may hold variables
}

// filedSession is a session with a workspace on this machine.
type filedSession struct{ *session }

// Root implements sandbox.Files.
func (s *filedSession) Root() *os.Root { return s.mirror.root }

// openSession opens a session that remembers.
func (w *Workload) openSession(ctx context.Context, t *tenant, spec sandbox.Spec, workspace *os.Root) (sandbox.Session, error) {
	s := &session{w: w, t: t, id: spec.ID, log: w.cfg.Logger.With("session", spec.ID), turn: make(chan struct{}, 1), waits: map[*context.CancelFunc]struct{}{}}
	own := ""
	if workspace == nil && w.cfg.WorkDir != "" {
		own = filepath.Join(w.cfg.WorkDir, spec.ID)
		if !filepath.IsLocal(spec.ID) || filepath.Base(spec.ID) != spec.ID {
			return nil, errInfra(false, errors.New("the session's id is no name of a directory"))
		}
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, errInfra(false, err)
		}
		root, err := os.OpenRoot(own)
		if err != nil {
			return nil, errInfra(false, errors.Join(err, os.Remove(own)))
		}
		workspace = root
	}
	if workspace != nil {
		s.mirror = newMirror(workspace, own, w.cfg.Limits.Disk)
	}
	if !spec.Lazy {
		if _, err := s.start(ctx); err != nil {
			if s.remote != nil { // a container that was made, whose interpreter did not start
				s.remote.end()
			}
			return nil, errors.Join(err, s.closeMirror())
		}
	}
	if s.mirror == nil {
		return s, nil
	}
	return &filedSession{s}, nil
}

func (s *session) closeMirror() error {
	if s.mirror == nil {
		return nil
	}
	return s.mirror.close()
}

// untilClosed is ctx with an end when the session is closed.
func (s *session) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		cancel()
	}
	s.waits[&cancel] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, &cancel)
		cancel()
	}
}

// take waits for the session's turn.
func (s *session) take(ctx context.Context) error {
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
	if err := req.Check(); err != nil {
		return sandbox.Result{}, err
	}
	if err := s.w.sameCaller(ctx, s.t); err != nil {
		return sandbox.Result{}, err
	}
	if err := s.take(ctx); err != nil {
		return sandbox.Result{}, err
	}
	defer s.give()
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	begun := time.Now()
	live, err := s.start(ctx)
	if err != nil {
		return sandbox.Result{}, err
	}
	notes, err := s.push(ctx, live)
	if err != nil {
		return sandbox.Result{}, s.explain(ctx, err)
	}
	started := time.Since(begun)
	live.link.call(true, s.version())
	res, err := live.client.Run(ctx, req)
	changed := live.link.changed()
	live.link.call(false, -1)
	if res.Status == "" { // no code ran: what is to be told of the past still is
		return res, s.explain(ctx, err)
	}
	res.Backend = "workload"
	res.Provisioning += started
	if errors.Is(err, sandbox.ErrClosed) {
		return res, err // whoever closes it clears up
	}
	missing := false
	if live.r.err() == nil {
		files, more, err := s.pull(ctx, live, changed)
		res.Files, notes, missing = files, append(notes, more...), err != nil
	}
	if s.mirror != nil {
		res.Notes = append(res.Notes, s.mirror.once(notes)...)
	}
	s.tell(&res)
	if res.State == sandbox.StateLost && live.client.Err() != nil {
		live.link.giveUp()
		s.mu.Lock()
		s.ran = false // res says already that all is lost
		s.mu.Unlock()
		if fallen := s.fallen(live, &res); fallen != nil {
			return sandbox.Result{}, fallen
		}
		s.bury(live)
	}
	if missing && live.r.err() == nil { // of a container that is lost, fallen has told
		res.Notes = append(res.Notes, "not all files that the call changed were brought back from the container; the next call tries again")
	}
	if res.Status == sandbox.StatusCancelled {
		if lost := kernel.Untold(res); lost != "" {
			s.mu.Lock()
			s.lost = lost
			s.mu.Unlock()
		}
	}
	return res, err
}

// tell adds to a result, once, that an interpreter was lost before the call.
func (s *session) tell(res *sandbox.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = true
	if s.lost != "" {
		kernel.Tell(res, s.lost)
		s.lost = ""
	}
}

// explain makes the error of a call that did not get to run.
func (s *session) explain(ctx context.Context, err error) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	_, known := errors.AsType[*sandbox.Error](err)
	switch {
	case err == nil, known:
		return err
	case closed || errors.Is(err, sandbox.ErrClosed):
		return sandbox.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errInfra(false, err)
}

// version is that of the remote workspace as it is known here; -1 = there is no mirror.
func (s *session) version() int64 {
	if s.mirror == nil {
		return -1
	}
	return s.mirror.version
}

// push brings what changed here to the container.
func (s *session) push(ctx context.Context, live *interpreter) ([]string, error) {
	if s.mirror == nil {
		return nil, nil
	}
	ctx, done := s.untilClosed(ctx)
	defer done()
	return s.mirror.push(ctx, live.r)
}

// pullLimit bounds the bringing back of files, whoever waits.
const pullLimit = 2 * time.Minute

// pull brings what a call changed here. changed is what the reply told of; nil =
// there was none, and it is asked for.
func (s *session) pull(ctx context.Context, live *interpreter, changed *changes) ([]sandbox.File, []string, error) {
	if s.mirror == nil {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pullLimit)
	defer cancel()
	ctx, done := s.untilClosed(ctx)
	defer done()
	var err error
	if changed == nil {
		changed, err = s.mirror.ask(ctx, live.r)
	}
	var files []sandbox.File
	var notes []string
	if err == nil {
		files, notes, err = s.mirror.pull(ctx, live.r, changed)
	}
	if err != nil {
		s.log.Warn("files not brought back from the container", "err", err)
	}
	return files, notes, err
}

// Reset implements sandbox.Session. It ends the interpreter and all that it has
// started; container and workspace stay.
func (s *session) Reset(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	s.mu.Lock()
	closed, live, container := s.closed, s.live, s.remote
	s.live, s.lost, s.ran = nil, "", false
	s.mu.Unlock()
	if closed {
		return sandbox.ErrClosed
	}
	if live != nil {
		live.client.Close()
	}
	if container == nil {
		return nil // there was no interpreter, and nobody has asked for one
	}
	_, err := s.start(ctx)
	return err
}

// Close implements sandbox.Session. All that ran has ended when it returns; the
// container itself is deleted in the background, see Workload.Close.
func (s *session) Close() error {
	s.mu.Lock()
	closed, live, container := s.closed, s.live, s.remote
	s.closed, s.live, s.remote = true, nil, nil
	for cancel := range s.waits {
		(*cancel)()
	}
	s.mu.Unlock()
	if live != nil {
		live.client.Close()
	}
	if container != nil {
		container.end()
	}
	s.turn <- struct{}{} // wait for the call under way, or for another Close
	defer s.give()
	if closed {
		return nil
	}
	s.w.drop(s.t)
	return s.closeMirror()
}
