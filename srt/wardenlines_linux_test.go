package srt

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// scriptedWarden is the server's end alone: to a line that is told to stop, the other
// end says report.
func scriptedWarden(t *testing.T, report lineReport) *warden {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
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
	go func() {
		defer closeAll(guest[:])
		r := bufio.NewReader(guest[0])
		for {
			kind, payload, err := kernel.ReadFrame(r, wardenBound)
			if err != nil {
				return
			}
			var stop lineStop
			if kind != frameStop || json.Unmarshal(payload, &stop) != nil {
				continue
			}
			report.ID = stop.ID
			text, _ := json.Marshal(report)
			_ = kernel.WriteFrame(guest[1], frameReport, text) // if the test has ended, nobody reads it
		}
	}()
	w, err := newWarden(nativeCage(cmd, nil, 0), server[0], server[1], kernel.NewOutput(server[2], server[3], 20_000), wardenConfig{}, Policy{Memory: 1 << 30})
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

// A line that ended by itself while it was told to stop has ended by itself.
func TestStopThatComesTooLate(t *testing.T) {
	ended := [][]stageReport{{{Name: "a"}}}
	for _, tt := range []struct {
		report lineReport
		status sandbox.Status
	}{
		{lineReport{Steps: ended}, sandbox.StatusOK},
		{lineReport{Steps: [][]stageReport{{{Name: "a", Exit: 3}}}}, sandbox.StatusError},
		{lineReport{Steps: ended, Stopped: true}, sandbox.StatusTimeout},
	} {
		w := scriptedWarden(t, tt.report)
		if res := lineBy(t, w, pipelineOf("a"), time.Millisecond); res.Status != tt.status || (res.Error == "") != (tt.status == sandbox.StatusOK) {
			t.Errorf("%+v: %+v", tt.report, res)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		res, err := w.run(ctx, sandbox.CommandRequest{Pipeline: pipelineOf("a"), Timeout: time.Minute})
		if gone := res.Status == sandbox.StatusCancelled; gone != tt.report.Stopped || (err != nil) != gone {
			t.Errorf("cancelled, %+v: %+v, %v", tt.report, res, err)
		}
	}
}

// A report that is there goes before all else that came with it.
func TestReportGoesFirst(t *testing.T) {
	for range 50 { // select takes any of those that are ready
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := &warden{broken: make(chan struct{})}
		l := &line{id: 1, report: make(chan lineReport, 1), stops: make(chan kernel.StopReason, 1)}
		l.report <- lineReport{ID: 1}
		l.stops <- kernel.StopReason{Status: sandbox.StatusOOM}
		close(w.broken)
		if end := w.await(ctx, l, 0); end.report == nil || end.why != nil || end.broken != nil {
			t.Fatalf("%+v", end)
		}
	}
}

// What a program sets for its output is not set for the next line's.
func TestStreamsAreReset(t *testing.T) {
	w := bareWarden(t)
	python := func(code string) string {
		res := lineBy(t, w, shell("exec "+testPython+` -I -S -c "import fcntl, os; `+code+`"`), 20*time.Second)
		if res.Status != sandbox.StatusOK || res.Stderr != "" {
			t.Fatalf("%+v", res)
		}
		return res.Stdout
	}
	const show = "print([fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (1, 2)])"
	before := python(show)
	set := python("[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT | os.O_APPEND) for fd in (1, 2)]; " + show)
	if set == before {
		t.Fatalf("nothing was set: %s", set)
	}
	if after := python(show); after != before {
		t.Errorf("%s, %s before", after, before)
	}
	if res := lineBy(t, w, pipelineOf("head -c 5000000 /dev/zero"), 20*time.Second); res.Status != sandbox.StatusOK || res.Truncated.Stdout.Produced != 5_000_000 {
		t.Errorf("%s, %+v", res.Error, res.Truncated)
	}
}

// A number that has been reaped may be an orphan's next: it ends nobody's stage.
func TestReapedNumbersAreForgotten(t *testing.T) {
	start := func() int {
		pid, err := syscall.ForkExec("/usr/bin/true", []string{"true"}, &syscall.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	pids := []int{start(), 0, start()}
	reports := make([]stageReport, len(pids))
	await(pids, reports)
	if !slices.Equal(pids, []int{0, 0, 0}) {
		t.Errorf("%v", pids)
	}
}

func TestNotes(t *testing.T) {
	s := lazily(t, withCommands(t, Config{}))
	for _, tt := range []struct {
		line  string
		code  int
		notes []string
	}{
		{"echo a | cat /dev/stdin", 1, []string{"/dev/stdin does not exist here: `-` is standard input"}},
		{"echo a | sort /dev/fd/0 | cat && echo b", 0, []string{"within the pipeline sort exited with 2", "/dev/fd/0 does not exist here: `-` is standard input"}},
		{"cat /dev/stdin | cat /dev/stdin && echo b && echo c", 1, []string{
			"within the pipeline cat exited with 1", "/dev/stdin does not exist here: `-` is standard input", notRun,
		}},
		{"echo a | cat - && echo /dev/stdin", 0, nil},
		{"grep x /dev/stdin/ && echo b", 2, []string{notRun}},
	} {
		res, err := typed(t, s, tt.line, 20*time.Second)
		if err != nil || res.ExitCode != tt.code || !slices.Equal(res.Notes, tt.notes) {
			t.Errorf("%s: %+v, %v", tt.line, res, err)
		}
	}
}

// What env runs is looked for as if it stood alone.
func TestMissingBehindEnv(t *testing.T) {
	l := withCommands(t, Config{})
	s := lazily(t, l)
	l.programs.lack = append(slices.Clone(l.programs.lack),
		Missing{Command: "tree", Program: "tree", Package: "tree", Reason: "not found"},
		Missing{Command: "awk", Program: "gawk", Package: "gawk", Reason: "not found"},
		Missing{Program: "cat", Reason: "a helper"})
	for line, want := range map[string]string{
		"env LC_ALL=C tree": "package tree", "ls && env TZ=UTC LANG=C awk 1 f": "package gawk", "awk 1 f": "package gawk",
	} {
		if _, err := typed(t, s, line, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if s.warden != nil {
		t.Error("a wall was raised for nothing")
	}
	says(t, s, "echo a | env LC_ALL=C cat", "a\n")
}

// The kernel gives a process that is not dumpable to root, whoever it runs as: nobody
// inside can open what /proc shows of it. What it starts is an ordinary process.
func TestWardenIsNotDumpable(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := withCommands(t, Config{})
		s := lazily(t, l)
		do(t, s, "open('log', 'w').write('ready\\n')", sandbox.StatusOK, sandbox.StateNew)
		p, err := s.local.cfg.Commands.Parse("tail -f log")
		if err != nil {
			t.Fatal(err)
		}
		owner := func(pid int) int {
			var st syscall.Stat_t
			if err := syscall.Stat(fmt.Sprintf("/proc/%d/fd", pid), &st); err != nil {
				t.Error(err)
			}
			return int(st.Uid)
		}
		ctx, cancel := context.WithCancel(t.Context())
		looked := false
		_, _ = s.RunCommand(ctx, sandbox.CommandRequest{Pipeline: p, Progress: func(sandbox.Stream, []byte) {
			defer cancel() // it runs
			looked = true
			uid, _ := l.wall.hostIDs()
			for _, pid := range descendants(s.warden.cage.Pid(), nil) {
				want := uid
				if pid == s.warden.cage.Pid() {
					want = 0
				}
				if got := owner(pid); got != want {
					t.Errorf("process %d, the warden is %d: it belongs to %d, want %d", pid, s.warden.cage.Pid(), got, want)
				}
			}
		}})
		if !looked {
			t.Error("nothing ran")
		}
	})
}

// Whatever is to be set for a command is judged where it is run, too.
func TestEnvironmentIsChecked(t *testing.T) {
	p := &pipelines{env: []string{"LANG=C.UTF-8"}}
	if env, err := p.environment([]string{"LANG=C", "LC_ALL=de_DE.UTF-8"}); err != nil || !slices.Equal(env, []string{"LANG=C", "LC_ALL=de_DE.UTF-8"}) {
		t.Errorf("%q, %v", env, err)
	}
	for _, v := range []string{"LD_PRELOAD=x", "LC_ALL", "LC_=C", "LC_x=C", "LC_ALL=/workspace/x", "TZ=:x", "LANG=a b", "LANG=../x", "=x", ""} {
		if env, err := p.environment([]string{v}); err == nil {
			t.Errorf("%q gives %q", v, env)
		} else if r := deniedBy("ls", err); r.Rule != "environment" {
			t.Errorf("%q: %+v", v, r)
		}
	}
}
