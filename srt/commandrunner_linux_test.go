package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// withCommands is a sandbox whose sessions run the whole list, and sleep.
func withCommands(t testing.TB, cfg Config) *Local {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{Dangerously: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Commands = list
	return local(t, cfg)
}

// lazily opens a session without Python.
func lazily(t testing.TB, l *Local) *session {
	t.Helper()
	s, err := l.Open(t.Context(), sandbox.Spec{ID: fmt.Sprintf("cli-%d", time.Now().UnixNano()), Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*session)
}

// typed runs a line as a person types it.
func typed(t testing.TB, s *session, command string, limit time.Duration) (sandbox.Result, error) {
	t.Helper()
	p, err := s.local.cfg.Commands.Parse(command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: p, Command: command, Timeout: limit})
}

// says runs a line that must succeed, and compares its output.
func says(t testing.TB, s *session, command, want string) sandbox.Result {
	t.Helper()
	res, err := typed(t, s, command, 30*time.Second)
	if err != nil || res.Status != sandbox.StatusOK || res.Stdout != want || res.State != sandbox.StateNone || res.Backend != "local" || res.Code != command {
		t.Fatalf("%s: %v, %+v\nwant %q", command, err, res, want)
	}
	return res
}

func TestCommands(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := lazily(t, withCommands(t, Config{}))
		says(t, s, "pwd", "/workspace\n")
		if s.live != nil {
			t.Error("Python was started for a command")
		}
		says(t, s, "ls", "")
		do(t, s, "open('b.txt', 'w').write('two\\none\\n'); open('-n', 'w'); x = 41", sandbox.StatusOK, sandbox.StateNew)
		says(t, s, "cat * | sort && echo $HOME $PWD $USER", "one\ntwo\n/tmp /workspace sandbox\n")
		says(t, s, "ls *", "./-n\nb.txt\n")
		says(t, s, "which ls which && echo -n x | shasum -a 256", "/usr/bin/ls\n/usr/bin/which\n2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  -\n")
		says(t, s, "env", "PATH=/usr/bin:/bin\nHOME=/tmp\nPWD=/workspace\nUSER=sandbox\nLANG=C.UTF-8\n")
		res := do(t, s, "x + 1", sandbox.StatusOK, sandbox.StateKept)
		if string(res.Output) != "42" {
			t.Errorf("%s", res.Output)
		}
		got, err := typed(t, s, "grep -c nothing b.txt && echo no", 0)
		if err != nil || got.Status != sandbox.StatusError || got.ExitCode != 1 || got.Stdout != "0\n" || !strings.Contains(got.Error, "no line matched") {
			t.Errorf("%+v, %v", got, err)
		}
		if err := s.Reset(t.Context()); err != nil || s.warden != nil {
			t.Errorf("%v, %v", err, s.warden)
		}
		says(t, s, "cat b.txt", "two\none\n")
	})
}

// Reset of a session without Python starts none.
func TestResetStaysLazy(t *testing.T) {
	s := lazily(t, withCommands(t, Config{}))
	says(t, s, "echo a", "a\n")
	if err := s.Reset(t.Context()); err != nil || s.live != nil {
		t.Errorf("%v, %v", err, s.live)
	}
	do(t, s, "1", sandbox.StatusOK, sandbox.StateNew)
}

func TestCommandsAreRefused(t *testing.T) {
	l := withCommands(t, Config{})
	s := lazily(t, l)
	status := func(req sandbox.CommandRequest) sandbox.Status {
		_, err := s.RunCommand(t.Context(), req)
		var e *sandbox.Error
		if !errors.As(err, &e) {
			t.Errorf("%+v: %v", req, err)
			return ""
		}
		return e.Status
	}
	for _, req := range []sandbox.CommandRequest{
		{}, {Pipeline: &allowlist.Pipeline{}}, {Pipeline: &allowlist.Pipeline{Steps: []allowlist.Step{{}}}}, {Pipeline: pipelineOf("ls"), Timeout: -1},
	} {
		if got := status(req); got != sandbox.StatusInvalid {
			t.Errorf("%+v: %s", req, got)
		}
	}
	if s.warden != nil {
		t.Error("a wall was raised for nothing")
	}
	// A pipeline that was not read by Parse is checked all the same, within the wall.
	for _, line := range []string{"find . -delete", "sh -c id", "sort -o x y", "sed -i s/a/b/ f"} {
		if got := status(sandbox.CommandRequest{Pipeline: pipelineOf(line)}); got != sandbox.StatusDenied {
			t.Errorf("%s: %s", line, got)
		}
	}
	res, err := s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("echo first && find . -delete")})
	if err != nil || res.Status != sandbox.StatusError || res.ExitCode != 126 || res.Stdout != "first\n" || !strings.Contains(res.Error, "-delete") {
		t.Errorf("%+v, %v", res, err)
	}
	l.programs.lack = append(slices.Clone(l.programs.lack), Missing{Command: "tree", Program: "tree", Package: "tree", Reason: "not found"})
	_, err = s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("echo a | tree")})
	if err == nil || !strings.Contains(err.Error(), "package tree") {
		t.Errorf("%v", err)
	}
	none := lazily(t, local(t, Config{}))
	if _, err := none.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("ls")}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

