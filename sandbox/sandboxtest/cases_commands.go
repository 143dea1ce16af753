package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// commandPrograms: what every sandbox.CommandRunner must do. Which lines are
// refused is package allowlist's affair; here they run.
func commandPrograms() []program {
	var all []program
	for _, p := range []program{
		{name: "results", do: commandResults},
		{name: "the variables are left alone", do: commandVariables},
		{name: "the workspace is read-only", needs: []Ability{Modes}, do: commandReadOnly},
		{name: "arguments are checked again", do: commandChecked},
		{name: "the time limit", do: commandTimeout},
		{name: "cancel", do: commandCancelled},
		{name: "cancel while waiting", do: commandCancelledWaiting},
		{name: "Close", do: commandClose},
		{name: "turns", do: commandTurns},
		{name: "the cap of output", do: commandCap},
		{name: "Progress", do: commandProgress},
		{name: "refusals", do: commandRefusals},
	} {
		p.needs = append(p.needs, Commands)
		all = append(all, p)
	}
	return all
}

// line is a command line as a request.
func line(t *testing.T, command string, timeout time.Duration) sandbox.CommandRequest {
	t.Helper()
	p, err := allowlist.Parse(command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return sandbox.CommandRequest{Pipeline: p, Command: command, Timeout: timeout}
}

// raw is one command that no allowlist has seen.
func raw(name string, args ...string) sandbox.CommandRequest {
	stage := allowlist.Stage{Name: name}
	for _, a := range args {
		stage.Args = append(stage.Args, allowlist.Arg{Text: a})
	}
	return sandbox.CommandRequest{Pipeline: &allowlist.Pipeline{Steps: []allowlist.Step{{Stages: []allowlist.Stage{stage}}}}}
}

// runner is the session's power.
func (g *guest) runner(t *testing.T) sandbox.CommandRunner {
	t.Helper()
	r, ok := g.s.(sandbox.CommandRunner)
	if !ok {
		t.Fatalf("%T is no CommandRunner, and nothing says that it lacks %s", g.s, Commands)
	}
	return r
}

// command runs a line that must not fail to run, whatever its status.
func (g *guest) command(t *testing.T, command string, timeout time.Duration) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), max(timeout, sandbox.DefaultTimeout)+4*late)
	defer cancel()
	r, err := g.runner(t).RunCommand(ctx, line(t, command, timeout))
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	commandFormed(t, command, r)
	return r
}

// commandFormed is what every Result of commands is.
func commandFormed(t *testing.T, command string, r sandbox.Result) {
	t.Helper()
	wellFormed(t, r)
	if r.State != sandbox.StateNone || r.Code != command || r.Backend == "" {
		t.Errorf("%s: state %s, code %q, backend %q; want none, the line, a name", command, r.State, r.Code, r.Backend)
	}
	if r.Output != nil || r.ReturnValue != nil {
		t.Errorf("%s: a command has no values, yet output is %s, return value %s", command, r.Output, r.ReturnValue)
	}
}

func commandVariables(t *testing.T, g *guest) {
	if r := g.command(t, "echo before", 0); r.Stdout != "before\n" {
		t.Errorf("before any code: %q", r.Stdout)
	}
	g.step(t, 0, step{code: "x = 41"}) // and its state is new
	g.command(t, "cat missing", 0)
	g.command(t, "cat", time.Second)
	g.step(t, 1, step{code: "x + 1", output: "42"})
	if err := g.s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := g.command(t, "echo after", 0); r.Stdout != "after\n" {
		t.Errorf("after Reset: %q, %s", r.Stdout, r.Error)
	}
	g.ran = false
	g.step(t, 2, step{code: "'x' in globals()", output: "false"})
}

// commandReadOnly: find asks the kernel whether it might write. Code may, so
// that the answer is the commands' wall's.
func commandReadOnly(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "open('a.txt', 'w').write('a')\nimport os\nos.chmod('.', 0o777)\nos.chmod('a.txt', 0o666)\nos.access('.', os.W_OK)", output: "true"})
	if r := g.command(t, "find . -writable", 0); r.Stdout != "" || !r.Success() {
		t.Errorf("commands may write these: %q; status %s, %s", r.Stdout, r.Status, r.Error)
	}
	if r := g.command(t, "find . -readable", 0); r.Stdout != ".\n./a.txt\n" {
		t.Errorf("commands may read these alone: %q", r.Stdout)
	}
}

