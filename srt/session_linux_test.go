package srt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// do runs code that must end as want.
func do(t *testing.T, s sandbox.Session, code string, want sandbox.Status, state sandbox.State) sandbox.Result {
	t.Helper()
	res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 20 * time.Second})
	if err != nil || res.Status != want || res.State != state {
		t.Fatalf("%s\ngot %s, %s, %v; want %s, %s\n%s%s%q", code, res.Status, res.State, err, want, state, res.Error, res.Stderr, res.Notes)
	}
	return res
}

func TestWallThatDies(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{})
		s := opener(l)(t).(*session)
		do(t, s, "x = 1; open('kept', 'w').write('yes')", sandbox.StatusOK, sandbox.StateNew)
		kill := func(pid int) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		kill(s.live.cage.Pid())
		<-s.live.client.Broken()
		res := do(t, s, "'x' in globals(), open('kept').read()", sandbox.StatusOK, sandbox.StateLost)
		if string(res.Output) != `[false,"yes"]` || len(res.Notes) == 0 {
			t.Errorf("between the calls: %s, %q", res.Output, res.Notes)
		}
		do(t, s, "y = 2", sandbox.StatusOK, sandbox.StateKept)
		pid := s.live.cage.Pid()
		time.AfterFunc(200*time.Millisecond, func() { kill(pid) })
		do(t, s, "while True: pass", sandbox.StatusCrash, sandbox.StateLost)
		res = do(t, s, "'y' in globals()", sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != "false" || len(res.Notes) != 0 {
			t.Errorf("after the call that said so: %s, %q", res.Output, res.Notes)
		}
	})
}

func TestSharedWorkspace(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir, err := os.MkdirTemp("", "shared-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.WriteFile(filepath.Join(dir, "in"), []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		writable := local(t, Config{Workspace: dir})
		s := opener(writable)(t)
		do(t, s, "assert open('in').read() == 'data'; open('out', 'w').write('made inside')", sandbox.StatusOK, sandbox.StateNew)
		info, err := os.Stat(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != uint32(os.Geteuid()) {
			t.Errorf("what the guest made belongs to %d, not to the workspace's owner", uid)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		readOnly := local(t, Config{Workspace: dir, WorkspaceReadOnly: true})
		res := do(t, opener(readOnly)(t), "print(open('out').read()); open('more', 'w')", sandbox.StatusError, sandbox.StateNew)
		if !strings.Contains(res.Stdout, "made inside") || !strings.Contains(res.Error, "Read-only file system") {
			t.Errorf("%s%s", res.Stdout, res.Error)
		}
	})
}

func TestOpenFailsWhole(t *testing.T) {
	l := local(t, Config{})
	for _, id := range []string{"", ".", "..", "a/b", ".hidden"} {
		if s, err := l.Open(t.Context(), sandbox.Spec{ID: id}); err == nil {
			t.Errorf("%q named a session", id)
			s.Close()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := l.Open(ctx, sandbox.Spec{ID: "late"}); err == nil {
		t.Error("opened for a caller that has gone")
		s.Close()
	}
	if left, err := os.ReadDir(l.runtime.path); err != nil || len(left) != 1 { // lock
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := New(t.Context(), Config{Workspace: "/nonexistent", Limits: sandbox.Limits{Memory: 1}}); err == nil ||
		!strings.Contains(err.Error(), "workspace") || !strings.Contains(err.Error(), "memory") {
		t.Errorf("not all faults of a configuration are told: %v", err)
	}
}

func TestSessionsAreStrangers(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Checkpoint: sandbox.CheckpointOff}) // a standby would be a third process
		a, b := opener(l)(t), opener(l)(t)
		do(t, a, "secret = 1; open('secret', 'w').write('a'); open('/tmp/secret', 'w').write('a')", sandbox.StatusOK, sandbox.StateNew)
		res := do(t, b, "import os; ('secret' in globals(), os.path.exists('secret'), os.path.exists('/tmp/secret'), len([p for p in os.listdir('/proc') if p.isdigit()]))", sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != "[false,false,false,2]" {
			t.Errorf("one session sees another: %s", res.Output)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("after the sandbox was closed: %v", err)
		}
	})
}

func TestJudgeAcceptsNothingButFailures(t *testing.T) {
	good := map[string]string{}
	for i := range attempts {
		good[fmt.Sprint(i)] = "failed: EPERM"
	}
	result := func(change func(map[string]string)) sandbox.Result {
		m := map[string]string{}
		for k, v := range good {
			m[k] = v
		}
		change(m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.Result{Status: sandbox.StatusOK, ReturnValue: b}
	}
	if err := judge(result(func(map[string]string) {})); err != nil {
		t.Errorf("a wall that holds: %v", err)
	}
	for name, res := range map[string]sandbox.Result{
		"one got through":  result(func(m map[string]string) { m["0"] = "succeeded: 'x'" }),
		"one is missing":   result(func(m map[string]string) { delete(m, "0") }),
		"nothing was told": {Status: sandbox.StatusOK},
		"the code failed":  {Status: sandbox.StatusError},
	} {
		if judge(res) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// No process that runs a guest's code is outside the session's group.
func TestEveryProcessIsInTheGroup(t *testing.T) {
	l := local(t, Config{})
	required(t, l.wall.limitsMemory() || os.Geteuid() != 0, "no control group can be made here")
	if !l.wall.limitsMemory() {
		t.Skip("an ordinary user's server has no control groups here")
	}
	for range 10 {
		s := opener(l)(t).(*session)
		do(t, s, "import subprocess; p = subprocess.Popen(['sleep', '60'])", sandbox.StatusOK, sandbox.StateNew)
		all := descendants(s.live.cage.Pid(), nil)
		if len(all) < 3 {
			t.Errorf("%d processes instead of three", len(all))
		}
		for _, pid := range all {
			groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			if err == nil && strings.Contains(string(groups), groupPrefix) {
				continue
			}
			// A process that is ending, as the middle one of a standby's two forks, is in no group.
			for deadline := time.Now().Add(5 * time.Second); runs(pid) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if runs(pid) {
				t.Errorf("process %d: %v\n%s", pid, err, groups)
			}
		}
	}
}

// A guest that takes the rights from its workspace has them given back before the next
// call, whatever became of the interpreter.
func TestWorkspaceWithoutRights(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := opener(local(t, Config{}))(t)
		do(t, s, "import os; os.chmod('/workspace', 0); os._exit(3)", sandbox.StatusCrash, sandbox.StateLost) // nothing was there to save
		do(t, s, "import os; open('a', 'w'); os.chmod('/workspace', 0o111)", sandbox.StatusOK, sandbox.StateNew)
		do(t, s, "os.chmod('/workspace', 0); os._exit(3)", sandbox.StatusCrash, sandbox.StateRestored)
		do(t, s, "open('b', 'w'); os.chmod('/workspace', 0)", sandbox.StatusOK, sandbox.StateKept)
		if err := s.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		if res := do(t, s, "import os; (os.getcwd(), sorted(os.listdir()))", sandbox.StatusOK, sandbox.StateNew); string(res.Output) != `["/workspace",["a","b"]]` {
			t.Errorf("%s", res.Output)
		}
	})
}
