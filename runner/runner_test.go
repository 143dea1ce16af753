package runner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/runner"
)

const marker = "__DR_SANDBOX_RESULT__:"

// outcome is what a run leaves.
type outcome struct {
	exit           int // 128 and the signal, where one ended it
	stdout, stderr string
}

// run runs the runner in a process of its own, with these variables alone.
func run(t *testing.T, env ...string) outcome {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", runner.Source)
	cmd.Env, cmd.Dir = append([]string{"PYTHONUNBUFFERED=1"}, env...), t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	got := outcome{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got.exit = exit.ExitCode()
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
			got.exit = 128 + int(status.Signal())
		}
	case err != nil:
		t.Fatal(err)
	}
	return got
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func code(s string) string { return "DR_SANDBOX_CODE_B64=" + encode(s) }

// markers are the results of an output, in order.
func markers(stdout string) []string {
	var all []string
	for line := range strings.Lines(stdout) {
		if result, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), marker); ok {
			all = append(all, result)
		}
	}
	return all
}

// The truth table of the published runner, as it was measured.
func TestTruthTable(t *testing.T) {
	t.Parallel()
	const traceback = "Traceback (most recent call last)"
	for name, want := range map[string]struct {
		code    string
		exit    int
		markers string // joined by spaces
		stderr  string // a part of it
	}{
		"a value":                  {"_return = 42", 0, "42", ""},
		"none":                     {"1 + 1", 0, "null", ""},
		"deleted":                  {"del _return", 0, "null", ""},
		"an exception":             {"_return = 1\nraise ValueError('no')", 1, "1", traceback},
		"a syntax error":           {"def", 1, "null", "SyntaxError"},
		"a NUL":                    {"a = 1\x00", 1, "null", traceback},
		"exit":                     {"import sys\n_return = 3\nsys.exit()", 0, "3", ""},
		"exit 0":                   {"import sys\n_return = 3\nsys.exit(0)", 0, "3", ""},
		"exit 3":                   {"import sys\n_return = 3\nsys.exit(3)", 3, "3", ""},
		"exit 300":                 {"import sys\nsys.exit(300)", 44, "null", ""},
		"exit true":                {"import sys\nsys.exit(True)", 1, "null", ""},
		"exit text":                {"import sys\n_return = 1\nsys.exit('bye')", 1, "1", "bye\n"},
		"an interrupt":             {"_return = 1\nraise KeyboardInterrupt", 1, "1", traceback},
		"no memory":                {"_return = 1\nraise MemoryError", 1, "1", traceback},
		"overflow":                 {"raise OverflowError('mine')", 1, "null", "OverflowError: mine"},
		"time-out":                 {"while True: pass", 124, "null", "sandbox exceeded timeout of 1s\n"},
		"time-out with a value":    {"_return = 7\nwhile True: pass", 124, "7", "sandbox exceeded timeout of 1s\n"},
		"time-out swallowed":       {"import time\ntry:\n  time.sleep(5)\nexcept Exception:\n  _return = 'on'", 0, `"on"`, ""},
		"no alarm any more":        {"import signal, time\nsignal.alarm(0)\ntime.sleep(1.2)", 0, "null", ""},
		"_exit":                    {"import os\nos._exit(7)", 7, "", ""},
		"SIGKILL":                  {"import os\nos.kill(os.getpid(), 9)", 137, "", ""},
		"SIGTERM":                  {"import os\nos.kill(os.getpid(), 15)", 143, "", ""},
		"SIGSEGV":                  {"import os\nos.kill(os.getpid(), 11)", 139, "", ""},
		"glued":                    {"print('x', end='')\n_return = 1", 0, "", ""},
		"stdout closed":            {"import sys\nsys.stdout.close()", 1, "", traceback},
		"stdout none":              {"import sys\nsys.stdout = None", 0, "", ""},
		"forged":                   {"print('" + marker + "\"forged\"')\n_return = 1", 0, `"forged" 1`, ""},
		"forged at exit":           {"import atexit\natexit.register(print, '" + marker + "\"forged\"')\n_return = 1", 0, `1 "forged"`, ""},
		"another marker":           {"import __main__\n__main__.RESULT_MARKER = 'X'", 0, "", ""},
		"forked":                   {"import os\n_return = os.fork() == 0\nos.wait() if not _return else 0", 0, "true false", ""},
		"a thread's exit":          {"import sys, threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join()", 0, "null", ""},
		"not main":                 {"_return = __name__", 0, `"builtins"`, ""},
		"a deep value":             {"v = []\nfor _ in range(100000): v = [v]\n_return = v", 1, "", "RecursionError"},
		"a value that fails":       {"class V:\n  def __str__(self): raise KeyError\n_return = V()", 1, "", "KeyError"},
		"not a number":             {"_return = [float('nan'), float('inf'), -float('inf')]", 0, "[NaN, Infinity, -Infinity]", ""},
		"a set":                    {"_return = {1}", 0, `"{1}"`, ""},
		"bytes":                    {"_return = b'x'", 0, `"b'x'"`, ""},
		"a date":                   {"import datetime\n_return = datetime.date(2026, 1, 2)", 0, `"2026-01-02"`, ""},
		"a tuple":                  {"_return = (1, 2)", 0, "[1, 2]", ""},
		"merging keys":             {"_return = {1: 2, True: 4}", 0, `{"1": 4}`, ""},
		"keys that can't be":       {"_return = {(1, 2): 3}", 0, `"{(1, 2): 3}"`, ""},
		"a circle":                 {"v = []\nv.append(v)\n_return = v", 0, `"[[...]]"`, ""},
		"a large integer":          {"_return = 2**64", 0, "18446744073709551616", ""},
		"a lone surrogate":         {"_return = '\\ud800'", 0, `"\ud800"`, ""},
		"not ASCII":                {"_return = 'é'", 0, `"\u00e9"`, ""},
		"a thread that still runs": {"import threading, time\nthreading.Thread(target=time.sleep, args=(.1,)).start()\n_return = 1", 0, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{code(want.code)}
			if strings.HasPrefix(name, "time-out") || name == "no alarm any more" {
				env = append(env, "DR_SANDBOX_TIMEOUT_SECS=1")
			}
			got := run(t, env...)
			if got.exit != want.exit {
				t.Errorf("exit code %d, want %d", got.exit, want.exit)
			}
			if results := strings.Join(markers(got.stdout), " "); results != want.markers {
				t.Errorf("results %s, want %s; stdout:\n%s", results, want.markers, got.stdout)
			}
			first, rest, _ := strings.Cut(got.stderr, "\n")
			if !strings.HasPrefix(first, "sandbox process limit (RLIMIT_NPROC) set to ") {
				t.Errorf("stderr begins with %q", first)
			}
			if !strings.Contains(rest, want.stderr) || want.stderr == "" && rest != "" {
				t.Errorf("stderr %q, want %q", rest, want.stderr)
			}
			if name == "glued" && got.stdout != "x"+marker+"1\n" {
				t.Errorf("stdout %q", got.stdout)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	tooLong := "2147483648" // seconds; alarm(2) takes one less
	for name, want := range map[string]struct {
		env     []string
		exit    int
		markers string
		stderr  string // a part of it
	}{
		"no code":              {nil, 1, "", "DR_SANDBOX_CODE_B64 not set\n"},
		"empty code":           {[]string{"DR_SANDBOX_CODE_B64="}, 1, "", "DR_SANDBOX_CODE_B64 not set\n"},
		"no base64 at all":     {[]string{"DR_SANDBOX_CODE_B64=!!!"}, 0, "null", ""},
		"not UTF-8":            {[]string{code("_return = '\xff'")}, 1, "", "UnicodeDecodeError"},
		"inputs":               {[]string{code("_return = inputs"), "DR_SANDBOX_INPUTS_B64=" + encode(`{"a": [1, "é"]}`)}, 0, `{"a": [1, "\u00e9"]}`, ""},
		"inputs of any kind":   {[]string{code("_return = inputs"), "DR_SANDBOX_INPUTS_B64=" + encode(`NaN`)}, 0, "NaN", ""},
		"no inputs":            {[]string{code("_return = inputs")}, 0, "{}", ""},
		"inputs, not JSON":     {[]string{code("_return = inputs"), "DR_SANDBOX_INPUTS_B64=" + encode(`{`)}, 1, "", "JSONDecodeError"},
		"no number of seconds": {[]string{code("_return = 1"), "DR_SANDBOX_TIMEOUT_SECS=1.5"}, 0, "1", ""},
		"no alarm":             {[]string{code("import time; time.sleep(1.2); _return = 1"), "DR_SANDBOX_TIMEOUT_SECS=0"}, 0, "1", ""},
		"too many seconds":     {[]string{code("_return = 1"), "DR_SANDBOX_TIMEOUT_SECS=" + tooLong}, 1, "", "OverflowError"},
		"fewer processes":      {[]string{code("_return = 1"), "DR_SANDBOX_MAX_PROCS=100"}, 0, "1", "set to 100\n"},
		"no number of them":    {[]string{code("_return = 1"), "DR_SANDBOX_MAX_PROCS=many"}, 0, "1", "(RLIMIT_NPROC) set to "},
		"no limit of them":     {[]string{code("_return = 1"), "DR_SANDBOX_MAX_PROCS=0"}, 0, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, want.env...)
			if got.exit != want.exit || strings.Join(markers(got.stdout), " ") != want.markers || !strings.Contains(got.stderr, want.stderr) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if name == "no limit of them" && got.stderr != "" {
				t.Errorf("stderr %q", got.stderr)
			}
		})
	}
}
