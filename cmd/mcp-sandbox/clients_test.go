package main_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox/sandboxtest"
)

// These tests drive the binary by other people's clients. What they need,
// test/install installs; `make test` says where it is by the environment.

// installed is the value of a variable that `make test` sets to a path.
func installed(t testing.TB, name string) string {
	t.Helper()
	path := os.Getenv(name)
	sandboxtest.Require(t, path != "", name+" is not set: run make test, which installs what this needs")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return path
}

// binary is the product: as it is shipped, if the environment names it, else
// what TestMain has put on PATH. Without a wall here there is nothing to test.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("MCP_SANDBOX_TEST_BIN")
	if path == "" {
		var err error
		if path, err = exec.LookPath("mcp-sandbox"); err != nil {
			t.Fatal(err)
		}
	}
	doctors.once.Do(func() { doctors.said, _, doctors.err = try(t, "", nil, path, "doctor") })
	sandboxtest.Require(t, doctors.err == nil, "the sandbox does not work here: "+doctors.said)
	return path
}

// doctors is what doctor says of this machine: the same in every test.
var doctors struct {
	once sync.Once
	said string
	err  error
}

// run executes a program for at most two minutes, and gives its stdout.
func run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	out, stderr, err := try(t, dir, env, argv...)
	if err != nil {
		t.Fatalf("%s: %v\nstdout: %s\nstderr: %s", strings.Join(argv, " "), err, out, stderr)
	}
	return out
}

func try(t testing.TB, dir string, env []string, argv ...string) (stdout, stderr string, err error) {
	t.Helper()
	return tryFor(t, 2*time.Minute, dir, env, argv...)
}

