package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// sessionPrograms: Reset, Close, turns, the end of a caller's patience.
func sessionPrograms() []program {
	return []program{
		{name: "Reset forgets", fresh: true, steps: []step{
			{code: "x = 41\nopen('kept.txt', 'w').write('k')\nimport os\nos.environ['X'] = '1'\nos.chdir('/')", output: anything},
			{code: "import os\n[x for x in ('x',) if x in globals()] + [os.environ.get('X'), open('kept.txt').read()]", reset: true, output: `[null,"k"]`},
			{code: "1", output: "1"},
			{code: "2", reset: true, output: "2"},
		}},
		{name: "Reset before the first call", fresh: true, steps: []step{{code: "1", reset: true, output: "1"}}},
		{name: "Reset ends all processes", needs: []Ability{Processes, Tracing}, fresh: true, steps: []step{
			{code: "import subprocess\np = subprocess.Popen(['sleep', '" + leftover + "'], start_new_session=True)"},
			{code: leftovers, reset: true, output: "[]"},
		}},
		{name: "Reset within a call's time", do: resetTurns},
		{name: "turns", do: turns},
		{name: "sessions side by side", do: sideBySide},
		{name: "cancel", do: cancelled},
		{name: "cancel of code that won't", do: cancelledHard},
		{name: "cancel while waiting", do: cancelledWaiting},
		{name: "cancelled before it began", do: cancelledBefore},
		{name: "Close during Run", do: closeDuring},
		{name: "Close twice, and after it", do: closeTwice},
		{name: "Close of a session that never ran", do: func(t *testing.T, g *guest) {
			if err := g.s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}},
		{name: "refusals", do: refusals},
		{name: "what a Result says of itself", do: func(t *testing.T, g *guest) {
			r, took := g.call(t, sandbox.Request{Code: "import time\ntime.sleep(0.3)"})
			if r.Backend == "" {
				t.Error("no backend is named")
			}
			if r.Duration < 290*time.Millisecond || r.Duration > took {
				t.Errorf("duration %v of %v, want 300 ms", r.Duration, took)
			}
			if r.Code != "import time\ntime.sleep(0.3)" {
				t.Errorf("code is %q", r.Code)
			}
		}},
	}
}

// turns: calls made at the same time run one after another, each whole.
func turns(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "log = []\nimport time"})
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := g.s.Run(t.Context(), sandbox.Request{Code: fmt.Sprintf("log.append(%d)\nprint('out', %d)\ntime.sleep(0.01)\nlog.append(%d)\nlen(log)", i, i, i)})
			if err != nil || r.Status != sandbox.StatusOK || r.Stdout != fmt.Sprintf("out %d\n", i) || r.State != sandbox.StateKept {
				t.Errorf("call %d: %v, status %s, state %s, stdout %q, %s", i, err, r.Status, r.State, r.Stdout, r.Error)
			}
		})
	}
	wg.Wait()
	r, _ := g.call(t, sandbox.Request{Code: "log"})
	var log []int
	if err := json.Unmarshal(r.Output, &log); err != nil || len(log) != 2*n {
		t.Fatalf("log %s: %v", r.Output, err)
	}
	for i := 0; i < len(log); i += 2 {
		if log[i] != log[i+1] {
			t.Fatalf("calls interleave: %v", log)
		}
	}
}

func sideBySide(t *testing.T, g *guest) {
	other := g.open(t)
	var wg sync.WaitGroup
	for i, s := range []sandbox.Session{g.s, other} {
		wg.Go(func() {
			if r, err := s.Run(t.Context(), sandbox.Request{Code: fmt.Sprintf("who = %d\nopen('who', 'w').write(str(who))", i)}); err != nil || !r.Success() {
				t.Errorf("session %d: %v, %s", i, err, r.Error)
			}
			r, err := s.Run(t.Context(), sandbox.Request{Code: "[who, open('who').read()]"})
			if want := fmt.Sprintf(`[%d,"%d"]`, i, i); err != nil || !same(r.Output, want) {
				t.Errorf("session %d: %v, %s, want %s", i, err, r.Output, want)
			}
		})
	}
	wg.Wait()
	// One that is busy delays no other.
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { _, _ = g.s.Run(ctx, sandbox.Request{Code: "while True: pass"}) })
	time.Sleep(200 * time.Millisecond)
	start := time.Now()
	if r, err := other.Run(t.Context(), sandbox.Request{Code: "who"}); err != nil || string(r.Output) != "1" {
		t.Errorf("beside a busy session: %v, %s", err, r.Output)
	}
	if took := time.Since(start); took > late {
		t.Errorf("a busy session delayed another by %v", took)
	}
	cancel()
	wg.Wait()
}

