package srt

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// whenParked waits until the checkpoint that follows a call has been made.
func whenParked(t *testing.T, s *session) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.live.watchdog.standby() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no checkpoint is made")
		}
	}
}

// However the interpreter ends, the next call has the variables of the one before.
func TestRestored(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Limits: small})
		s := opener(l)(t).(*session)
		do(t, s, "import os, signal, time\nx = 0", sandbox.StatusOK, sandbox.StateNew)
		for i, c := range []struct {
			code    string
			timeout time.Duration
			status  sandbox.Status
		}{
			{"x = 99; os._exit(3)", 0, sandbox.StatusCrash},
			{"x = 99; os.abort()", 0, sandbox.StatusCrash},
			{"x = 99; os.kill(os.getpid(), signal.SIGKILL)", 0, sandbox.StatusCrash},
			{"x = 99; os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 0, sandbox.StatusCrash},
			{"x = 99\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass", time.Second, sandbox.StatusTimeout},
			{"x = 99\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        while True: time.sleep(1)\nos._exit(1)", 0, sandbox.StatusCrash},
		} {
			whenParked(t, s)
			start := time.Now()
			res, err := s.Run(t.Context(), sandbox.Request{Code: c.code, Timeout: c.timeout})
			if err != nil || res.Status != c.status || res.State != sandbox.StateRestored || !strings.Contains(res.Error, "undone") {
				t.Errorf("%s\n%s, %s, %v: %s%q", c.code, res.Status, res.State, err, res.Error, res.Notes)
			}
			t.Logf("%s: %v", res.Error, time.Since(start)-c.timeout)
			if res := do(t, s, "x += 1\n[x, [p for p in os.listdir('/proc') if p.isdigit()]]", sandbox.StatusOK, sandbox.StateKept); !strings.HasPrefix(string(res.Output), "["+string(rune('1'+i))+",") || strings.Count(string(res.Output), ",") > 4 {
				t.Errorf("after it: %s, want %d first", res.Output, i+1)
			}
			if n := l.Checkpoints(); n.Taken != int64(i+1) || n.Made < n.Taken {
				t.Errorf("after %d takeovers: %+v", i+1, n)
			}
		}
	})
}

// Without checkpoints the variables are lost, and nothing says otherwise.
func TestCheckpointOff(t *testing.T) {
	s := opener(local(t, Config{Checkpoint: sandbox.CheckpointOff}))(t).(*session)
	do(t, s, "import os; x = 1", sandbox.StatusOK, sandbox.StateNew)
	time.Sleep(200 * time.Millisecond)
	if pid := s.live.watchdog.standby(); pid != 0 {
		t.Errorf("process %d is parked", pid)
	}
	if res := do(t, s, "os._exit(3)", sandbox.StatusCrash, sandbox.StateLost); len(res.Notes) > 0 {
		t.Errorf("notes: %q", res.Notes)
	}
	do(t, s, "x", sandbox.StatusError, sandbox.StateNew)
}

// Variables that a checkpoint was expected to save are lost with a reason.
func TestNoRoomForCheckpoint(t *testing.T) {
	s := opener(local(t, Config{Limits: small}))(t).(*session)
	do(t, s, "import os; data = bytearray(b'1') * (220 << 20)", sandbox.StatusOK, sandbox.StateNew)
	res := do(t, s, "os._exit(3)", sandbox.StatusCrash, sandbox.StateLost)
	if !slices.ContainsFunc(res.Notes, func(note string) bool {
		return strings.Contains(note, "no checkpoint was there") && strings.Contains(note, "200 MiB")
	}) {
		t.Errorf("notes: %q", res.Notes)
	}
	if res = do(t, s, "import os; os._exit(3)", sandbox.StatusCrash, sandbox.StateLost); len(res.Notes) > 0 {
		t.Errorf("notes of a first call: %q", res.Notes)
	}
}

// Memory is short because the session holds data twice, once in the standby: that one is
// given up, the call goes on, and what is said of the variables stays true.
func TestStandbyGivenUp(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := opener(local(t, Config{Limits: small}))(t).(*session)
		do(t, s, "import os, time; x = 1; data = bytearray(150 << 20)", sandbox.StatusOK, sandbox.StateNew)
		whenParked(t, s)
		// Every page anew, and more besides: together beyond the limit of 320 MiB, alone far from it.
		rewrite := "for i in range(0, len(data), 4096): data[i] = %s\nmore = bytearray(b'1') * (80 << 20)\nfor _ in range(15): time.sleep(0.1)\n"
		rewritten := strings.ReplaceAll(rewrite, "%s", "1")
		do(t, s, rewritten+"more = None", sandbox.StatusOK, sandbox.StateKept)
		whenParked(t, s)
		longer := "for _ in range(40): time.sleep(0.1)\n" // a watchdog on a busy machine looks when it can
		do(t, s, strings.ReplaceAll(rewrite, "%s", "2")+longer+"os._exit(3)", sandbox.StatusCrash, sandbox.StateLost)
		do(t, s, "x", sandbox.StatusError, sandbox.StateNew)
	})
}

// Memory is short because the call has taken it: what was there before the call is restored.
func TestMemoryRestored(t *testing.T) {
	sideBySide(t)
	asEachUser(t, func(t *testing.T) {
		for name, code := range map[string]string{
			"children":        "x = 2\nimport time\nfor _ in range(4):\n    if os.fork() == 0:\n        b = bytearray(b'1') * (150 << 20)\n        time.sleep(20)\n        os._exit(0)\ntime.sleep(20)",
			"shared mappings": "x = 2\nimport mmap\nall = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)\n    m.write(b'1' * (8 << 20))\n    all.append(m)",
		} {
			t.Run(name, func(t *testing.T) {
				s := opener(local(t, Config{Limits: small}))(t).(*session)
				do(t, s, "import os; x = 1; data = bytearray(50 << 20)", sandbox.StatusOK, sandbox.StateNew)
				whenParked(t, s)
				res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 15 * time.Second})
				t.Logf("%s, %s, %v: %s%q", res.Status, res.State, err, res.Error, res.Notes)
				if name == "shared mappings" && (err != nil || res.Status != sandbox.StatusOOM || res.State != sandbox.StateRestored) {
					t.Errorf("%s, %s, %v", res.Status, res.State, err)
				}
				want := "1"
				if res.State == sandbox.StateKept { // the kernel took a child instead
					want = "2"
				}
				if res := do(t, s, "x", sandbox.StatusOK, sandbox.StateKept); string(res.Output) != want {
					t.Errorf("x is %s, want %s", res.Output, want)
				}
			})
		}
	})
}