func TestCommandsEnd(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := lazily(t, withCommands(t, Config{}))
		do(t, s, "open('log', 'w').write('line\\n'); x = 1", sandbox.StatusOK, sandbox.StateNew)
		res, err := typed(t, s, "tail -f log", 300*time.Millisecond)
		if err != nil || res.Status != sandbox.StatusTimeout || res.ExitCode != 124 || res.Stdout != "line\n" {
			t.Errorf("%+v, %v", res, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		p, err := s.local.cfg.Commands.Parse("echo partial && tail -f log")
		if err != nil {
			t.Fatal(err)
		}
		res, err = s.RunCommand(ctx, sandbox.CommandRequest{Pipeline: p})
		if !errors.Is(err, context.Canceled) || res.Status != sandbox.StatusCancelled || res.Stdout != "partial\nline\n" {
			t.Errorf("%+v, %v", res, err)
		}
		pid := s.warden.cage.Pid()
		if len(descendants(pid, nil)) != 1 {
			t.Error("something is left")
		}
		// Killed between the lines, and during one.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.warden.broken
		says(t, s, "echo again", "again\n")
		working := s.warden.cage.Pid()
		time.AfterFunc(300*time.Millisecond, func() { syscall.Kill(working, syscall.SIGKILL) })
		res, err = typed(t, s, "echo partial && sleep 100", time.Minute)
		if err != nil || res.Status != sandbox.StatusCrash || res.Stdout != "partial\n" || s.warden != nil {
			t.Errorf("%+v, %v", res, err)
		}
		says(t, s, "echo again", "again\n")
		do(t, s, "x", sandbox.StatusOK, sandbox.StateKept)

		pid = s.warden.cage.Pid()
		closed := make(chan error)
		time.AfterFunc(300*time.Millisecond, func() { closed <- s.Close() })
		if res, err := typed(t, s, "sleep 100", time.Minute); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("%+v, %v", res, err)
		}
		if err := errors.Join(<-closed, s.Close()); err != nil {
			t.Error(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the warden is left: %v", err)
		}
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory is left: %v", err)
		}
		if _, err := s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("ls")}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// What does not fit into memory is sorted on /tmp; what goes beyond the limit
// of memory, with /tmp in it, ends the line and no more.
func TestCommandsAndMemory(t *testing.T) {
	sideBySide(t)
	asEachUser(t, func(t *testing.T) {
		s := lazily(t, withCommands(t, Config{}))
		do(t, s, `
import os
with open('big', 'w') as f:
    for _ in range(105):
        h = os.urandom(475_000).hex()
        f.write('\n'.join([h[i:i + 19] for i in range(0, 950_000, 19)]) + '\n')`, sandbox.StatusOK, sandbox.StateNew)
		res, err := typed(t, s, "sort big | uniq | wc -l", 2*time.Minute)
		if err != nil || res.Status != sandbox.StatusOK || res.Stdout != "5250000\n" {
			t.Errorf("%+v, %v", res, err)
		}
		t.Logf("sort of 105 MB: %v", res.Duration)
		// Each of them stays below what one process may have.
		hog := `awk 'BEGIN { x = "xxxxxxxx"; while (length(x) < 2^27) x = x x; while (1) n++ }'`
		res, err = typed(t, s, hog+strings.Repeat(" | "+hog, 5), time.Minute)
		if err != nil || res.Status != sandbox.StatusOOM || res.ExitCode != 137 || !strings.Contains(res.Error, "512 MiB") {
			t.Errorf("%+v, %v", res, err)
		}
		t.Logf("hogs: %s after %v", res.Status, res.Duration)
		says(t, s, "echo here", "here\n")
	})
}

func TestCommandsTakeTurns(t *testing.T) {
	s := lazily(t, withCommands(t, Config{}))
	done := make(chan sandbox.Result)
	go func() {
		res, _ := s.Run(context.Background(), sandbox.Request{Code: "import time; time.sleep(0.5); open('made', 'w').write('x')"})
		done <- res
	}()
	time.Sleep(100 * time.Millisecond)
	says(t, s, "cat made", "x")
	if res := <-done; !res.Success() {
		t.Errorf("%+v", res)
	}
}

// A guest that takes the rights from its workspace takes nothing from the next command.
func TestCommandsInAWorkspaceWithoutRights(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := lazily(t, withCommands(t, Config{}))
		do(t, s, "import os; open('a', 'w').write('x'); os.chmod('/workspace', 0)", sandbox.StatusOK, sandbox.StateNew)
		says(t, s, "cat a", "x")
		do(t, s, "os.chmod('/workspace', 0)", sandbox.StatusOK, sandbox.StateKept)
		says(t, s, "ls", "a\n")
	})
}

// Goroutines end with the session.
func TestCommandsLeaveNoDescriptors(t *testing.T) {
	l := withCommands(t, Config{})
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	one := func() {
		s := lazily(t, l)
		says(t, s, "echo a", "a\n")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	one()
	before := count()
	for range 5 {
		one()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if left, err := filepath.Glob(filepath.Join(l.runtime.path, "cli-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