func resetTurns(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 1"})
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := g.s.Run(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(0.8)\nx + 1"}); err != nil || string(r.Output) != "2" {
			t.Errorf("the call that Reset waited for: %v, %s, %s", err, r.Output, r.Error)
		}
	})
	time.Sleep(300 * time.Millisecond)
	if err := g.s.Reset(t.Context()); err != nil {
		t.Errorf("Reset: %v", err)
	}
	wg.Wait()
	g.ran = false
	g.step(t, 1, step{code: "'x' in globals()", output: "false"})
}

// cancelled: the end of ctx interrupts the code and keeps the variables.
func cancelled(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 41"})
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(500*time.Millisecond, cancel)
			return ctx, cancel
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 500*time.Millisecond)
		},
	} {
		ctx, cancel := end(t.Context())
		start := time.Now()
		r, err := g.s.Run(ctx, sandbox.Request{Code: "print('before')\nimport time\ntime.sleep(1000)", Timeout: time.Minute})
		took := time.Since(start)
		if !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
			t.Errorf("%s: error %v, want %v", name, err, ctx.Err())
		}
		cancel()
		t.Logf("%s: returned after %v", name, took)
		if took > 500*time.Millisecond+late {
			t.Errorf("%s: took %v", name, took)
		}
		if r.Status != sandbox.StatusCancelled || r.ExitCode != 130 || r.State != sandbox.StateKept || r.Stdout != "before\n" {
			t.Errorf("%s: status %s, exit code %d, state %s, stdout %q; want cancelled, 130, kept", name, r.Status, r.ExitCode, r.State, r.Stdout)
		}
		wellFormed(t, r)
		g.step(t, 1, step{code: "x + 1", output: "42"})
	}
}

func cancelledHard(t *testing.T, g *guest) {
	g.mark(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	r, err := g.s.Run(ctx, sandbox.Request{Code: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass", Timeout: time.Minute})
	if !errors.Is(err, context.DeadlineExceeded) || r.Status != sandbox.StatusCancelled {
		t.Errorf("error %v, status %s", err, r.Status)
	}
	if took := time.Since(start); took > late {
		t.Errorf("took %v", took)
	}
	g.ran = r.State != sandbox.StateLost
	g.truth(t, 0, r.State)
}

// cancelledWaiting: who gives up before his turn has run nothing.
func cancelledWaiting(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = []\nimport time"})
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := g.s.Run(t.Context(), sandbox.Request{Code: "time.sleep(2)"}); err != nil || !r.Success() {
			t.Errorf("the call before: %v, %s", err, r.Error)
		}
	})
	time.Sleep(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := g.s.Run(ctx, sandbox.Request{Code: "x.append(1)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 1500*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
	wg.Wait()
	g.step(t, 1, step{code: "x", output: "[]"})
}

func cancelledBefore(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = []"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.s.Run(ctx, sandbox.Request{Code: "import time\ntime.sleep(5)\nx.append(1)"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	g.step(t, 1, step{code: "x", output: "[]"})
}

func closeDuring(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 1"})
	done := make(chan error, 2)
	for range 2 { // one that runs, and one that waits
		go func() {
			_, err := g.s.Run(context.WithoutCancel(t.Context()), sandbox.Request{Code: "while True:\n    try:\n        while True: pass\n    except BaseException: pass", Timeout: time.Minute})
			done <- err
		}()
	}
	time.Sleep(400 * time.Millisecond)
	start := time.Now()
	if err := g.s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	t.Logf("Close took %v", time.Since(start))
	for range 2 {
		select {
		case err := <-done:
			if !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("Run returned %v, want ErrClosed", err)
			}
		case <-time.After(late):
			t.Fatal("Run has not returned though Close has")
		}
	}
}

func closeTwice(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 1"})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := g.s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	if err := g.s.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if _, err := g.s.Run(t.Context(), sandbox.Request{Code: "x"}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Run after Close: %v, want ErrClosed", err)
	}
	if err := g.s.Reset(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Reset after Close: %v, want ErrClosed", err)
	}
}

// refusals: what can't be run is refused before anything happens.
func refusals(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 41"})
	for name, req := range map[string]sandbox.Request{
		"no code":           {},
		"too much code":     {Code: strings.Repeat("#", sandbox.MaxCode+1)},
		"a negative limit":  {Code: "x = 0", Timeout: -1},
		"too many inputs":   {Code: "x = 0", Inputs: map[string]any{"s": strings.Repeat("s", sandbox.MaxInputs+1)}},
		"inputs of no JSON": {Code: "x = 0", Inputs: map[string]any{"c": make(chan int)}},
	} {
		_, err := g.s.Run(t.Context(), req)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Status != sandbox.StatusInvalid {
			t.Errorf("%s: %v, want an error of status invalid", name, err)
		}
		if errors.Is(err, sandbox.ErrInfra) {
			t.Errorf("%s counts as the sandbox's fault", name)
		}
	}
	g.step(t, 1, step{code: "x + 1", output: "42"})
	g.step(t, 2, step{code: "#" + strings.Repeat("x", sandbox.MaxCode-2) + "\n"})
}
