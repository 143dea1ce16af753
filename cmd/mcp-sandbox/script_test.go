package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs testdata/script over the real binary. A script that needs the
// wall begins with a condition that skips it where there is none, or, with
// MCP_SANDBOX_REQUIRE set, fails. With MCP_SANDBOX_TEST_UPDATE set, texts that
// cmp compares are rewritten.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("MCP_SANDBOX_TEST_UPDATE") != "",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SERVER", serverBinary())
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "wall" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return wall()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"talk": talk, "exits": exits},
	})
}

// serverBinary is the one that raises walls: the one that is shipped, if the
// environment names it, else this very test.
func serverBinary() string {
	if path := os.Getenv("MCP_SANDBOX_TEST_BIN"); path != "" {
		return path
	}
	return "mcp-sandbox"
}

// wall asks doctor, once, whether the sandbox works here.
var wall = sync.OnceValues(func() (bool, error) {
	out, err := exec.Command(serverBinary(), "doctor").CombinedOutput()
	if err != nil && os.Getenv("MCP_SANDBOX_REQUIRE") != "" {
		return false, fmt.Errorf("the sandbox does not work here:\n%s", out)
	}
	return err == nil, nil
})

// exits CODE PROGRAM ARGS… runs a program and checks its exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// talk FILE PROGRAM ARGS… holds a conversation over a program's stdin and
// stdout. Lines of FILE that begin with "-> " are sent; after them as many are
// read as lines follow that begin with "<- ". It ends with the end of input,
// and whatever else comes. Ids and times are made alike, and the conversation
// as it was is left in the file talked, to be compared.
func talk(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	cmd.Dir = ts.MkAbs(".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	ts.Check(err)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	limit := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer limit.Stop()

	var talked strings.Builder
	read := bufio.NewReader(stdout)
	for l := range strings.Lines(ts.ReadFile(args[0])) {
		switch {
		case strings.HasPrefix(l, "-> "):
			talked.WriteString(l)
			_, err := io.WriteString(stdin, l[3:])
			ts.Check(err)
		case strings.HasPrefix(l, "<-"):
			answer, err := read.ReadString('\n')
			if err != nil {
				cmd.Wait()
				ts.Fatalf("%v instead of an answer; so far:\n%s\nstderr:\n%s", err, talked.String(), stderr.String())
			}
			talked.WriteString("<- " + alike(answer))
		default:
			talked.WriteString(l)
		}
	}
	stdin.Close()
	for {
		answer, err := read.ReadString('\n')
		if answer != "" {
			talked.WriteString("<- " + alike(answer))
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("%v\n%s", err, stderr.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("talked"), []byte(talked.String()), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("logged"), stderr.Bytes(), 0o644))
}

// alike replaces what differs from run to run.
func alike(s string) string {
	for pattern, with := range map[string]string{
		`Traceback \(most recent call last\)(\\.|[^"\\])*`:             "TRACEBACK", // each Python has its own
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`: "UUID",
		`"duration_s":[0-9.e-]+`:                                       `"duration_s":0`,
		`"progress":[0-9.e-]+`:                                         `"progress":0`,
		`("name":"mcp-sandbox".*?"version":)"[^"]*"`:                   `$1"V"`,
		`("serverInfo":\{.*?"version":)"[^"]*"`:                        `$1"V"`,
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, with)
	}
	return s
}
