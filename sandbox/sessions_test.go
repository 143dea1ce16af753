package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

var (
	ann = sandbox.Caller{Principal: "ann", Connection: "a"}
	bob = sandbox.Caller{Principal: "bob", Connection: "b"}
)

// opened makes Sessions, and ends them with the test.
func opened(t *testing.T, cfg sandbox.SessionsConfig) *sandbox.Sessions {
	t.Helper()
	s, err := sandbox.NewSessions(cfg)
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

// books makes Sessions over fake, and ends them with the test.
func books(t *testing.T, cfg sandbox.SessionsConfig, script func(context.Context, string, int, sandbox.Request) (sandbox.Result, error)) (*sandbox.Sessions, *sandboxtest.Fake) {
	t.Helper()
	fake := &sandboxtest.Fake{Script: script}
	cfg.Sandbox = fake
	return opened(t, cfg), fake
}

func run(t *testing.T, s *sandbox.Sessions, who sandbox.Caller, id string) (sandbox.Result, string) {
	t.Helper()
	res, id, err := s.Run(t.Context(), who, id, sandbox.Request{Code: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return res, id
}

func TestWhoseSessionItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{}, nil)
		_, own := run(t, s, ann, "")
		if _, again := run(t, s, ann, ""); again != own {
			t.Errorf("a connection's second call went to %s, its first to %s", again, own)
		}
		_, other := run(t, s, ann, sandbox.NewSession)
		if other == own {
			t.Errorf("asked for a new session, got the connection's own")
		}
		if _, again := run(t, s, ann, ""); again != own {
			t.Errorf("a second session took the place of the connection's own")
		}
		if res, id := run(t, s, sandbox.Caller{Principal: "ann", Connection: "elsewhere"}, other); id != other || res.State != sandbox.StateKept {
			t.Errorf("the owner's other connection got %s in %s", res.State, id)
		}
		anonymous := sandbox.Caller{Principal: "carl"}
		_, first := run(t, s, anonymous, "")
		if _, second := run(t, s, anonymous, ""); first == second {
			t.Error("two callers without a connection share a session")
		}
		var texts []string
		for _, id := range []string{own, "nonsense", "00000000-0000-4000-8000-000000000000"} {
			_, _, err := s.Run(t.Context(), bob, id, sandbox.Request{Code: "1"})
			if !errors.Is(err, sandbox.ErrUnknownSession) {
				t.Fatalf("session %q given by a stranger: %v", id, err)
			}
			texts = append(texts, err.Error())
		}
		if texts[0] != texts[1] || texts[1] != texts[2] {
			t.Errorf("a stranger can tell a session that exists from one that doesn't: %q", texts)
		}
		if _, _, err := s.Run(t.Context(), sandbox.Caller{}, "", sandbox.Request{Code: "1"}); err == nil {
			t.Error("a caller without a name got a session")
		}
	})
}

func TestIdleAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := books(t, sandbox.SessionsConfig{Idle: time.Minute, MaxAge: 10 * time.Minute}, nil)
		_, id := run(t, s, ann, "")
		time.Sleep(50 * time.Second)
		run(t, s, ann, "") // starts the idle clock again
		time.Sleep(50 * time.Second)
		if res, again := run(t, s, ann, ""); again != id || res.State != sandbox.StateKept {
			t.Errorf("a session in use ended: %s, %s", again, res.State)
		}
		time.Sleep(2 * time.Minute)
		res, next := run(t, s, ann, "")
		if next == id || res.State != sandbox.StateLost || len(res.Notes) == 0 || !strings.Contains(res.Notes[0], "idle for 1m0s") {
			t.Errorf("after its idle time: %s, %s, %q", next, res.State, res.Notes)
		}
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateKept || len(res.Notes) != 0 {
			t.Errorf("the loss was told twice: %s, %q", res.State, res.Notes)
		}
		if _, _, err := s.Run(t.Context(), ann, id, sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("an expired id: %v", err)
		}
		for range 15 { // always in use, but too old
			time.Sleep(45 * time.Second)
			res, _ = run(t, s, ann, "")
		}
		if n := len(fake.Events(sandboxtest.EventClose)); n != 2 {
			t.Errorf("%d sessions have ended; one of idleness and one of age were to", n)
		}
	})
}

func TestRunningCallIsNeverSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{Idle: time.Second, MaxAge: time.Second}, func(ctx context.Context, _ string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			time.Sleep(time.Hour)
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, ctx.Err()
		})
		if res, _ := run(t, s, ann, ""); !res.Success() {
			t.Errorf("swept in the middle of a call: %+v", res)
		}
	})
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 3}, func(_ context.Context, id string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			n := inside.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			inside.Add(-1)
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
		})
		var wg sync.WaitGroup
		for i := range 10 {
			for range 2 {
				wg.Go(func() {
					run(t, s, sandbox.Caller{Principal: "ann", Connection: fmt.Sprint(i)}, "")
				})
			}
		}
		start := time.Now()
		wg.Wait()
		if most.Load() != 3 {
			t.Errorf("%d calls ran at once; 3 were allowed and possible", most.Load())
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("20 calls of a second, 3 at a time, took %v", d)
		}
	})
}

func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 1}, func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
			time.Sleep(time.Second)
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
		})
		var wg sync.WaitGroup
		start := time.Now()
		for range 10 {
			wg.Go(func() { run(t, s, sandbox.Caller{Principal: "ann"}, "") })
		}
		synctest.Wait()
		var waited time.Duration
		wg.Go(func() {
			run(t, s, bob, "")
			waited = time.Since(start)
		})
		wg.Wait()
		if waited > 3*time.Second {
			t.Errorf("bob waited %v behind ann's ten calls; he was to be the third at the latest", waited)
		}
	})
}

func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, fake := books(t, sandbox.SessionsConfig{MaxSessions: 2, MaxRunning: 2, MaxQueue: 1}, func(ctx context.Context, _ string, _ int, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "block" {
				<-release
			}
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
		})
		carl := sandbox.Caller{Principal: "carl", Connection: "c"}
		run(t, s, ann, "")
		time.Sleep(time.Second)
		run(t, s, bob, "")
		run(t, s, carl, "") // ann's was the longest idle
		synctest.Wait()
		if n := len(fake.Events(sandboxtest.EventClose)); n != 1 {
			t.Errorf("%d sessions were ended to make room for one", n)
		}
		res, _ := run(t, s, ann, "")
		if res.State != sandbox.StateLost {
			t.Errorf("ann's variables are gone, but her next result says %s", res.State)
		}
		var wg sync.WaitGroup
		for _, who := range []sandbox.Caller{ann, carl} {
			wg.Go(func() {
				if _, _, err := s.Run(context.Background(), who, "", sandbox.Request{Code: "block"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, _, err := s.Run(t.Context(), bob, "", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "try again") {
			t.Errorf("no session left, all in use: %v", err)
		}
		close(release)
		wg.Wait()
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 1, MaxQueue: 2}, func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
			<-release
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
		})
		results := make(chan error, 4)
		for range 4 {
			go func() {
				_, _, err := s.Run(context.Background(), sandbox.Caller{Principal: "ann"}, "", sandbox.Request{Code: "1"})
				results <- err
			}()
		}
		synctest.Wait()
		if err := <-results; !errors.Is(err, sandbox.ErrFull) {
			t.Errorf("one call ran and two waited; the fourth got %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := s.Run(ctx, bob, "", sandbox.Request{Code: "1"}); err == nil {
			t.Error("a caller that has gone got a result")
		}
		close(release)
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// A connection that ends takes nothing from who uses its session by the id.
func TestDisconnectEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{}, nil)
		_, id := run(t, s, ann, "")
		hold := make(chan struct{})
		s2, _ := books(t, sandbox.SessionsConfig{}, func(ctx context.Context, _ string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			select {
			case <-hold:
				return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
			case <-ctx.Done():
				return sandbox.Result{Status: sandbox.StatusCancelled, State: sandbox.StateKept}, ctx.Err()
			}
		})
		s.Disconnect(ann)
		if res, again := run(t, s, ann, id); res.State != sandbox.StateKept || again != id {
			t.Errorf("by its id, after the disconnect: %s in %s", res.State, again)
		}
		if res, fresh := run(t, s, ann, ""); fresh == id || res.State != sandbox.StateNew {
			t.Errorf("a connection of the same name: %s in %s", res.State, fresh)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancelled, others := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := s2.Run(ctx, ann, "", sandbox.Request{Code: "1"})
			cancelled <- err
		}()
		synctest.Wait()
		own := s2.List("ann")[0].ID
		go func() {
			_, _, err := s2.Run(t.Context(), sandbox.Caller{Principal: "ann", Connection: "another"}, own, sandbox.Request{Code: "1"})
			others <- err
		}()
		synctest.Wait()
		cancel()
		s2.Disconnect(ann)
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Errorf("the connection's own call: %v", err)
		}
		close(hold)
		if err := <-others; err != nil {
			t.Errorf("another's call in the session: %v", err)
		}
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := books(t, sandbox.SessionsConfig{}, nil)
		if _, err := s.Reset(t.Context(), ann, "", false); err != nil {
			t.Errorf("nothing to forget: %v", err)
		}
		_, id := run(t, s, ann, "")
		if got, err := s.Reset(t.Context(), ann, "", false); got != id || err != nil {
			t.Errorf("reset of %s: %s, %v", id, got, err)
		}
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateNew {
			t.Errorf("after a reset: %s", res.State)
		}
		if got, err := s.Reset(t.Context(), ann, id, true); got != id || err != nil {
			t.Errorf("close of %s: %s, %v", id, got, err)
		}
		if res, next := run(t, s, ann, ""); next == id || res.State != sandbox.StateNew {
			t.Errorf("after a close that was asked for: %s in %s", res.State, next)
		}
		if n := len(fake.Events(sandboxtest.EventClose)); n != 1 {
			t.Errorf("%d sessions were closed", n)
		}
	})
}

func TestCloseEndsCallsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := books(t, sandbox.SessionsConfig{}, func(ctx context.Context, _ string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // tidying up
			return sandbox.Result{}, sandbox.ErrClosed
		})
		got := make(chan error, 1)
		go func() {
			_, _, err := s.Run(context.Background(), ann, "", sandbox.Request{Code: "1"})
			got <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-got:
			if !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("the running call got %v", err)
			}
		default:
			t.Error("Close did not wait for the running call")
		}
		if n := len(fake.Live()); n != 0 {
			t.Errorf("%d sessions are open after Close", n)
		}
		if _, _, err := s.Run(context.Background(), ann, "", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestBadConfigIsRefusedWhole(t *testing.T) {
	_, err := sandbox.NewSessions(sandbox.SessionsConfig{Idle: -1, MaxSessions: -1})
	for _, want := range []string{"no sandbox", "session-idle", "max-sessions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestRequestsThatNothingCouldRun(t *testing.T) {
	s, _ := books(t, sandbox.SessionsConfig{}, nil)
	for name, req := range map[string]sandbox.Request{
		"no code":  {},
		"too long": {Code: strings.Repeat("x", sandbox.MaxCode+1)},
		"timeout":  {Code: "1", Timeout: -1},
	} {
		_, _, err := s.Run(t.Context(), ann, "", req)
		var refused *sandbox.Error
		if !errors.As(err, &refused) || refused.Status != sandbox.StatusInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// command is a line as the allowlist would have read it.
func command(name string) sandbox.CommandRequest {
	return sandbox.CommandRequest{
		Command:  name,
		Pipeline: &allowlist.Pipeline{Steps: []allowlist.Step{{Stages: []allowlist.Stage{{Name: name}}}}},
	}
}

// commanding makes Sessions over sessions that run commands.
func commanding(t *testing.T, cfg sandbox.SessionsConfig, script func(context.Context, string, int, sandbox.CommandRequest) (sandbox.Result, error)) (*sandbox.Sessions, *sandboxtest.Fake) {
	t.Helper()
	if script == nil {
		script = func(_ context.Context, _ string, _ int, req sandbox.CommandRequest) (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNone, Code: req.Command}, nil
		}
	}
	fake := &sandboxtest.Fake{Commands: script}
	cfg.Sandbox = fake
	return opened(t, cfg), fake
}

func TestCommandsShareTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := commanding(t, sandbox.SessionsConfig{}, nil)
		res, id, err := s.RunCommand(t.Context(), ann, "", command("ls"))
		if err != nil || !res.Success() || res.Code != "ls" {
			t.Fatalf("%+v, %v", res, err)
		}
		if opens := fake.Events(sandboxtest.EventOpen); len(opens) != 1 || !opens[0].Lazy {
			t.Errorf("a command opened %+v", opens)
		}
		if res, own := run(t, s, ann, ""); own != id || res.State != sandbox.StateNew {
			t.Errorf("the first code after a command is %s in %s, the command was in %s", res.State, own, id)
		}
		if _, again, err := s.RunCommand(t.Context(), ann, id, command("pwd")); again != id || err != nil {
			t.Errorf("by its id: %s, %v", again, err)
		}
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateKept {
			t.Errorf("a command changed the state to %s", res.State)
		}
		if _, _, err := s.RunCommand(t.Context(), bob, id, command("ls")); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("a stranger's: %v", err)
		}
		if _, fresh, err := s.RunCommand(t.Context(), ann, sandbox.NewSession, command("ls")); fresh == id || err != nil {
			t.Errorf("a new session: %s, %v", fresh, err)
		}
		_, code := run(t, s, bob, "")
		opens := fake.Events(sandboxtest.EventOpen)
		if last := opens[len(opens)-1]; last.Session != code || last.Lazy {
			t.Errorf("code opened %+v", last)
		}
	})
}

