package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

func TestVisit(t *testing.T) {
	running, end := make(chan struct{}), make(chan struct{})
	fake := &sandboxtest.Fake{Workspaces: t.TempDir(), Script: func(ctx context.Context, _ string, n int, _ sandbox.Request) (sandbox.Result, error) {
		if n == 2 {
			close(running)
			<-end
		}
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
	}}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: fake})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	ann, bob := sandbox.Caller{Principal: "ann", Connection: "1"}, sandbox.Caller{Principal: "bob"}
	look := func(who sandbox.Caller, id string) error {
		return sessions.Visit(t.Context(), who, id, func(_ context.Context, s sandbox.Session) error {
			_, err := s.(sandbox.Files).Root().Stat(".")
			return err
		})
	}
	if sessions.Own(ann) != "" {
		t.Error("a session before any call")
	}
	_, id, err := sessions.Run(t.Context(), ann, "", sandbox.Request{Code: "1"})
	if err != nil || sessions.Own(ann) != id || sessions.Own(bob) != "" {
		t.Fatalf("%s, %v", id, err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _, _ = sessions.Run(context.Background(), ann, id, sandbox.Request{Code: "2"})
	}()
	<-running
	if err := look(sandbox.Caller{Principal: "ann"}, id); err != nil { // during a call, over another connection
		t.Error(err)
	}
	close(end)
	<-over
	want := look(bob, id)
	for name, err := range map[string]error{
		"a stranger's": want, "none": look(ann, ""), "new": look(ann, sandbox.NewSession), "malformed": look(ann, "../x"),
	} {
		if !errors.Is(err, sandbox.ErrUnknownSession) || err.Error() != want.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
	fresh, err := sessions.Begin(t.Context(), bob)
	if err != nil || look(bob, fresh) != nil || !errors.Is(look(ann, fresh), sandbox.ErrUnknownSession) {
		t.Errorf("%s, %v", fresh, err)
	}
	if e := fake.Events(sandboxtest.EventOpen); len(e) != 2 || !e[1].Lazy {
		t.Errorf("%+v", e)
	}
	// The end of a session ends the visit, which hears no more than any stranger.
	err = sessions.Visit(t.Context(), ann, id, func(ctx context.Context, _ sandbox.Session) error {
		go func() { _, _ = sessions.Reset(context.Background(), ann, id, true) }()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("it went on")
		}
	})
	if !errors.Is(err, sandbox.ErrUnknownSession) {
		t.Error(err)
	}
}