// commandChecked: a pipeline is a plain value, so that anybody may make one.
func commandChecked(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "open('a.txt', 'w').write('a')", output: "1"})
	for _, req := range []sandbox.CommandRequest{
		raw("sort", "-o", "planted", "a.txt"),
		raw("find", ".", "-fprint", "planted"),
		raw("touch", "planted"),
		raw("/bin/cat", "a.txt"),
		raw("../bin/cat", "a.txt"),
		raw("", "a.txt"),
	} {
		r, err := g.runner(t).RunCommand(t.Context(), req)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Status != sandbox.StatusDenied && e.Status != sandbox.StatusInvalid {
			t.Errorf("%+v: status %q, error %v; want one of status denied or invalid", req.Pipeline.Steps[0].Stages[0], r.Status, err)
		}
	}
	g.step(t, 1, step{code: "import os\nsorted(os.listdir())", output: `["a.txt"]`})
}

// endless prints what there is and waits for more.
const endless = "tail -f a.txt"

func commandTimeout(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "open('a.txt', 'w').write('before\\n')", output: "7"})
	for _, command := range []string{endless, endless + " | cat", "echo before && tail -f a.txt | grep -c x"} {
		start := time.Now()
		r := g.command(t, command, brief)
		took := time.Since(start)
		t.Logf("%s: %v for a limit of %v", command, took.Round(time.Millisecond), brief)
		if r.Status != sandbox.StatusTimeout || r.Stdout != "before\n" {
			t.Errorf("%s: status %s, stdout %q; want timeout, and what was printed before", command, r.Status, r.Stdout)
		}
		if took > brief+late {
			t.Errorf("%s: took %v", command, took)
		}
		g.times.add((took - brief).Round(time.Millisecond))
	}
	if r := g.command(t, "cat a.txt", 0); r.Stdout != "before\n" {
		t.Errorf("after it: %q, %s", r.Stdout, r.Error)
	}
}

func commandCancelled(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "x = 41\nopen('a.txt', 'w').write('before\\n')", output: "7"})
	// The first line may have to wait for its wall.
	if r, err := g.runner(t).RunCommand(t.Context(), line(t, "cat a.txt", time.Minute)); err != nil || r.Stdout != "before\n" {
		t.Fatalf("%v, stdout %q", err, r.Stdout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	r, err := g.runner(t).RunCommand(ctx, line(t, endless, time.Minute))
	if took := time.Since(start); took > 500*time.Millisecond+late {
		t.Errorf("took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || r.Status != sandbox.StatusCancelled || r.ExitCode != 130 || r.Stdout != "before\n" {
		t.Errorf("error %v, status %s, exit code %d, stdout %q; want cancelled, and what was printed before", err, r.Status, r.ExitCode, r.Stdout)
	}
	commandFormed(t, endless, r)
	g.step(t, 1, step{code: "x + 1", output: "42"})
	if r := g.command(t, "cat a.txt", 0); r.Stdout != "before\n" {
		t.Errorf("after it: %q, %s", r.Stdout, r.Error)
	}
}

func commandCancelledWaiting(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "import time"})
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
	if _, err := g.runner(t).RunCommand(ctx, line(t, "echo no", 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 1500*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
	wg.Wait()
}

func commandClose(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "open('a.txt', 'w').write('before\\n')", output: "7"})
	done := make(chan error, 2)
	req := line(t, endless, time.Minute)
	for range 2 { // one that runs, and one that waits
		go func() {
			_, err := g.runner(t).RunCommand(context.WithoutCancel(t.Context()), req)
			done <- err
		}()
	}
	time.Sleep(400 * time.Millisecond)
	if err := g.s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		select {
		case err := <-done:
			if !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("RunCommand returned %v, want ErrClosed", err)
			}
		case <-time.After(late):
			t.Fatal("RunCommand has not returned though Close has")
		}
	}
	if _, err := g.runner(t).RunCommand(t.Context(), req); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// commandTurns: a line waits for the code before it, and code for the line.
