package sandboxtest

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"mcp-sandbox/sandbox"
)

var (
	_ sandbox.Sandbox       = (*Fake)(nil)
	_ sandbox.Session       = (*fakeSession)(nil)
	_ sandbox.Session       = (*fakeFiles)(nil)
	_ sandbox.Files         = (*fakeFiles)(nil)
	_ sandbox.FileStore     = (*fakeFiles)(nil)
	_ sandbox.CommandRunner = (*fakeCommands)(nil)
	_ sandbox.CommandRunner = (*fakeFilesCommands)(nil)
	_ sandbox.Files         = (*fakeFilesCommands)(nil)
)

// Fake is a [sandbox.Sandbox] that runs nothing: a script says what each call
// yields. It keeps the promises of the interfaces (turns, ErrClosed, a Close
// that ends a running call and waits for it) and leaves all else to the script.
// The zero value is ready to use. It is safe for concurrent use; its fields
// must be set before the first Open.
type Fake struct {
	// Script answers the nth call (from 1) of the session with this id. It may
	// block: ctx ends with the caller's context, and when the session is closed.
	// It is called from several goroutines at a time for several sessions, never
	// for one. nil answers every call with StatusOK, and with StateNew for the
	// first one after Open or Reset, StateKept after it.
	Script func(ctx context.Context, session string, n int, req sandbox.Request) (sandbox.Result, error)

	// Commands, if not nil, gives each session the power sandbox.CommandRunner,
	// and answers its command lines as Script answers code. The two are counted
	// together.
	Commands func(ctx context.Context, session string, n int, req sandbox.CommandRequest) (sandbox.Result, error)

	// Opening is asked before a session starts; its error is Open's. nil = all
	// may start.
	Opening func(ctx context.Context, spec sandbox.Spec) error

	// Workspaces, if not empty, is a directory: each session then implements
	// sandbox.Files over a folder of its own in it, named by its id.
	Workspaces string

	// Wall is what String says; "" = "fake".
	Wall string

	mu     sync.Mutex
	events []Event
	open   map[*fakeSession]struct{}
}

// Event is one thing that was asked of a Fake.
type Event struct {
	Kind    EventKind
	Session string                 // its id
	N       int                    // of a run or a command: which call of the session, from 1
	Request sandbox.Request        // of a run
	Command sandbox.CommandRequest // of a command
	Lazy    bool                   // of an open
}

// EventKind says what was asked.
type EventKind string

// The kinds of events. A refused Open and a second Close are none.
const (
	EventOpen    EventKind = "open"
	EventRun     EventKind = "run"     // when its turn came, before the script
	EventCommand EventKind = "command" // likewise
	EventReset   EventKind = "reset"
	EventClose   EventKind = "close"
)

// Open starts a scripted session.
func (f *Fake) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.Opening != nil {
		if err := f.Opening(ctx, spec); err != nil {
			return nil, err
		}
	}
	closed, end := context.WithCancelCause(context.Background())
	s := &fakeSession{fake: f, id: spec.ID, turn: make(chan struct{}, 1), closed: closed, end: end}
	if f.Workspaces != "" {
		dir := filepath.Join(f.Workspaces, filepath.Base(spec.ID))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		s.root = root
	}
	session := f.powers(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = make(map[*fakeSession]struct{})
	}
	f.open[s] = struct{}{}
	f.events = append(f.events, Event{Kind: EventOpen, Session: spec.ID, Lazy: spec.Lazy})
	return session, nil
}

// powers is s with the optional interfaces that its Fake is to have.
func (f *Fake) powers(s *fakeSession) sandbox.Session {
	switch {
	case f.Workspaces != "" && f.Commands != nil:
		return &fakeFilesCommands{&fakeFiles{s}}
	case f.Workspaces != "":
		return &fakeFiles{s}
	case f.Commands != nil:
		return &fakeCommands{s}
	}
	return s
}

// String is the Fake's wall.
func (f *Fake) String() string {
	if f.Wall == "" {
		return "fake"
	}
	return f.Wall
}

// Events are what was asked so far, in order. An optional list of kinds narrows
// it to these.
func (f *Fake) Events(kinds ...EventKind) []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Event
	for _, e := range f.events {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// Live are the ids of the sessions that are open now, sorted.
func (f *Fake) Live() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.open))
	for s := range f.open {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	return ids
}

