package srt

import (
	"os"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// landlockWatched are the limits that a watch holds there, which TestLandlockLacks and the
// tests of the disk's limits see look.
var landlockWatched = map[string]string{
	"LM-06": "temporary files lie on the server's disk",
	"LM-09": "without a control group, tasks are counted by a watch",
	"LM-10": "without a control group, tasks are counted by a watch",
}

// landlockExceptions are the probes that get another verdict behind the wall landlock, with
// the reasons, which SECURITY.md gives too.
var landlockExceptions = map[string]string{
	"ID-02": "an ordinary user can't empty its bounding set; with no_new_privs it is of no use",
	"NT-10": "the name of a socket can be seen, as that of any file; connect is refused, and no socket can be made",
}

func TestLandlockEscape(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := local(t, Config{Wall: WallLandlock, Limits: small})
		env := sandboxtest.Bait(t, small)
		env.Except, env.Watched = landlockExceptions, landlockWatched
		sandboxtest.Escape(t, opener(l), env)
	})
}

// landlockLacks are the abilities that the wall landlock can't give.
var landlockLacks = map[sandboxtest.Ability]string{
	sandboxtest.Tracing:    "/proc is closed",
	sandboxtest.Semaphores: "/dev/shm is the host's, and closed",
	sandboxtest.Modes:      "the owner of a file, whom the guest is, may change its mode wherever it lies",
	sandboxtest.TaskLimit:  "the kernel counts all tasks of the user together; those of a session are counted by a watch",
}

func TestLandlockConformance(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := local(t, Config{Wall: WallLandlock, Limits: small, Commands: wholeList(t)})
		sandboxtest.Run(t, opener(l), sandboxtest.Abilities{Limits: small, Lacks: landlockLacks})
	})
}

// What landlockLacks says is so: an exception that is needed no longer must go.
func TestLandlockLacks(t *testing.T) {
	lacks := map[sandboxtest.Ability]string{
		sandboxtest.Tracing:    "import os; os.listdir('/proc')",
		sandboxtest.Semaphores: "import multiprocessing; multiprocessing.Lock()",
		sandboxtest.Modes:      "import os; open('a', 'w').close(); os.chmod('a', 0o600)",
	}
	asUser(t, func(t *testing.T) {
		s := opener(local(t, Config{Wall: WallLandlock, Limits: small}))(t)
		for ability, code := range lacks {
			if r, err := s.Run(t.Context(), sandbox.Request{Code: code}); err != nil || !strings.Contains(r.Error, "PermissionError") {
				t.Errorf("%s: %+v, %v", ability, r, err)
			}
		}
		// More than the limit for a moment, and not for long, or where the user runs much else not
		// even that; and nobody else feels it.
		other := opener(local(t, Config{Wall: WallLandlock, Limits: small}))(t)
		bomb := "import os, time\nfor _ in range(150):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)"
		r, err := s.Run(t.Context(), sandbox.Request{Code: bomb, Timeout: 30 * time.Second})
		if err != nil || r.Status != sandbox.StatusError || !strings.Contains(r.Error, "100 processes") {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := other.Run(t.Context(), sandbox.Request{Code: "6 * 7"}); err != nil || string(r.Output) != "42" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A fork bomb that nothing but the guardian's and the supervisor's kill(-1) is sure to end.
func TestLandlockForkBomb(t *testing.T) {
	asUser(t, func(t *testing.T) {
		s := opener(local(t, Config{Wall: WallLandlock, Limits: small}))(t)
		code := "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: pass"
		r, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 2 * time.Second})
		if err != nil || r.Success() {
			t.Errorf("%+v, %v", r, err)
		}
		t.Logf("ended after %v: %s", r.Duration, r.Error)
		if r, err := s.Run(t.Context(), sandbox.Request{Code: "6 * 7"}); err != nil || string(r.Output) != "42" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// The guest would be root, whom Landlock does not hold.
func TestLandlockRefusesRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	cfg := Config{Wall: WallLandlock, Python: testPython, Limits: small}
	cfg.native = testNative()
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "docker run --user") {
		t.Error(err)
	}
}

// There is nowhere to show a directory but where it lies.
func TestLandlockMounts(t *testing.T) {
	asUser(t, func(t *testing.T) {
		dir := t.TempDir()
		cfg := Config{Wall: WallLandlock, Python: testPython, Limits: small, Mounts: []Mount{{Host: dir, Guest: "/data"}}}
		cfg.native = testNative()
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "/data: the wall landlock shows a directory nowhere but where it lies") {
			t.Error(err)
		}
		cfg.Mounts[0].Guest = dir
		s := opener(local(t, cfg))(t)
		code := "import os\n[os.listdir('" + dir + "'), open('made', 'w').write('x')]"
		if r, err := s.Run(t.Context(), sandbox.Request{Code: code}); err != nil || string(r.Output) != "[[],1]" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
