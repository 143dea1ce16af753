package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// bareWarden is the warden as PID 1 of a PID namespace and nothing else: what
// it does does not depend on the wall.
func bareWarden(t testing.TB, programs ...string) *warden {
	t.Helper()
	exe := os.Getenv(testBin)
	if exe == "" {
		exe = "/proc/self/exe"
	}
	cmd := exec.Command(exe, "be-child", verbWarden)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: guestID, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: guestID, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	var server, guest [4]*os.File
	for i := range server {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		server[i], guest[i] = r, w
		if i == 0 {
			server[i], guest[i] = w, r
		}
	}
	cmd.ExtraFiles = []*os.File{guest[0], guest[1]}
	cmd.Stdout, cmd.Stderr = guest[2], guest[3]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(guest[:])
	config := wardenConfig{
		List:     allowlist.Options{Dangerously: []string{"sh", "sleep", "yes", "true", "false", "missing", "gone"}},
		Programs: map[string]string{"gone": "/nonexistent/gone"},
	}
	for _, name := range append(programs, "cat", "echo", "env", "false", "grep", "head", "ls", "sh", "sleep", "sort", "tail", "tr", "true", "wc", "yes") {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		config.Programs[name] = path
	}
	config.Env = commandEnv(nil, (*native)(nil).places("/w"))
	output := kernel.NewOutput(server[2], server[3], 20_000)
	w, err := newWarden(nativeCage(cmd, nil, 0), server[0], server[1], output, config, Policy{Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// pipelineOf reads words, | and && as they stand: tests need no more of a shell.
func pipelineOf(text string) *allowlist.Pipeline {
	p := &allowlist.Pipeline{Steps: []allowlist.Step{{Stages: []allowlist.Stage{{}}}}}
	for _, word := range strings.Fields(text) {
		step := &p.Steps[len(p.Steps)-1]
		stage := &step.Stages[len(step.Stages)-1]
		switch {
		case word == "|":
			step.Stages = append(step.Stages, allowlist.Stage{})
		case word == "&&":
			p.Steps = append(p.Steps, allowlist.Step{Stages: []allowlist.Stage{{}}})
		case stage.Name == "":
			stage.Name = word
		case strings.ContainsAny(word, "*?["):
			stage.Args = append(stage.Args, allowlist.Arg{Text: word, Pattern: word})
		default:
			stage.Args = append(stage.Args, allowlist.Arg{Text: word})
		}
	}
	return p
}

// shell is a line of one stage that runs a script: how else could a test die of
// a signal, or leave something behind?
func shell(script string) *allowlist.Pipeline {
	return &allowlist.Pipeline{Steps: []allowlist.Step{{Stages: []allowlist.Stage{
		{Name: "sh", Args: []allowlist.Arg{{Text: "-c"}, {Text: script}}},
	}}}}
}

func lineBy(t testing.TB, w *warden, p *allowlist.Pipeline, limit time.Duration) sandbox.Result {
	t.Helper()
	res, err := w.run(t.Context(), sandbox.CommandRequest{Pipeline: p, Timeout: limit})
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return res
}

func TestPipelineStatus(t *testing.T) {
	w := bareWarden(t)
	for _, tt := range []struct {
		line           string
		status         sandbox.Status
		code           int
		stdout, stderr string
		error, note    string // in them
	}{
		{line: "true", status: sandbox.StatusOK},
		{line: "false", status: sandbox.StatusError, code: 1, error: "false exited with 1"},
		{line: "echo a b", status: sandbox.StatusOK, stdout: "a b\n"},
		{line: "false && echo no", status: sandbox.StatusError, code: 1, error: "false exited with 1", note: notRun},
		{line: "true && echo yes && echo more", status: sandbox.StatusOK, stdout: "yes\nmore\n"},
		{line: "false | echo yes && echo more", status: sandbox.StatusOK, stdout: "yes\nmore\n", note: "false exited with 1"},
		{line: "echo a | false && echo no", status: sandbox.StatusError, code: 1, error: "false exited with 1", note: notRun},
		{line: "echo a | grep b", status: sandbox.StatusError, code: 1, error: "grep exited with 1: no line matched"},
		{line: "grep x /nonexistent", status: sandbox.StatusError, code: 2, error: "grep exited with 2", stderr: "grep: /nonexistent: No such file or directory\n"},
		{line: "echo abc | tr a-z A-Z | cat", status: sandbox.StatusOK, stdout: "ABC\n"},
		{line: "yes | head -1", status: sandbox.StatusOK, stdout: "y\n"},
		{line: "yes | head -1 | cat && echo ok", status: sandbox.StatusOK, stdout: "y\nok\n"},
		{line: "missing", status: sandbox.StatusError, code: 127, error: "missing could not be started"},
		{line: "gone", status: sandbox.StatusError, code: 127, error: "gone could not be started"},
		{line: "missing && echo no", status: sandbox.StatusError, code: 127, error: "missing could not be started", note: notRun},
		{line: "yes | missing | wc -c", status: sandbox.StatusOK, stdout: "0\n", note: "missing could not be started"},
		{line: "yes | missing", status: sandbox.StatusError, code: 127, error: "missing"},
		{line: "missing | cat", status: sandbox.StatusOK, note: "missing"},
		{line: "cat", status: sandbox.StatusOK}, // its input is empty
	} {
		res := lineBy(t, w, pipelineOf(tt.line), 20*time.Second)
		notes := strings.Join(res.Notes, "; ")
		if res.Status != tt.status || res.ExitCode != tt.code || res.Stdout != tt.stdout || res.Stderr != tt.stderr ||
			!strings.Contains(res.Error, tt.error) || (tt.error == "") != (res.Error == "") || !strings.Contains(notes, tt.note) || (tt.note == "") != (notes == "") {
			t.Errorf("%s: %+v", tt.line, res)
		}
		if res.State != sandbox.StateNone {
			t.Errorf("%s: state %s", tt.line, res.State)
		}
	}
	res := lineBy(t, w, shell("kill -SEGV $$"), 20*time.Second)
	if res.Status != sandbox.StatusError || res.ExitCode != 139 || !strings.Contains(res.Error, "signal 11 (segmentation fault)") {
		t.Errorf("%+v", res)
	}
}

// A command gets its three descriptors, the constructed environment, the name
// that was typed, and signals as they are by default.
func TestPipelineGives(t *testing.T) {
	t.Setenv("WARDEN_TEST_SECRET", "hunter2")
	w := bareWarden(t)
	res := lineBy(t, w, shell(`cd /proc/self/fd; echo *; readlink 0; trap; grep -E "Sig(Ign|Blk)" /proc/self/status`), 20*time.Second)
	if want := "0 1 2\n/dev/null\n"; !strings.HasPrefix(res.Stdout, want) && !strings.HasPrefix(res.Stdout, "0 1 2 3\n/dev/null\n") {
		t.Errorf("descriptors: %q, want %q", res.Stdout, want)
	}
	if strings.Count(res.Stdout, "\t0000000000000000\n") != 2 {
		t.Errorf("signals: %q", res.Stdout)
	}
	p := pipelineOf("env")
	p.Steps[0].Stages[0].Env = []string{"LC_ALL=C", "LANG=C", "TZ=Asia/Tokyo"}
	res = lineBy(t, w, p, 20*time.Second)
	if want := "PATH=/usr/bin:/bin\nHOME=/tmp\nPWD=/workspace\nUSER=sandbox\nLC_ALL=C\nLANG=C\nTZ=Asia/Tokyo\n"; res.Stdout != want {
		t.Errorf("environment %q, want %q", res.Stdout, want)
	}
	p.Steps[0].Stages[0].Env = []string{"LD_PRELOAD=/tmp/x.so"}
	var refused *sandbox.Error
	if _, err := w.run(t.Context(), sandbox.CommandRequest{Pipeline: p, Timeout: time.Second}); !errors.As(err, &refused) || refused.Status != sandbox.StatusDenied {
		t.Errorf("LD_PRELOAD: %v", err)
	}
	res = lineBy(t, w, pipelineOf("cat /nonexistent"), 20*time.Second)
	if res.Stderr != "cat: /nonexistent: No such file or directory\n" {
		t.Errorf("%q", res.Stderr)
	}
}

func TestPipelineGlobs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"b.txt", "a.txt", "-n.txt", ".hidden.txt"} {
		if err := os.WriteFile(name, []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := bareWarden(t)
	for line, want := range map[string]string{
		"cat *.txt":         "-n.txt\na.txt\nb.txt\n",
		"echo *.md":         "*.md\n",
		"echo x?":           "x?\n",
		"echo *.txt [ab].*": "./-n.txt a.txt b.txt a.txt b.txt\n",
	} {
		if res := lineBy(t, w, pipelineOf(line), 20*time.Second); res.Stdout != want {
			t.Errorf("%s: %q%q, want %q", line, res.Stdout, res.Stderr, want)
		}
	}
}

// alone reports whether nothing but the warden lives in its namespace.
func alone(w *warden) bool { return len(descendants(w.cage.Pid(), nil)) == 1 }

func TestPipelineLeavesNothing(t *testing.T) {
	w := bareWarden(t)
	for range 3 {
		res := lineBy(t, w, shell("sleep 1000 & (setsid sleep 1000 &) ; trap '' TERM; echo done"), 20*time.Second)
		if res.Stdout != "done\n" || res.Status != sandbox.StatusOK || res.Duration > 10*time.Second {
			t.Errorf("%+v", res)
		}
		if !alone(w) {
			t.Errorf("left: %v", descendants(w.cage.Pid(), nil))
		}
	}
}

func TestPipelineEndsAtItsLimit(t *testing.T) {
	w := bareWarden(t)
	for _, p := range []*allowlist.Pipeline{
		pipelineOf("echo partial && sleep 1000"),
		pipelineOf("echo partial && yes | tail -n 1 | cat"),
		shell("echo partial; trap '' TERM INT; sleep 1000 & while :; do :; done"),
		shell("echo partial; while :; do sleep 1000 & done"),
	} {
		res := lineBy(t, w, p, 300*time.Millisecond)
		if res.Status != sandbox.StatusTimeout || res.ExitCode != 124 || res.Stdout != "partial\n" || !strings.Contains(res.Error, "300ms") {
			t.Errorf("%+v", res)
		}
		if !alone(w) {
			t.Errorf("left: %v", descendants(w.cage.Pid(), nil))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	res, err := w.run(ctx, sandbox.CommandRequest{Pipeline: pipelineOf("echo partial && sleep 1000"), Timeout: time.Minute})
	if !errors.Is(err, context.Canceled) || res.Status != sandbox.StatusCancelled || res.ExitCode != 130 || res.Stdout != "partial\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if res := lineBy(t, w, pipelineOf("echo still here"), 20*time.Second); res.Stdout != "still here\n" {
		t.Errorf("%+v", res)
	}
}

func TestPipelineOfMuch(t *testing.T) {
	w := bareWarden(t)
	res := lineBy(t, w, pipelineOf("head -c 500000000 /dev/zero | cat | cat | cat | wc -c"), time.Minute)
	if res.Stdout != "500000000\n" {
		t.Errorf("%+v", res)
	}
	t.Logf("500 MB through four pipes: %v", res.Duration)
	res = lineBy(t, w, pipelineOf("head -c 100000000 /dev/zero"), time.Minute)
	if res.Truncated.Stdout.Produced != 100_000_000 || res.Truncated.Stdout.Kept > 20_000 || res.Status != sandbox.StatusOK {
		t.Errorf("%+v", res.Truncated)
	}
	begun := time.Now()
	res = lineBy(t, w, pipelineOf("cat /dev/zero | head -c 1 | wc -c"), time.Minute)
	if res.Stdout != "1\n" || time.Since(begun) > 10*time.Second || len(res.Notes) != 0 {
		t.Errorf("%+v", res)
	}
	// More stages than the system lets start: the line fails, the warden lives.
	res = lineBy(t, w, pipelineOf(strings.Repeat("cat | ", 200)+"wc -c"), time.Minute)
	if res.Stdout != "0\n" {
		t.Errorf("%+v", res)
	}
}

func TestPipelineShowsProgress(t *testing.T) {
	w := bareWarden(t)
	var pieces strings.Builder
	res, err := w.run(t.Context(), sandbox.CommandRequest{
		Pipeline: pipelineOf("echo one && sleep 0.1 && echo two"), Timeout: time.Minute,
		Progress: func(s sandbox.Stream, piece []byte) { fmt.Fprintf(&pieces, "%d:%s", s, piece) },
	})
	if err != nil || res.Stdout != "one\ntwo\n" || pieces.String() != "1:one\n1:two\n" {
		t.Errorf("%+v, %v, %q", res, err, pieces.String())
	}
}

func TestWardenThatDies(t *testing.T) {
	w := bareWarden(t)
	pid := w.cage.Pid()
	time.AfterFunc(200*time.Millisecond, func() { syscall.Kill(pid, syscall.SIGKILL) })
	res := lineBy(t, w, pipelineOf("echo partial && sleep 1000"), time.Minute)
	if res.Status != sandbox.StatusCrash || res.ExitCode != 137 || res.Stdout != "partial\n" || w.reason() == nil {
		t.Errorf("%+v", res)
	}
	w = bareWarden(t)
	lineBy(t, w, pipelineOf("true"), time.Minute)
	syscall.Kill(w.cage.Pid(), syscall.SIGSTOP) // it does not even hear of the end of the time
	begun := time.Now()
	res = lineBy(t, w, pipelineOf("true"), 200*time.Millisecond)
	if res.Status != sandbox.StatusTimeout || time.Since(begun) > 10*time.Second || w.reason() == nil {
		t.Errorf("%+v", res)
	}
	closing := bareWarden(t)
	time.AfterFunc(200*time.Millisecond, func() { closing.close() })
	if res, err := closing.run(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("sleep 1000"), Timeout: time.Minute}); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("%+v, %v", res, err)
	}
}

// Outside a namespace of its own it would kill all that its user has.
func TestWardenOnlyAsPID1(t *testing.T) {
	exe := os.Getenv(testBin)
	if exe == "" {
		exe = "/proc/self/exe"
	}
	out, err := exec.Command(exe, "be-child", verbWarden).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// A channel that says something else than the configuration ends the warden.
func TestWardenRefuses(t *testing.T) {
	for _, tt := range []struct {
		kind    byte
		payload string
	}{
		{'?', "{}"}, {frameRun, `{"ID":1}`}, {frameRun, `{"ID":0,"Line":{"Steps":[]}}`}, {frameRun, "{"}, {frameStop, "7"}, {frameConfig, "{}"},
	} {
		w := bareWarden(t)
		if err := kernel.WriteFrame(w.in, tt.kind, []byte(tt.payload)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.broken:
		case <-time.After(patience):
			t.Errorf("%c %s: taken", tt.kind, tt.payload)
		}
	}
}

func TestReportIsChecked(t *testing.T) {
	line := pipelineOf("a | b && c")
	good := `{"ID":7,"Steps":[[{"Name":"a"},{"Name":"b"}],[{"Name":"c","Exit":3}]]}`
	if r, err := decodeReport([]byte(good), 7, line); err != nil || r.Steps[1][0].Exit != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "null", "[]", `{}`, `{"ID":7}`, "\xff", strings.Replace(good, "7", "8", 1), strings.Replace(good, "3", "256", 1), strings.Replace(good, "3", "-1", 1),
		strings.Replace(good, `"Name":"b"`, `"Name":"x"`, 1), strings.Replace(good, `,{"Name":"b"}`, "", 1), strings.Replace(good, `"Name":"b"`, `"Name":"b","Exit":1`, 1), strings.Replace(good, `"Name":"a"`, `"Name":"a","Signal":9`, 1),
		strings.Replace(good, `"Name":"b"`, `"Name":"b","Signal":99`, 1), `{"ID":7,"Steps":[[]]}`, `{"ID":7,"Steps":[[{"Name":"a"},{"Name":"b"}],[{"Name":"c"}],[]]}`,
		strings.TrimSuffix(good, "}") + `,"Refused":{}}`,
	} {
		if r, err := decodeReport([]byte(bad), 7, line); !errors.Is(err, errWarden) {
			t.Errorf("%s: %+v, %v", bad, r, err)
		}
	}
}

func FuzzWardenReport(f *testing.F) {
	f.Add([]byte(`{"ID":1,"Steps":[[{"Name":"a"},{"Name":"b","Signal":9}]],"Refused":{"Name":"c","Text":"no"}}`))
	f.Add([]byte(`{"ID":1,"Steps":[[{"Name":"a"},{"Name":"b"}]],"Refused":{"Name":"c","Text":"no","Rule":"argument"}}`))
	f.Add([]byte(`{"ID":1,"Refused":{},"Stopped":true}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := decodeReport(payload, 1, pipelineOf("a | b && c"))
		if err != nil {
			return
		}
		var res sandbox.Result
		if (ending{report: &r}).refusedWhole() == nil {
			r.tell(&res, pipelineOf("a | b && c"))
			if res.Status == "" || (res.Status == sandbox.StatusOK) != (res.ExitCode == 0) || len(res.Error) > 3*maxReportText {
				t.Errorf("%+v", res)
			}
		}
	})
}

// The programs of a real tree are found by the table alone.
func TestPipelineSearchesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, "missing"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := bareWarden(t)
	if res := lineBy(t, w, pipelineOf("missing"), 20*time.Second); res.ExitCode != 127 || res.Stdout != "" {
		t.Errorf("%+v", res)
	}
	if !slices.Contains(commandEnv(map[string]string{"a": "/opt/x/a", "ls": "/usr/bin/ls"}, places{}), "PATH=/usr/bin:/bin:/opt/x") {
		t.Error("a program elsewhere is not on PATH")
	}
}
