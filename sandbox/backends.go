package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Names of the backends, as a Result and a Request have them.
const (
	BackendLocal    = "local"
	BackendWorkload = "workload"
)

// Placer is a power that a Sandbox may have besides: sessions whose workspace is
// another one's.
type Placer interface {
	Sandbox
	// OpenIn is Open for a session whose files are kept in step with a workspace
	// that the caller owns, and closes after the session.
	OpenIn(ctx context.Context, spec Spec, workspace *os.Root) (Session, error)
}

// Backends is a Sandbox of two: in each session Python runs on one of them, for
// good, which the session's first Python call decides; commands run locally,
// over the local workspace. None stands in for the other. It is safe for
// concurrent use, and owns neither.
//
// Its sessions can be hibernated, but what a remote interpreter remembers can't
// be saved: the next call says that it is lost. Such sessions do not outlive the
// server either.
type Backends struct {
	Local   Sandbox // also holds the workspaces, and runs the commands
	Remote  Placer
	Default string // where a session's first call names none: BackendLocal or BackendWorkload
}

var (
	_ Sandbox       = (*Backends)(nil)
	_ Keeper        = keptBackends{}
	_ Session       = (*routed)(nil)
	_ CommandRunner = (*routed)(nil)
	_ Files         = (*routed)(nil)
	_ FileStore     = (*routed)(nil)
	_ Outputs       = (*routed)(nil)
	_ Hibernator    = (*routed)(nil)
)

// Sandbox is b, as a Keeper where its local half is one.
func (b *Backends) Sandbox() Sandbox {
	if k, ok := b.Local.(Keeper); ok {
		return keptBackends{b, k}
	}
	return b
}

type keptBackends struct {
	*Backends
	Keeper
}

// String implements Sandbox.
func (b *Backends) String() string { return b.Local.String() + "\n" + b.Remote.String() }

// Open implements Sandbox. The workspace is there from now on; no interpreter is
// started before the first call, which decides where.
func (b *Backends) Open(ctx context.Context, spec Spec) (Session, error) {
	lazy := spec
	lazy.Lazy = true
	local, err := b.Local.Open(ctx, lazy)
	if err != nil {
		return nil, err
	}
	end, cancel := context.WithCancelCause(context.Background())
	s := &routed{b: b, spec: spec, local: local, turn: make(chan struct{}, 1), end: end, cancel: cancel}
	if b.kept(spec.ID) { // only local ones are
		s.backend = BackendLocal
	}
	return s, nil
}

// kept reports whether an earlier server left a session of this id.
func (b *Backends) kept(id string) bool {
	k, ok := b.Local.(Keeper)
	return ok && slices.ContainsFunc(k.Kept(), func(k Kept) bool { return k.ID == id })
}

// routed is a session of Backends.
type routed struct {
	b     *Backends
	spec  Spec
	local Session // holds the workspace and the outputs, of remote calls too

	turn   chan struct{} // holds one token while a call is under way
	end    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards what follows, which changes with the turn held alone
	backend string     // "" = no Python call yet
	remote  Session    // nil = not opened
	lost    string     // why the remote variables are gone; "" = they are not
	holds   bool       // there are remote variables to lose
}

// take takes a turn under a context that ends with the session too.
func (s *routed) take(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.end, func() { cancel(context.Cause(s.end)) })
	give := func() { stop(); cancel(nil) }
	select {
	case s.turn <- struct{}{}:
		if s.end.Err() != nil {
			<-s.turn
			give()
			return nil, nil, ErrClosed
		}
		return ctx, func() { <-s.turn; give() }, nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		give()
		return nil, nil, err
	}
}

// Run implements Session.
func (s *routed) Run(ctx context.Context, req Request) (Result, error) {
	if err := req.Check(); err != nil {
		return Result{}, err
	}
	ctx, give, err := s.take(ctx)
	if err != nil {
		return Result{}, err
	}
	defer give()
	backend, err := s.choose(req.Backend)
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	session, err := s.python(ctx, backend)
	if err != nil {
		return Result{Backend: backend}, err
	}
	opened := time.Since(start)
	s.mu.Lock()
	s.backend = backend
	s.mu.Unlock()
	res, err := session.Run(ctx, req)
	res.Backend = backend // beside an error too
	res.Provisioning += opened
	if backend == BackendWorkload {
		s.tell(&res)
	}
	return res, err
}

// choose is the backend of a call, or the refusal of another than the session's.
func (s *routed) choose(asked string) (string, error) {
	switch {
	case asked != "" && asked != BackendLocal && asked != BackendWorkload:
		return "", Invalid("the backend must be %s or %s; got %q", BackendLocal, BackendWorkload, asked)
	case s.backend == "" && asked == "":
		return s.b.Default, nil
	case s.backend == "":
		return asked, nil
	case asked != "" && asked != s.backend:
		return "", Invalid("this session's Python runs on the backend %s, where its variables are: leave backend out to go on there, or give session_id %q to use %s in a fresh session", s.backend, NewSession, asked)
	}
	return s.backend, nil
}

