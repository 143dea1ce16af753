package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"mcp-sandbox/sandbox"
)

func TestFakeZeroValue(t *testing.T) {
	var f Fake
	s, err := f.Open(t.Context(), sandbox.Spec{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var states []sandbox.State
	for i := range 4 {
		if i == 2 {
			if err := s.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Run(t.Context(), sandbox.Request{Code: "x"})
		if err != nil || !r.Success() {
			t.Fatalf("Run: %+v, %v", r, err)
		}
		states = append(states, r.State)
	}
	want := []sandbox.State{sandbox.StateNew, sandbox.StateKept, sandbox.StateNew, sandbox.StateKept}
	if !slices.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	if live := f.Live(); !slices.Equal(live, []string{"a"}) {
		t.Errorf("live %v", live)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Run(t.Context(), sandbox.Request{}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
	var kinds []EventKind
	for _, e := range f.Events() {
		kinds = append(kinds, e.Kind)
	}
	wantKinds := []EventKind{EventOpen, EventRun, EventRun, EventReset, EventRun, EventRun, EventClose}
	if !slices.Equal(kinds, wantKinds) {
		t.Errorf("events %v, want %v", kinds, wantKinds)
	}
	if len(f.Live()) != 0 {
		t.Errorf("still live: %v", f.Live())
	}
}

func TestFakeBlocksTakesTurnsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Script: func(ctx context.Context, _ string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			<-ctx.Done()
			return sandbox.Result{Status: sandbox.StatusCancelled}, ctx.Err()
		}}
		s, _ := f.Open(t.Context(), sandbox.Spec{ID: "a"})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() {
				c := t.Context()
				if i == 0 {
					c = ctx
				}
				_, errs[i] = s.Run(c, sandbox.Request{})
			})
			synctest.Wait()
			if got := len(f.Events(EventRun)); got != 1 {
				t.Fatalf("%d calls run at a time", got)
			}
		}
		cancel()
		synctest.Wait()
		if got := len(f.Events(EventRun)); got != 2 {
			t.Fatalf("%d calls began after the first was cancelled, want 2", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], sandbox.ErrClosed) || !errors.Is(errs[2], sandbox.ErrClosed) {
			t.Errorf("errors %v", errs)
		}
	})
}

func TestFakeFiles(t *testing.T) {
	f := &Fake{Workspaces: t.TempDir()}
	s, err := f.Open(t.Context(), sandbox.Spec{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(filepath.Join(f.Workspaces, "a", "f"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := s.(sandbox.Files).Root().ReadFile("f")
	if err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, ok := any(new(fakeSession)).(sandbox.Files); ok {
		t.Error("a session without a workspace has the power Files")
	}
}

func TestFakeCommands(t *testing.T) {
	f := &Fake{Commands: func(_ context.Context, session string, n int, req sandbox.CommandRequest) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNone, Stdout: fmt.Sprint(session, n, req.Command)}, nil
	}}
	s, err := f.Open(t.Context(), sandbox.Spec{ID: "a", Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.(sandbox.CommandRunner).RunCommand(t.Context(), sandbox.CommandRequest{Command: "ls"}); err != nil || r.Stdout != "a1ls" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.Run(t.Context(), sandbox.Request{Code: "x"}); err != nil || r.State != sandbox.StateNew {
		t.Errorf("the first code after a command: %+v, %v", r, err)
	}
	if e := f.Events(EventOpen, EventCommand); len(e) != 2 || !e[0].Lazy || e[1].Command.Command != "ls" {
		t.Errorf("events %+v", e)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.(sandbox.CommandRunner).RunCommand(t.Context(), sandbox.CommandRequest{}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	f.Workspaces = t.TempDir()
	both, err := f.Open(t.Context(), sandbox.Spec{ID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if _, ok := both.(sandbox.CommandRunner); !ok || both.(sandbox.Files).Root() == nil {
		t.Error("a session with a workspace and commands lacks one of the powers")
	}
	if _, ok := any(new(fakeSession)).(sandbox.CommandRunner); ok {
		t.Error("a session without commands has the power CommandRunner")
	}
}
