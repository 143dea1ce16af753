package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
)

// Machines are shared and noisy: what is compared is measured in turn, in one
// run, and the medians are reported as a difference or a ratio.

// benchServer serves over stdio like the product, with tools besides: one that does
// nothing, and one that waits until all is ready that is to be kept so. Its flags are
// those of serve.
func benchServer() int {
	log := slog.New(slog.DiscardHandler)
	c, _, code, done := program{stdout: os.Stdout, stderr: os.Stderr}.parse(append([]string{"serve"}, os.Args[1:]...))
	if done {
		return code
	}
	l, err := openLocal(context.Background(), localConfig{wallFlags: c.Serve.wallFlags, warmFlags: c.Serve.warmFlags, log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: l, Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	t, err := tools.New(tools.Config{Sessions: sessions, Caller: hostCaller("stdio"), Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	server := t.Server()
	server.AddTool(mcp.NewTool("empty"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(""), nil
	})
	server.AddTool(mcp.NewTool("ready"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for l.ready() < c.Serve.Warm {
			time.Sleep(time.Millisecond)
		}
		return mcp.NewToolResultText(""), nil
	})
	s := newStdio(server, os.Stdin, os.Stdout, log)
	reason := s.serve(context.Background())
	return program{stderr: os.Stderr}.end(s, sessions, l, log, endLimit, reason)
}

// benchClient talks to a server of its own.
type benchClient struct {
	b   *testing.B
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func newBenchClient(b *testing.B, server string, args ...string) *benchClient {
	cmd := exec.Command(server, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &benchClient{b: b, in: in, out: bufio.NewReader(out)}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	c.send(hello)
	return c
}

func (c *benchClient) send(line string) string {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.b.Fatal(err)
	}
	answer, err := c.out.ReadString('\n')
	if err != nil || strings.Contains(answer, `"isError":true`) || strings.Contains(answer, `"error":{`) {
		c.b.Fatalf("%s: %v", answer, err)
	}
	return answer
}

func (c *benchClient) tool(name, arguments string) string {
	c.id++
	return c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, c.id, name, arguments))
}

// newSession is the first call of a fresh session.
const newSession = `{"code":"40 + 2","session_id":"new"}`

// end closes the session that has answered.
func (c *benchClient) end(answer string) {
	_, after, _ := strings.Cut(answer, `"session_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	c.tool("reset_session", fmt.Sprintf(`{"session_id":%q,"close":true}`, id))
}

func median(v []time.Duration) time.Duration {
	slices.Sort(v)
	return v[len(v)/2]
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// A warm call against an empty tool of the same server, over stdio.
func BenchmarkWarmCall(b *testing.B) {
	c := newBenchClient(b, "bench-server", "--warm", "0")
	c.tool("execute_python", `{"code":"x = 0"}`)
	time.Sleep(200 * time.Millisecond) // the interpreter's chores are done by then
	var warm, empty []time.Duration
	for b.Loop() {
		warm = append(warm, timed(func() { c.tool("execute_python", `{"code":"x += 1"}`) }))
		empty = append(empty, timed(func() { c.tool("empty", `{}`) }))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(warm).Microseconds()), "µs")
	b.ReportMetric(float64(median(empty).Microseconds()), "µs-empty")
	b.ReportMetric(float64(median(warm)-median(empty))/1e6, "ms-more")
}

// A new session's first answer, over stdio, against the least that any fresh
// interpreter costs.
func BenchmarkNewSession(b *testing.B) {
	c := newBenchClient(b, "bench-server", "--warm", "0")
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		b.Fatal(err)
	}
	c.tool("execute_python", `{"code":"1"}`)
	var first, bare []time.Duration
	for b.Loop() {
		var answer string
		first = append(first, timed(func() { answer = c.tool("execute_python", newSession) }))
		c.end(answer)
		time.Sleep(50 * time.Millisecond) // the kernel takes its namespaces down meanwhile
		bare = append(bare, timed(func() {
			if err := exec.Command(string(path), "-I", "-S", "-c", "pass").Run(); err != nil {
				b.Fatal(err)
			}
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(first).Microseconds()), "µs")
	b.ReportMetric(float64(median(bare).Microseconds()), "µs-python")
	b.ReportMetric(float64(median(first))/float64(median(bare)), "×python")
}

// A new session's first answer where an interpreter is ready, against one where none is,
// and against a call in an old session; the same with pandas imported ahead, and with a
// first call that makes a DataFrame, which takes pandas ten milliseconds anywhere.
func BenchmarkNewSessionReady(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchReady(b, "40 + 2") })
	for name, code := range map[string]string{
		"pandas":    `import pandas\n40 + 2`,
		"DataFrame": `import pandas as pd\nint(pd.DataFrame({'a': [40, 2]}).a.sum())`,
	} {
		b.Run(name, func(b *testing.B) {
			python := os.Getenv("MCP_SANDBOX_TEST_ANALYST_PYTHON")
			if python == "" {
				b.Skip("no MCP_SANDBOX_TEST_ANALYST_PYTHON, which `make bench` sets")
			}
			benchReady(b, code, "--python", python, "--preload", "numpy,pandas")
		})
	}
}

// benchReady has first answer 42.
func benchReady(b *testing.B, first string, flags ...string) {
	first = fmt.Sprintf(`{"code":"%s","session_id":"new"}`, first)
	ready := newBenchClient(b, "bench-server", append(flags, "--warm", "1")...)
	var python []string
	if len(flags) > 0 {
		python = flags[:2]
	}
	cold := newBenchClient(b, "bench-server", append(python, "--warm", "0")...)
	ready.tool("execute_python", `{"code":"x = 0"}`)
	var warm, started, call []time.Duration
	for b.Loop() {
		ready.tool("ready", `{}`)
		time.Sleep(100 * time.Millisecond) // a person's thought, or a model's
		var answer string
		warm = append(warm, timed(func() { answer = ready.tool("execute_python", first) }))
		if !strings.Contains(answer, `"output":42`) || !strings.Contains(answer, `"state":"new"`) {
			b.Fatal(answer)
		}
		ready.end(answer)
		ready.tool("ready", `{}`)
		time.Sleep(100 * time.Millisecond)
		call = append(call, timed(func() { ready.tool("execute_python", `{"code":"x += 1"}`) }))
		started = append(started, timed(func() { answer = cold.tool("execute_python", first) }))
		cold.end(answer)
	}
	b.ReportMetric(0, "ns/op")
	for name, v := range map[string][]time.Duration{"-ready": warm, "-started": started, "-call": call} {
		b.ReportMetric(float64(median(v).Microseconds())/1e3, "ms"+name)
	}
	b.ReportMetric(float64(warm[len(warm)*99/100].Microseconds())/1e3, "ms-ready-p99") // sorted by now
	b.ReportMetric(float64(median(warm))/float64(median(call)), "×call")
	b.ReportMetric(float64(median(started))/float64(median(warm)), "×faster")
}

// A warm command over stdio against the least that any ls does, and against a
// wall that is raised for each. The goals are twice the one at most, and half of
// the other; and 20 µs for the judging of a typical line, which is part of it.
func BenchmarkWarmCommand(b *testing.B) {
	dir := b.TempDir()
	for _, name := range []string{"a.csv", "b.csv", "c.txt", "d.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	c := newBenchClient(b, serverBinary(), "--workspace", dir, "--log-level", "error")
	tool := func() {
		if answer := c.tool("execute_cli", `{"command":"ls"}`); !strings.Contains(answer, `"stdout":"a.csv\nb.csv\nc.txt\nd.py\n"`) {
			b.Fatal(answer)
		}
	}
	run := func(argv ...string) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, []string{"LANG=C.UTF-8"}
		if out, err := cmd.Output(); err != nil || string(out) != "a.csv\nb.csv\nc.txt\nd.py\n" {
			b.Fatalf("%s, %v", out, err)
		}
	}
	for range 20 { // the first raises the wall
		tool()
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Log("no bubblewrap to compare with")
	}
	const typical, lines = `find . -type f -name '*.csv' -size +10k | sort | head -n 5 && pwd`, 20
	var warm, least, wrapped, judged []time.Duration
	for b.Loop() {
		warm = append(warm, timed(tool))
		judged = append(judged, timed(func() {
			for range lines {
				if err := allowlist.Validate(typical); err != nil {
					b.Fatal(err)
				}
			}
		})/lines)
		least = append(least, timed(func() { run("/usr/bin/ls") }))
		if bwrap != "" {
			wrapped = append(wrapped, timed(func() {
				run(bwrap, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
					"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", dir, "/workspace",
					"--chdir", "/workspace", "/usr/bin/ls")
			}))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(warm).Microseconds()), "µs")
	b.ReportMetric(float64(median(judged).Nanoseconds())/1e3, "µs-validate")
	b.ReportMetric(float64(median(least).Microseconds()), "µs-fork+exec")
	b.ReportMetric(float64(median(warm))/float64(median(least)), "×fork+exec")
	if bwrap != "" {
		b.ReportMetric(float64(median(wrapped).Microseconds()), "µs-bwrap")
		b.ReportMetric(float64(median(warm))/float64(median(wrapped)), "×bwrap")
	}
}