func commandTurns(t *testing.T, g *guest) {
	g.step(t, 0, step{code: "import time"})
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := g.s.Run(t.Context(), sandbox.Request{Code: "time.sleep(0.8)\n_ = open('a.txt', 'w').write('written\\n')"}); err != nil || !r.Success() {
			t.Errorf("the code: %v, %s", err, r.Error)
		}
	})
	time.Sleep(300 * time.Millisecond)
	if r := g.command(t, "cat a.txt", 0); r.Stdout != "written\n" {
		t.Errorf("the line did not wait for the code: %q, %q", r.Stdout, r.Stderr)
	}
	wg.Wait()
	wg.Go(func() {
		if r := g.command(t, endless, brief); r.Stdout != "written\n" {
			t.Errorf("the code did not wait for the line: %q", r.Stdout)
		}
	})
	time.Sleep(300 * time.Millisecond)
	g.step(t, 1, step{code: "open('a.txt', 'a').write('more\\n')", output: "5"})
	wg.Wait()
}

func commandCap(t *testing.T, g *guest) {
	const size = 300_000
	g.step(t, 0, step{code: fmt.Sprintf("_ = open('big', 'w').write('head\\n' + 'x' * %d + '\\ntail\\n')", size-11)})
	r := g.command(t, "cat big && cat missing", 0)
	most := g.has.Limits.Output
	c := r.Truncated.Stdout
	if len(r.Stdout) > most+200 || !c.Cut() || c.Produced != size || c.Kept > int64(most) {
		t.Errorf("%d bytes of %d are there, counted as %+v; at most %d are to be", len(r.Stdout), size, c, most)
	}
	if !strings.HasPrefix(r.Stdout, "head\n") || !strings.HasSuffix(r.Stdout, "\ntail\n") {
		t.Errorf("head and tail are not there: %.20q … %.20q", r.Stdout, r.Stdout[max(0, len(r.Stdout)-20):])
	}
	if !strings.Contains(r.Stderr, "missing") {
		t.Errorf("the other stream is lost: %q", r.Stderr)
	}
}

func commandProgress(t *testing.T, g *guest) {
	if why, lacks := g.has.Lacks[Streaming]; lacks {
		t.Skipf("this backend has no %s: %s", Streaming, why)
	}
	g.step(t, 0, step{code: "open('a.txt', 'w').write('before\\n')", output: "7"})
	var mu sync.Mutex
	var got strings.Builder
	var first time.Duration
	start := time.Now()
	req := line(t, "cat missing && echo no | cat", 0)
	req.Progress = func(stream sandbox.Stream, piece []byte) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&got, "%d:%s", stream, piece)
	}
	if _, err := g.runner(t).RunCommand(t.Context(), req); err != nil || !strings.HasPrefix(got.String(), "2:") {
		t.Errorf("%v; pieces of standard error: %q", err, got.String())
	}
	got.Reset()
	req = line(t, endless, 2*brief)
	req.Progress = func(stream sandbox.Stream, piece []byte) {
		mu.Lock()
		defer mu.Unlock()
		if first == 0 {
			first = time.Since(start)
		}
		fmt.Fprintf(&got, "%d:%s", stream, piece)
	}
	start = time.Now()
	r, err := g.runner(t).RunCommand(t.Context(), req)
	if err != nil || r.Status != sandbox.StatusTimeout {
		t.Fatalf("%v, status %s", err, r.Status)
	}
	if got.String() != "1:before\n" || first > 3*brief/2 {
		t.Errorf("got %q after %v of %v", got.String(), first, 2*brief)
	}
}

func commandRefusals(t *testing.T, g *guest) {
	negative := line(t, "echo a", 0)
	negative.Timeout = -1
	for name, req := range map[string]sandbox.CommandRequest{
		"no pipeline":      {},
		"an empty one":     {Pipeline: &allowlist.Pipeline{}},
		"an empty step":    {Pipeline: &allowlist.Pipeline{Steps: []allowlist.Step{{}}}},
		"a negative limit": negative,
	} {
		_, err := g.runner(t).RunCommand(t.Context(), req)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Status != sandbox.StatusInvalid {
			t.Errorf("%s: %v, want an error of status invalid", name, err)
		}
	}
}