// python opens the session's interpreter where it is not open.
func (s *routed) python(ctx context.Context, backend string) (Session, error) {
	if backend == BackendLocal {
		return s.local, nil
	}
	if s.remote != nil {
		return s.remote, nil
	}
	files, ok := s.local.(Files)
	if !ok {
		return nil, fmt.Errorf("the local session has no workspace to share: %w", errors.ErrUnsupported)
	}
	remote, err := s.b.Remote.OpenIn(ctx, s.spec, files.Root())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.remote = remote
	s.mu.Unlock()
	return remote, nil
}

// tell puts into a remote result that earlier variables are gone, if they are.
func (s *routed) tell(res *Result) {
	if s.lost != "" && res.State == StateNew {
		res.State = StateLost
		res.Notes = append([]string{s.lost}, res.Notes...)
	}
	if res.State != "" {
		s.lost = ""
	}
	s.holds = res.State != StateNone && (s.holds || res.State != "")
}

// RunCommand implements CommandRunner.
func (s *routed) RunCommand(ctx context.Context, req CommandRequest) (Result, error) {
	ctx, give, err := s.take(ctx)
	if err != nil {
		return Result{}, err
	}
	defer give()
	runner, ok := s.local.(CommandRunner)
	if !ok {
		return Result{}, fmt.Errorf("this session runs code and no commands: %w", errors.ErrUnsupported)
	}
	return runner.RunCommand(ctx, req)
}

// Reset implements Session. The backend stays the same.
func (s *routed) Reset(ctx context.Context) error {
	ctx, give, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	s.lost, s.holds = "", false
	if s.remote != nil {
		err = s.remote.Reset(ctx)
	}
	return errors.Join(err, s.local.Reset(ctx)) // there may be variables that an earlier server left
}

// Root implements Files. nil where the local half has none.
func (s *routed) Root() *os.Root {
	if files, ok := s.local.(Files); ok {
		return files.Root()
	}
	return nil
}

// StoreFile implements FileStore. A remote interpreter sees the file from its next call on.
func (s *routed) StoreFile(ctx context.Context, path string, size int64, r io.Reader) (File, error) {
	if store, ok := s.local.(FileStore); ok {
		return store.StoreFile(ctx, path, size, r)
	}
	return File{}, fmt.Errorf("the local session takes no files: %w", errors.ErrUnsupported)
}

// Outputs implements Outputs.
func (s *routed) Outputs() []Output {
	if outputs, ok := s.local.(Outputs); ok {
		return outputs.Outputs()
	}
	return nil
}

// OpenOutput implements Outputs.
func (s *routed) OpenOutput(n int) (*os.File, Output, error) {
	if outputs, ok := s.local.(Outputs); ok {
		return outputs.OpenOutput(n)
	}
	return nil, Output{}, fmt.Errorf("the session keeps no outputs: %w", fs.ErrNotExist)
}

// KeepOutput implements Outputs.
func (s *routed) KeepOutput(name string, data []byte) (Output, error) {
	if outputs, ok := s.local.(Outputs); ok {
		return outputs.KeepOutput(name, data)
	}
	return Output{}, fmt.Errorf("the session keeps no outputs: %w", errors.ErrUnsupported)
}

// Hibernate implements Hibernator.
func (s *routed) Hibernate(ctx context.Context) error {
	ctx, give, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if h, ok := s.local.(Hibernator); ok {
		if err := h.Hibernate(ctx); err != nil {
			return err
		}
	}
	return s.endRemote("the session was not used for some time, and its remote interpreter, whose variables can't be saved, was ended")
}

// Shed implements Hibernator.
func (s *routed) Shed(why string) error {
	_, give, err := s.take(context.Background())
	if err != nil {
		return err
	}
	defer give()
	err = s.endRemote(why)
	if h, ok := s.local.(Hibernator); ok {
		err = errors.Join(err, h.Shed(why))
	}
	return err
}

// endRemote closes the remote half. The turn is held.
func (s *routed) endRemote(why string) error {
	if s.remote == nil {
		return nil
	}
	err := s.remote.Close()
	s.mu.Lock()
	s.remote = nil
	s.mu.Unlock()
	if s.holds {
		s.lost = why
	}
	s.holds = false
	return err
}

// Leave implements Hibernator. A session whose variables are remote ends with the
// server: the next one could not say truthfully what became of them.
func (s *routed) Leave() error {
	h, ok := s.local.(Hibernator)
	if s.backend == BackendWorkload || !ok {
		return s.Close()
	}
	s.cancel(ErrClosed)
	return h.Leave()
}

// Close implements Session.
func (s *routed) Close() error {
	s.cancel(ErrClosed)
	s.mu.Lock()
	remote := s.remote
	s.mu.Unlock()
	var errs []error
	if remote != nil {
		errs = append(errs, remote.Close())
	}
	errs = append(errs, s.local.Close())
	s.turn <- struct{}{} // no call is under way any more: what it opened is closed here
	defer func() { <-s.turn }()
	if s.remote != nil {
		errs = append(errs, s.remote.Close())
	}
	return errors.Join(errs...)
}
