package sandbox_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// placer is a Fake whose sessions are opened over another one's workspace.
type placer struct {
	*sandboxtest.Fake
	roots *[]*os.Root
}

func (p placer) OpenIn(ctx context.Context, spec sandbox.Spec, workspace *os.Root) (sandbox.Session, error) {
	*p.roots = append(*p.roots, workspace)
	return p.Open(ctx, spec)
}

func newBackends(t *testing.T, def string) (*sandbox.Backends, *sandboxtest.Fake, placer) {
	t.Helper()
	answer := func(name string) func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
		return func(ctx context.Context, _ string, n int, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "wait" {
				<-ctx.Done()
				return sandbox.Result{}, context.Cause(ctx)
			}
			state := sandbox.StateKept
			if n == 1 {
				state = sandbox.StateNew
			}
			return sandbox.Result{Status: sandbox.StatusOK, State: state, Backend: name}, nil
		}
	}
	local := &sandboxtest.Fake{
		Workspaces: t.TempDir(), Script: answer(sandbox.BackendLocal),
		Commands: func(context.Context, string, int, sandbox.CommandRequest) (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNone, Backend: sandbox.BackendLocal}, nil
		},
	}
	remote := placer{&sandboxtest.Fake{Script: answer(sandbox.BackendWorkload)}, new([]*os.Root)}
	return &sandbox.Backends{Local: local, Remote: remote, Default: def}, local, remote
}

func openRouted(t *testing.T, b *sandbox.Backends) sandbox.Session {
	t.Helper()
	s, err := b.Open(t.Context(), sandbox.Spec{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func opensOf(f *sandboxtest.Fake) (n int) {
	for _, e := range f.Events() {
		if e.Kind == sandboxtest.EventOpen {
			n++
		}
	}
	return n
}

func TestBackendIsFixedByTheFirstCall(t *testing.T) {
	for _, def := range []string{sandbox.BackendLocal, sandbox.BackendWorkload} {
		for _, asked := range []string{"", sandbox.BackendLocal, sandbox.BackendWorkload} {
			b, _, remote := newBackends(t, def)
			s := openRouted(t, b)
			want, other := asked, sandbox.BackendLocal
			if asked == "" {
				want = def
			}
			if want == other {
				other = sandbox.BackendWorkload
			}
			for _, again := range []string{asked, "", want} {
				if r, err := s.Run(t.Context(), sandbox.Request{Code: "1", Backend: again}); err != nil || r.Backend != want {
					t.Errorf("default %s, asked for %q, then %q: %+v, %v", def, asked, again, r, err)
				}
			}
			_, err := s.Run(t.Context(), sandbox.Request{Code: "1", Backend: other})
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Status != sandbox.StatusInvalid || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in a session of %s: %v", other, want, err)
			}
			if n := opensOf(remote.Fake); (n == 1) != (want == sandbox.BackendWorkload) || n > 1 {
				t.Errorf("%d remote sessions for %s", n, want)
			}
			if want == sandbox.BackendWorkload && (*remote.roots)[0] != s.(sandbox.Files).Root() {
				t.Error("the remote session has another workspace")
			}
		}
	}
}

// A backend that fails is no reason to use the other.
func TestBackendsDoNotStandIn(t *testing.T) {
	b, local, remote := newBackends(t, sandbox.BackendWorkload)
	remote.Opening = func(context.Context, sandbox.Spec) error { return sandbox.ErrInfra }
	s := openRouted(t, b)
	if r, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrInfra) || r.Backend != sandbox.BackendWorkload {
		t.Errorf("%+v, %v", r, err)
	}
	for _, e := range local.Events() {
		if e.Kind == sandboxtest.EventRun {
			t.Error("it ran locally")
		}
	}
	if _, err := s.Run(t.Context(), sandbox.Request{Code: "1", Backend: "cloud"}); err == nil {
		t.Error("an unknown backend is taken")
	}
}

func TestBackendsHibernate(t *testing.T) {
	b, _, _ := newBackends(t, sandbox.BackendWorkload)
	s := openRouted(t, b)
	if r, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); err != nil || r.State != sandbox.StateNew {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := s.(sandbox.Hibernator).Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Run(t.Context(), sandbox.Request{Code: "1"})
	if err != nil || r.State != sandbox.StateLost || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "remote interpreter") {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); err != nil || r.State != sandbox.StateKept || len(r.Notes) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestBackendsCommandsAndEnd(t *testing.T) {
	b, local, remote := newBackends(t, sandbox.BackendWorkload)
	s := openRouted(t, b)
	p, err := allowlist.Parse("ls")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.(sandbox.CommandRunner).RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: p}); err != nil || r.Backend != sandbox.BackendLocal {
		t.Errorf("%+v, %v", r, err)
	}
	if opensOf(local) != 1 || opensOf(remote.Fake) != 0 {
		t.Errorf("%d local, %d remote sessions for a command", opensOf(local), opensOf(remote.Fake))
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), sandbox.Request{Code: "wait"})
		done <- err
	}()
	for opensOf(remote.Fake) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Run during Close: %v", err)
	}
	if _, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