func tryFor(t testing.TB, limit time.Duration, dir string, env []string, argv ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// scripts is a copy of test/clients beside the installed node_modules, where
// Node looks for them.
func scripts(t *testing.T) string {
	t.Helper()
	modules := installed(t, "MCP_SANDBOX_TEST_NODE_MODULES")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../test/clients")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reply is the part of structuredContent that these tests look at.
type reply struct {
	Success   bool            `json:"success"`
	Status    string          `json:"status"`
	State     string          `json:"state"`
	Stdout    string          `json:"stdout"`
	Stderr    string          `json:"stderr"`
	Error     string          `json:"error"`
	Output    json.RawMessage `json:"output"`
	ExitCode  int             `json:"exit_code"`
	SessionID string          `json:"session_id"`
	Notes     []string        `json:"notes"`
	Backend   string          `json:"backend"`
	Truncated *struct {
		Stdout, Stderr struct{ Produced, Kept int64 }
	} `json:"truncated"`
}

// interrupted is a call that the client gave up, and the one after it.
type interrupted struct {
	Error  string `json:"error"`
	Next   reply  `json:"next"`
	NextMS int    `json:"next_ms"`
}

// observed is what flow.mjs and flow.py print.
type observed struct {
	Tools    []string `json:"tools"`
	Schema   bool     `json:"schema"`
	First    reply    `json:"first"`
	Second   reply    `json:"second"`
	Failed   reply    `json:"failed"`
	Command  reply    `json:"command"`
	Spoken   reply    `json:"spoken"`
	Pictures []shown  `json:"pictures"`
	Progress []struct {
		Progress float64 `json:"progress"`
		Message  string  `json:"message"`
	} `json:"progress"`
	Abort   interrupted `json:"abort"`
	Timeout interrupted `json:"timeout"`
	Marked  reply       `json:"marked"`
	CloseMS int         `json:"close_ms"`
}

func TestClients(t *testing.T) {
	const (
		node   = "MCP_SANDBOX_TEST_NODE"
		python = "MCP_SANDBOX_TEST_CLIENT_PYTHON"
		newer  = "MCP_SANDBOX_TEST_CLIENT_PYTHON_V2"
	)
	for _, test := range []struct {
		name        string
		interpreter string
		argv        []string // script, and what follows the server and the mark
	}{
		{"typescript sdk 1", node, []string{"sdk1.mjs"}},
		{"typescript client 2, legacy", node, []string{"sdk2.mjs", "legacy"}},
		{"typescript client 2, 2026-07-28", node, []string{"sdk2.mjs", "2026-07-28"}},
		{"python mcp 1", python, []string{"mcp1.py"}},
		{"python mcp 2, legacy", newer, []string{"mcp2.py", "legacy"}},
		{"python mcp 2, auto", newer, []string{"mcp2.py", "auto"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			interpreter, server, dir, mark := installed(t, test.interpreter), binary(t), scripts(t), mark()
			argv := append([]string{interpreter, test.argv[0], server, mark}, test.argv[1:]...)
			out := run(t, dir, []string{"PYTHONDONTWRITEBYTECODE=1"}, argv...)
			var seen observed
			if err := json.Unmarshal([]byte(out), &seen); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			seen.check(t)
			if test.interpreter == node {
				checkPictures(t, seen.Pictures)
			}
			gone(t, mark)
		})
	}
}

func (seen *observed) check(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"execute_python", "execute_cli", "reset_session"} {
		if !slices.Contains(seen.Tools, tool) {
			t.Errorf("tools: %q, without %s", seen.Tools, tool)
		}
	}
	if !seen.Schema {
		t.Error("a tool has no outputSchema, so the client validated nothing")
	}
	seen.First.expect(t, "x = 41", "new", "null")
	seen.Second.expect(t, "x + 1", "kept", "42")
	if id := seen.First.SessionID; id == "" || seen.Second.SessionID != id || seen.Marked.SessionID != id {
		t.Errorf("session ids: %q, %q, %q; want one", id, seen.Second.SessionID, seen.Marked.SessionID)
	}
	if f := seen.Failed; f.Success || f.Status != "error" || f.ExitCode != 1 || f.State != "kept" {
		t.Errorf("1 / 0: %+v", f)
	}
	if c := seen.Command; !c.Success || c.Stdout != "1\n2\n3 n.txt\n" || c.State != "none" || c.SessionID != seen.First.SessionID {
		t.Errorf("a command over the file that code wrote: %+v", c)
	}

	var said strings.Builder
	for i, piece := range seen.Progress {
		said.WriteString(piece.Message)
		if i > 0 && piece.Progress <= seen.Progress[i-1].Progress {
			t.Errorf("progress does not grow: %+v", seen.Progress)
		}
	}
	if len(seen.Progress) < 3 || !strings.Contains(said.String(), "step 2") {
		t.Errorf("progress of a call that prints for 1.5 s, before its result: %+v", seen.Progress)
	}
	if want := "step 0\nstep 1\nstep 2\nstep 3\nstep 4\n"; seen.Spoken.Stdout != want {
		t.Errorf("stdout %q, want %q", seen.Spoken.Stdout, want)
	}

	// The code that was given up had 60 s; that the next call answers at once,
	// with the variables as they were, is the proof that it was stopped.
	for name, given := range map[string]interrupted{"abort": seen.Abort, "time-out": seen.Timeout} {
		if given.Error == "" {
			t.Errorf("%s: the call did not fail in the client", name)
		}
		given.Next.expect(t, "x, after "+name, "kept", "41")
		if given.NextMS > 5000 {
			t.Errorf("%s: the next call took %d ms; the code went on", name, given.NextMS)
		}
	}
	seen.Marked.expect(t, "the marked child", "kept", "null")
	if seen.CloseMS > 2500 {
		t.Errorf("close took %d ms", seen.CloseMS)
	}
}

func (r reply) expect(t *testing.T, what, state, output string) {
	t.Helper()
	if !r.Success || r.Status != "ok" || r.State != state || string(r.Output) != output {
		t.Errorf("%s: success %v, status %q, state %q, output %s; want ok, %s, %s", what, r.Success, r.Status, r.State, r.Output, state, output)
	}
}

// mark is an argument for sleep(1) by which a child of the guest is known from
// outside the wall.
func mark() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1e12))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("7200.%012d", n)
}

