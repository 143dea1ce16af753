package srt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcp-sandbox/sandbox"
)

// BenchmarkRound is what the watch on a session costs: what is left of it while nothing runs, and whole.
func BenchmarkRound(b *testing.B) {
	l := local(b, Config{Limits: small})
	s, err := l.Open(b.Context(), sandbox.Spec{ID: "watched"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(b.Context(), sandbox.Request{Code: "for i in range(100): open(f'f{i}', 'w').write('x')"}); err != nil {
		b.Fatal(err)
	}
	live := s.(*session).live
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := activityOf(live.cage.kin, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("disk", func(b *testing.B) {
		for b.Loop() {
			if _, err := live.watchdog.disk.measure(0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("held", func(b *testing.B) {
		for b.Loop() {
			if _, err := heldBy(live.cage.kin, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			if _, err := memoryOf(live.cage.kin, 1<<40, held{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// tight has little room on the disk. Writers in these tests are slow, some 80 MiB/s, and would
// write some 400 MiB: what is left tells when they were stopped.
var tight = sandbox.Limits{
	Memory: 320 << 20, Tasks: 100, Disk: 16 << 20, Inodes: 2000, Shm: 32 << 20, OpenFiles: 256,
}

// writer is Python that defines fill, which writes slowly.
const writer = `
import os, subprocess, sys, time
def fill(where='.', first=0, n=100, each=4 << 20, keep=None):
    for i in range(first, first + n):
        f = open(f'{where}/f{i}', 'wb')
        f.write(b'x' * each); f.flush()
        if keep is None: f.close()
        else: os.unlink(f.name); keep.append(f)
        time.sleep(each / (80 << 20))
def background(code):
    return subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
slowly = '''
import time
time.sleep(%g)
for i in range(100):
    open(f'b{i}', 'wb').write(b'x' * (4 << 20)); time.sleep(0.05)
'''
`

// heldIn adds up a session's workspace.
func heldIn(t *testing.T, s *session) int64 {
	t.Helper()
	used, err := measure(s.workspace, usage{1 << 62, 1 << 30, ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return used.bytes
}

// broken waits until the watchdog has ended the session's interpreter.
func broken(t *testing.T, s *session) {
	t.Helper()
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	select {
	case <-live.client.Broken():
	case <-time.After(20 * time.Second):
		t.Fatalf("nothing ended the session, which holds %d MiB", heldIn(t, s)>>20)
	}
	if why := live.watchdog.reason(); !strings.Contains(why, "limit") {
		t.Errorf("the reason is %q", why)
	}
}

// atMost fails if more is left in the workspace, and shows how much it was.
func atMost(t *testing.T, s *session, mb int64) {
	t.Helper()
	got := heldIn(t, s) >> 20
	t.Logf("%d MiB are left in the workspace", got)
	if got > mb {
		t.Errorf("%d MiB in a workspace of 16 MiB", got)
	}
}

func TestFullWorkspace(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		for name, code := range map[string]string{
			"bytes":  "import time\nfor i in range(1000):\n    open(f'f{i}', 'wb').write(bytes(8 << 20)); time.sleep(0.05)",
			"inodes": "import time\nfor i in range(1000):\n    for j in range(100): open(f'{i}-{j}', 'w')\n    time.sleep(0.05)",
		} {
			s := opener(local(t, Config{Limits: small}))(t)
			res := do(t, s, code, sandbox.StatusError, sandbox.StateNew)
			if !strings.Contains(res.Error, "its limit: delete") {
				t.Errorf("%s: %s", name, res.Error)
			}
			res = do(t, s, "import os, time\nfor f in os.listdir('.'): os.remove(f)\ntime.sleep(1.5)\ni", sandbox.StatusOK, sandbox.StateKept)
			if string(res.Output) == "999" {
				t.Errorf("%s: the code was not stopped", name)
			}
		}
	})
}

func TestDiskLimit(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Limits: tight})
		open := func(t *testing.T) *session {
			s := opener(l)(t).(*session)
			do(t, s, writer, sandbox.StatusOK, sandbox.StateNew)
			return s
		}
		t.Run("a child between the calls", func(t *testing.T) {
			s := open(t)
			do(t, s, "background(slowly % 3); None", sandbox.StatusOK, sandbox.StateKept)
			broken(t, s)
			atMost(t, s, 150)
		})
		t.Run("a thread between the calls", func(t *testing.T) {
			s := open(t)
			do(t, s, "import threading; threading.Thread(target=fill, daemon=True).start()", sandbox.StatusOK, sandbox.StateKept)
			broken(t, s)
			atMost(t, s, 150)
		})
		t.Run("short calls", func(t *testing.T) {
			s := open(t)
			ended := false
			for range 60 {
				res, err := s.Run(t.Context(), sandbox.Request{Code: "n = globals().get('n', 0) + 1\nimport time; open(f's{n}-{time.time()}', 'wb').write(b'x' * (4 << 20)); time.sleep(0.05)"})
				if ended = err != nil || !res.Success(); ended {
					break
				}
			}
			if !ended {
				t.Error("no call was stopped")
			}
			atMost(t, s, 100)
		})
		t.Run("very short calls", func(t *testing.T) { // none of them is running when it is looked at
			s := open(t)
			ended := false
			for range 400 {
				res, err := s.Run(t.Context(), sandbox.Request{Code: "n = globals().get('n', 0) + 1\nopen(f's{n}-{time.time()}', 'wb').write(b'x' * (1 << 20)); None"})
				if ended = err != nil || !res.Success(); ended {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if !ended {
				t.Error("no call was stopped")
			}
			atMost(t, s, 250)
		})
		t.Run("a thread among short calls", func(t *testing.T) { // which don't put the look at it off
			s := open(t)
			do(t, s, "import threading; threading.Thread(target=fill, daemon=True).start()", sandbox.StatusOK, sandbox.StateKept)
			ended := false
			for range 300 {
				res, err := s.Run(t.Context(), sandbox.Request{Code: "1"})
				if ended = err != nil || !res.Success() || res.State != sandbox.StateKept; ended {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if !ended {
				t.Error("nothing was stopped")
			}
			atMost(t, s, 150)
		})
		t.Run("again and again", func(t *testing.T) {
			s := open(t)
			for i := range 12 {
				res, err := s.Run(t.Context(), sandbox.Request{Code: writer + "fill(first=int(time.time() * 1e6))", Timeout: 20 * time.Second})
				if err == nil && res.Success() {
					t.Errorf("call %d was not stopped", i)
				}
			}
			atMost(t, s, 250)
		})
		t.Run("deleted and open", func(t *testing.T) {
			s := open(t)
			res := do(t, s, "kept = []; fill(keep=kept)", sandbox.StatusError, sandbox.StateKept)
			if !strings.Contains(res.Error, "its limit: delete") {
				t.Error(res.Error)
			}
			res = do(t, s, "len(kept)", sandbox.StatusOK, sandbox.StateKept)
			t.Logf("%s files of 4 MiB were kept", res.Output)
		})
		t.Run("deleted and mapped", func(t *testing.T) {
			s := open(t)
			res := do(t, s, `
import mmap
kept = []
for i in range(100):
    with open(f'm{i}', 'w+b') as f:
        f.write(b'x' * (4 << 20)); f.flush()
        kept.append(mmap.mmap(f.fileno(), 0)); os.unlink(f.name)
    time.sleep(0.05)
`, sandbox.StatusError, sandbox.StateKept)
			if !strings.Contains(res.Error, "its limit: delete") {
				t.Error(res.Error)
			}
		})
		t.Run("a closed directory", func(t *testing.T) {
			s := open(t)
			res, err := s.Run(t.Context(), sandbox.Request{Timeout: 20 * time.Second, Code: `
os.mkdir('d'); fds = [os.open(f'd/{i}', os.O_CREAT | os.O_WRONLY) for i in range(100)]; os.chmod('d', 0)
for fd in fds:
    os.write(fd, b'x' * (4 << 20)); time.sleep(0.05)
`})
			if err != nil || res.Status != sandbox.StatusError || !strings.Contains(res.Error, "limit") {
				t.Errorf("%s: %s, %v", res.Status, res.Error, err)
			}
			res = do(t, s, "os.chmod('d', 0o700); import shutil; shutil.rmtree('d'); time.sleep(0.5); 1", sandbox.StatusOK, sandbox.StateKept)
			atMost(t, s, 16)
		})
		t.Run("a writer of an earlier call", func(t *testing.T) {
			s := open(t)
			do(t, s, "background(slowly % 1); None", sandbox.StatusOK, sandbox.StateKept)
			res, err := s.Run(t.Context(), sandbox.Request{Code: "import time; time.sleep(15)", Timeout: 20 * time.Second})
			if err != nil || res.Status != sandbox.StatusError {
				t.Errorf("%s: %s, %v", res.Status, res.Error, err)
			}
			time.Sleep(3 * time.Second)
			before := heldIn(t, s)
			time.Sleep(time.Second)
			if after := heldIn(t, s); after != before {
				t.Errorf("a writer lives: %d, then %d", before, after)
			}
			atMost(t, s, 150)
		})
		t.Run("cleaning up", func(t *testing.T) {
			s := open(t)
			do(t, s, "fill()", sandbox.StatusError, sandbox.StateKept)
			do(t, s, "time.sleep(2); [os.remove(f) for f in os.listdir('.')]; time.sleep(0.5)", sandbox.StatusOK, sandbox.StateKept)
			do(t, s, "fill(n=2); time.sleep(0.5)", sandbox.StatusOK, sandbox.StateKept)
		})
	})
}

func TestNobodyHides(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			return // root sees all
		}
		s := opener(local(t, Config{Limits: tight}))(t).(*session)
		res, err := s.Run(t.Context(), sandbox.Request{Timeout: 20 * time.Second, Code: `
import ctypes, time
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0 # PR_SET_DUMPABLE
time.sleep(10)
`})
		if err != nil || res.Status != sandbox.StatusError || !strings.Contains(res.Error, "could not be looked into") {
			t.Errorf("%s: %s, %v", res.Status, res.Error, err)
		}
	})
}

func TestNothingStaysInFlight(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := opener(local(t, Config{Limits: tight}))(t)
		do(t, s, `
import os, socket, time
a, b = socket.socketpair()
for _ in range(20):
    fd = os.memfd_create('m'); socket.send_fds(a, [b'x'], [fd]); os.close(fd)
    for fd in socket.recv_fds(b, 1, 1)[1]: os.close(fd)
    time.sleep(0.15)`, sandbox.StatusOK, sandbox.StateNew)
		res, err := s.Run(t.Context(), sandbox.Request{Timeout: 20 * time.Second, Code: `
fd = os.memfd_create('m'); socket.send_fds(a, [b'x'], [fd]); os.close(fd)
time.sleep(10)`})
		if err != nil || res.Status != sandbox.StatusError || !strings.Contains(res.Error, "sent and not received") {
			t.Errorf("%s: %s, %v", res.Status, res.Error, err)
		}
	})
}

// Each takes some 600 MiB where 320 are allowed, slowly.
func TestMemoryLimit(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		if err := canWatchMemory(); err != nil {
			t.Error(err)
		}
		l := local(t, Config{Limits: small})
		for name, code := range map[string]string{
			"four processes": `
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = [bytearray(b'x' * (1 << 20)) for _ in range(200)]
        time.sleep(60)
time.sleep(60)`,
			"memory files": `
import os, time
fds = []
for i in range(75):
    fds.append(os.memfd_create('m')); os.write(fds[-1], b'x' * (8 << 20)); time.sleep(0.03)
time.sleep(10)`,
			"memory files of one thread": `
import ctypes, os, threading, time
def leak():
    for i in range(75):
        fd = os.memfd_create('m'); os.write(fd, b'x' * (8 << 20)); time.sleep(0.03)
    time.sleep(10)
t = threading.Thread(target=leak); t.start(); t.join()`,
			"shared mappings": `
import mmap, time
kept = []
for i in range(75):
    kept.append(mmap.mmap(-1, 8 << 20)); kept[-1].write(b'x' * (8 << 20)); time.sleep(0.03)
time.sleep(10)`,
			"leaders that have ended": `
import ctypes, os, threading, time
def hold():
    held = [bytearray(b'x' * (1 << 20)) for _ in range(200)]
    time.sleep(60)
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hold).start()
        nr = 60 if os.uname().machine == 'x86_64' else 93
        ctypes.PyDLL(None).syscall.argtypes = [ctypes.c_long, ctypes.c_long]
        ctypes.CDLL(None).syscall(ctypes.c_long(nr), ctypes.c_long(0))
time.sleep(20)`,
		} {
			t.Run(name, func(t *testing.T) {
				s := opener(l)(t)
				begun := time.Now()
				res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 15 * time.Second})
				// With a control group the kernel picks its victims: they may be the children alone.
				if err != nil || res.Status != sandbox.StatusOOM && !l.wall.limitsMemory() {
					t.Errorf("%s: %s, %v", res.Status, res.Error, err)
				}
				t.Logf("%s after %v", res.Status, time.Since(begun))
				res, err = s.Run(t.Context(), sandbox.Request{Code: "1 + 1"})
				if err != nil || !res.Success() {
					t.Errorf("the next call: %+v, %v", res, err)
				}
			})
		}
		t.Run("short calls", func(t *testing.T) {
			s := opener(l)(t)
			for range 75 {
				res, err := s.Run(t.Context(), sandbox.Request{Code: `
import os, time
kept = globals().get('kept', [])
kept.append(os.memfd_create('m')); os.write(kept[-1], b'x' * (8 << 20)); time.sleep(0.04)`})
				if err != nil || res.Status == sandbox.StatusOOM || res.State == sandbox.StateLost {
					return
				}
			}
			t.Error("600 MiB were kept")
		})
	})
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	write := func(path string, n int) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "large"), 8<<20)
	write(filepath.Join(dir, "a"), 1<<20)
	deep := dir
	for range 5 {
		deep = filepath.Join(deep, "d")
	}
	err := errors.Join(
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.MkdirAll(deep, 0o700),
	)
	if err != nil {
		t.Fatal(err)
	}
	all := usage{1 << 40, 1 << 20, ""}
	used, err := measure(dir, all, nil)
	if err != nil || used.inodes != 8 || used.bytes < 1<<20 || used.bytes > 2<<20 || used.blind != "" {
		t.Errorf("%+v, %v", used, err)
	}
	if used, err = measure(dir, usage{1 << 40, 3, ""}, nil); err != nil || used.inodes != 4 {
		t.Errorf("did not end early: %+v, %v", used, err)
	}
	fd, err := openDir(unix.AT_FDCWD, filepath.Join(dir, "link"))
	if err == nil {
		unix.Close(fd)
		t.Error("followed a link")
	}
	for range maxDepth {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if used, err = measure(dir, all, nil); err != nil || used.blind == "" {
		t.Errorf("deeper than can be measured: %+v, %v", used, err)
	}
}

// What was there before a session is not held against it, and what it adds is.
func TestHoldings(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := holdings(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk(Policy{Workspace: Mount{Host: dir}, Disk: 1 << 20, Inodes: 100}, b)
	look := func(want action) {
		t.Helper()
		used, err := d.measure(0)
		if err != nil {
			t.Fatal(err)
		}
		if v := d.judge(used, moment{ran: true, running: time.Second}); v.act != want {
			t.Errorf("%+v: %+v, want %v", used, v, want)
		}
	}
	look(leave)
	for _, step := range []struct {
		n    int
		want action
	}{{1 << 19, leave}, {2 << 20, interrupt}, {40 << 20, end}} {
		if err := os.WriteFile(filepath.Join(dir, "new"), make([]byte, step.n), 0o600); err != nil {
			t.Fatal(err)
		}
		look(step.want)
	}
}