func (f *Fake) record(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

type fakeSession struct {
	fake   *Fake
	id     string
	turn   chan struct{} // holds one token while a call or a reset is running
	closed context.Context
	end    context.CancelCauseFunc
	once   sync.Once
	root   *os.Root

	n     int // calls so far; owned by the turn
	since int // calls since Open or Reset; owned by the turn
}

// take waits for the turn.
func (s *fakeSession) take(ctx context.Context) error {
	if s.closed.Err() != nil {
		return sandbox.ErrClosed
	}
	select {
	case s.turn <- struct{}{}:
	case <-s.closed.Done():
		return sandbox.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.closed.Err() != nil { // both were ready
		<-s.turn
		return sandbox.ErrClosed
	}
	return nil
}

func (s *fakeSession) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return s.call(ctx, req.Code, func(ctx context.Context) (sandbox.Result, error) {
		s.since++
		s.fake.record(Event{Kind: EventRun, Session: s.id, N: s.n, Request: req})
		if s.fake.Script != nil {
			return s.fake.Script(ctx, s.id, s.n, req)
		}
		state := sandbox.StateKept
		if s.since == 1 {
			state = sandbox.StateNew
		}
		return sandbox.Result{Status: sandbox.StatusOK, State: state, Backend: "local", Code: req.Code}, nil
	})
}

func (s *fakeSession) runCommand(ctx context.Context, req sandbox.CommandRequest) (sandbox.Result, error) {
	return s.call(ctx, req.Command, func(ctx context.Context) (sandbox.Result, error) {
		s.fake.record(Event{Kind: EventCommand, Session: s.id, N: s.n, Command: req})
		return s.fake.Commands(ctx, s.id, s.n, req)
	})
}

// call asks a script in the session's turn.
func (s *fakeSession) call(ctx context.Context, code string, script func(context.Context) (sandbox.Result, error)) (sandbox.Result, error) {
	if err := s.take(ctx); err != nil {
		if ctx.Err() != nil && err == ctx.Err() {
			return sandbox.Result{
				Status: sandbox.StatusCancelled, ExitCode: sandbox.StatusCancelled.ExitCode(),
				State: sandbox.StateNone, Backend: "local", Code: code,
			}, err
		}
		return sandbox.Result{}, err
	}
	defer func() { <-s.turn }()
	s.n++
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.closed, func() { cancel(sandbox.ErrClosed) })
	defer stop()
	res, err := script(ctx)
	if s.closed.Err() != nil {
		return sandbox.Result{}, sandbox.ErrClosed
	}
	return res, err
}

func (s *fakeSession) Reset(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	s.since = 0
	s.fake.record(Event{Kind: EventReset, Session: s.id})
	return nil
}

func (s *fakeSession) Close() error {
	s.end(sandbox.ErrClosed)
	s.turn <- struct{}{} // a running call has ended
	defer func() { <-s.turn }()
	var err error
	s.once.Do(func() {
		s.fake.mu.Lock()
		delete(s.fake.open, s)
		s.fake.events = append(s.fake.events, Event{Kind: EventClose, Session: s.id})
		s.fake.mu.Unlock()
		if s.root != nil {
			err = s.root.Close()
		}
	})
	return err
}

// fakeFiles is a fakeSession with the power of sandbox.Files.
type fakeFiles struct{ *fakeSession }

func (s *fakeFiles) Root() *os.Root { return s.root }

// StoreFile holds all of it in memory first, and knows no limit.
func (s *fakeFiles) StoreFile(_ context.Context, name string, size int64, r io.Reader) (sandbox.File, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return sandbox.File{}, err
	}
	if err := s.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return sandbox.File{}, err
	}
	return sandbox.File{Path: name, Size: int64(len(b))}, s.root.WriteFile(name, b, 0o644)
}

// fakeCommands is a fakeSession with the power of sandbox.CommandRunner.
type fakeCommands struct{ *fakeSession }

func (s *fakeCommands) RunCommand(ctx context.Context, req sandbox.CommandRequest) (sandbox.Result, error) {
	return s.runCommand(ctx, req)
}

// fakeFilesCommands has both powers.
type fakeFilesCommands struct{ *fakeFiles }

func (s *fakeFilesCommands) RunCommand(ctx context.Context, req sandbox.CommandRequest) (sandbox.Result, error) {
	return s.runCommand(ctx, req)
}