// marked lists the processes that have the mark among their arguments.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(mark)) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

// gone checks that the marked child is no more.
func gone(t *testing.T, mark string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = marked(t, mark); len(left) == 0 {
			return
		}
	}
	t.Fatalf("left after close: %q", left)
}

// structured is the reply in what the Inspector prints as JSON.
func structured(t *testing.T, out string) reply {
	t.Helper()
	var printed struct {
		StructuredContent *reply `json:"structuredContent"`
		Result            *struct {
			StructuredContent *reply `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	switch {
	case printed.StructuredContent != nil:
		return *printed.StructuredContent
	case printed.Result != nil && printed.Result.StructuredContent != nil:
		return *printed.Result.StructuredContent
	}
	t.Fatalf("no structuredContent in %s", out)
	return reply{}
}

// The Inspector's CLI makes one call for each process of the server.
func TestInspectorCLI(t *testing.T) {
	node, dir, server := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t), binary(t)
	env := []string{"HOME=" + t.TempDir()}
	inspector := []string{node, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli", server}
	inspect := func(args ...string) string { return run(t, dir, env, append(inspector, args...)...) }

	out := inspect("--method", "tools/call", "--tool-name", "execute_python", "--tool-arg", "code=x = 41\nx + 1", "--format", "json", "-q")
	structured(t, out).expect(t, "x = 41; x + 1", "new", "42")

	out = inspect("--method", "tools/call", "--tool-name", "execute_cli", "--tool-arg", "command=echo a | tr a b", "--format", "json", "-q")
	if c := structured(t, out); !c.Success || c.Stdout != "b\n" {
		t.Errorf("echo a | tr a b: %+v", c)
	}

	// Schemas portable to other vendors' dialects: exit 6 if not.
	if out := inspect("--method", "tools/list", "--strict", "--format", "json", "-q"); !strings.Contains(out, "execute_python") {
		t.Errorf("tools/list: %s", out)
	}
}

// mcpdo is the Inspector's CLI for one connection and many calls.
func TestInspectorConnection(t *testing.T) {
	node, dir, server := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t), binary(t)
	sockets, err := os.MkdirTemp("", "do") // short: a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	env := []string{"HOME=" + sockets, "MCP_INSPECTOR_DAEMON_DIR=" + filepath.Join(sockets, "d"), "MCP_INSPECTOR_DAEMON_TOKEN=" + rand.Text()}
	mcpdo := []string{node, "node_modules/@modelcontextprotocol/inspector/clients/mcpdo/build/mcp-bin.js", "--format", "json", "--connection", "box"}
	do := func(args ...string) string { return run(t, dir, env, append(mcpdo, args...)...) }
	t.Cleanup(func() {
		stop := exec.Command(node, mcpdo[1], "daemon", "stop")
		stop.Dir, stop.Env = dir, append(os.Environ(), env...)
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("daemon stop: %v\n%s", err, out)
		}
	})

	do("connect", "--", server)
	call := func(code string) reply {
		return structured(t, do("tools/call", "execute_python", "code:="+quote(code)))
	}
	call("x = 41").expect(t, "x = 41", "new", "null")
	call("x + 1").expect(t, "x + 1", "kept", "42")
	if c := structured(t, do("tools/call", "execute_cli", "command:="+quote("pwd && echo a | tr a b"))); c.Stdout != "/workspace\nb\n" || !c.Success {
		t.Errorf("pwd && echo a | tr a b: %+v", c)
	}
	mark := mark()
	call("import subprocess\nchild = subprocess.Popen(['sleep', '"+mark+"'])\nchild.poll()").expect(t, "the marked child", "kept", "null")
	if runtime.GOOS == "linux" && len(marked(t, mark)) == 0 {
		t.Error("the marked child can't be seen, so that its end would prove nothing")
	}
	do("disconnect", "box")
	gone(t, mark)
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