// keeping is a Fake whose sessions keep outputs, as files of a directory.
type keeping struct {
	*sandboxtest.Fake
	dir string
}

func (k keeping) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	s, err := k.Fake.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &keepingSession{s, s.(sandbox.Files), s.(sandbox.FileStore), k.dir, nil}, nil
}

type keepingSession struct {
	sandbox.Session
	sandbox.Files
	sandbox.FileStore
	dir string
	all []sandbox.Output
}

func (s *keepingSession) Outputs() []sandbox.Output { return s.all }

func (s *keepingSession) OpenOutput(n int) (*os.File, sandbox.Output, error) {
	f, err := os.Open(filepath.Join(s.dir, s.all[n-1].Name))
	return f, s.all[n-1], err
}

func (s *keepingSession) KeepOutput(name string, data []byte) (sandbox.Output, error) {
	s.all = append(s.all, sandbox.Output{N: len(s.all) + 1, Name: name, Size: int64(len(data))})
	return s.all[len(s.all)-1], os.WriteFile(filepath.Join(s.dir, name), data, 0o600)
}

// The local half keeps files and outputs, wherever Python runs, and before it runs.
func TestBackendsKeepFilesAndOutputs(t *testing.T) {
	b, local, remote := newBackends(t, sandbox.BackendWorkload)
	b.Local = keeping{local, t.TempDir()}
	remote.Script = func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew, Displays: []sandbox.Display{
			{MIME: "text/html", Original: []byte("<table>"), OriginalMIME: "text/html"},
		}}, nil
	}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: b})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	who := sandbox.Caller{Principal: "p"}
	id, err := sessions.Begin(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	visit := func(do func(sandbox.Session) error) {
		t.Helper()
		if err := sessions.Visit(t.Context(), who, id, func(_ context.Context, s sandbox.Session) error { return do(s) }); err != nil {
			t.Error(err)
		}
	}
	visit(func(s sandbox.Session) error {
		if _, err := s.(sandbox.FileStore).StoreFile(t.Context(), "in.csv", 3, strings.NewReader("a,b")); err != nil {
			return err
		}
		data, err := s.(sandbox.Files).Root().ReadFile("in.csv")
		if string(data) != "a,b" {
			t.Errorf("stored %q", data)
		}
		return err
	})
	if n := opensOf(remote.Fake); n != 0 {
		t.Errorf("%d remote sessions for a file", n)
	}
	res, _, err := sessions.Run(t.Context(), who, id, sandbox.Request{Code: "1"})
	if err != nil || len(res.Displays) != 1 || res.Displays[0].URI != sandbox.OutputURI(id, 1) {
		t.Fatalf("%+v, %v", res, err)
	}
	visit(func(s sandbox.Session) error {
		f, out, err := s.(sandbox.Outputs).OpenOutput(1)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if string(data) != "<table>" || out.Name != "display-1.html" || len(s.(sandbox.Outputs).Outputs()) != 1 {
			t.Errorf("%+v: %q", out, data)
		}
		return err
	})
}

// Where nothing keeps what a display was before it was made to fit, the result says so.
func TestOriginalsThatAreNotKeptAreTold(t *testing.T) {
	fake := &sandboxtest.Fake{Script: func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew, Displays: []sandbox.Display{
			{MIME: "image/png", Data: []byte("small"), Original: []byte("large"), OriginalMIME: "image/png", About: "scaled down from 9 x 9"},
			{MIME: "image/png", Data: []byte("as it was")},
		}}, nil
	}}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	res, _, err := sessions.Run(t.Context(), sandbox.Caller{Principal: "p"}, "", sandbox.Request{Code: "1"})
	if err != nil || len(res.Displays) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if d := res.Displays[0]; d.URI != "" || d.About != "scaled down from 9 x 9; the original could not be kept" {
		t.Errorf("%+v", d)
	}
	if d := res.Displays[1]; d.URI != "" || d.About != "" {
		t.Errorf("%+v", d)
	}
}