// What was lost is told to code: a command has no variables to miss.
func TestCommandsLeaveTheLossToCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := commanding(t, sandbox.SessionsConfig{Idle: time.Minute}, nil)
		ls := func() sandbox.Result {
			t.Helper()
			res, _, err := s.RunCommand(t.Context(), ann, "", command("ls"))
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		ls()
		time.Sleep(2 * time.Minute)
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateNew || len(res.Notes) != 0 {
			t.Errorf("where only commands ran nothing is lost: %s, %q", res.State, res.Notes)
		}
		for range 2 { // the session of these commands ends too before code comes
			time.Sleep(2 * time.Minute)
			if res := ls(); res.State != sandbox.StateNone || len(res.Notes) != 0 {
				t.Errorf("a command was told of variables: %s, %q", res.State, res.Notes)
			}
		}
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateLost || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "idle for 1m0s") {
			t.Errorf("the next code: %s, %q", res.State, res.Notes)
		}
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateKept || len(res.Notes) != 0 {
			t.Errorf("the loss was told twice: %s, %q", res.State, res.Notes)
		}
	})
}

func TestCommandsTakeTurnsWithCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := commanding(t, sandbox.SessionsConfig{MaxRunning: 1}, func(ctx context.Context, _ string, _ int, _ sandbox.CommandRequest) (sandbox.Result, error) {
			select {
			case <-time.After(time.Second):
				return sandbox.Result{Status: sandbox.StatusOK}, nil
			case <-ctx.Done():
				return sandbox.Result{Status: sandbox.StatusCancelled}, ctx.Err()
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := s.RunCommand(t.Context(), ann, "", command("ls")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		wg.Go(func() { run(t, s, ann, "") })
		wg.Go(func() { run(t, s, bob, "") }) // another session, but there is one place
		wg.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("code beside a command of a second took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if res, _, err := s.RunCommand(ctx, ann, "", command("tail")); !errors.Is(err, context.DeadlineExceeded) || res.Status != sandbox.StatusCancelled {
			t.Errorf("cancelled: %+v, %v", res, err)
		}
		got := make(chan error)
		go func() {
			_, _, err := s.RunCommand(context.Background(), ann, "", command("tail"))
			got <- err
		}()
		synctest.Wait()
		if _, err := s.Reset(t.Context(), ann, "", true); err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("closed during a command: %v", err)
		}
		if n := len(fake.Events(sandboxtest.EventCommand)); n != 3 {
			t.Errorf("%d commands ran", n)
		}
	})
}

func TestCommandsThatNothingCouldRun(t *testing.T) {
	s, _ := books(t, sandbox.SessionsConfig{}, nil)
	if _, id, err := s.RunCommand(t.Context(), ann, "", command("ls")); !errors.Is(err, errors.ErrUnsupported) || id == "" {
		t.Errorf("sessions without commands: %q, %v", id, err)
	}
	s, fake := commanding(t, sandbox.SessionsConfig{}, nil)
	negative := command("ls")
	negative.Timeout = -1
	for name, req := range map[string]sandbox.CommandRequest{
		"no pipeline":      {Command: "ls"},
		"an empty one":     {Pipeline: &allowlist.Pipeline{}},
		"an empty step":    {Pipeline: &allowlist.Pipeline{Steps: []allowlist.Step{{}}}},
		"a negative limit": negative,
	} {
		_, _, err := s.RunCommand(t.Context(), ann, "", req)
		var refused *sandbox.Error
		if !errors.As(err, &refused) || refused.Status != sandbox.StatusInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(fake.Events()) != 0 {
		t.Errorf("a session was opened for them: %+v", fake.Events())
	}
}
