package srt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// hogLimits leave the machine room for several hogs side by side.
var hogLimits = sandbox.Limits{Memory: 192 << 20, Tasks: 64, Disk: 400 << 20, Inodes: 5000, Shm: 400 << 20, OpenFiles: 256}

// hog is code that takes some 400 MiB as fast as it can, in a way of its own, where 192
// are allowed. It prints what stopped it, or that nothing did.
type hog struct {
	name, code string
	cache      bool // it takes what the kernel gives up by itself: nothing need be stopped
	segments   bool // it takes what is refused where no control group counts it
}

const hogCode = `
import ctypes, mmap, os, sys, time
MIB = 1 << 20
def fill(write, n=400, each=4):
    for i in range(n // each):
        write(b'x' * (each * MIB))
def hold(): time.sleep(60)
`

var hogs = []hog{
	{name: "four processes", code: `
for _ in range(4):
    if os.fork() == 0:
        held = [bytearray(b'x' * MIB) for _ in range(100)]
        hold()
if os.wait()[1]: raise MemoryError('a child was killed')
`},
	{name: "shared anonymous mappings", code: `
kept = []
for i in range(100):
    kept.append(mmap.mmap(-1, 4 * MIB)); kept[-1].write(b'x' * (4 * MIB))
`},
	{name: "memory files", code: `
kept = []
def write(b): kept.append(os.memfd_create('m')); os.write(kept[-1], b)
fill(write)
`},
	{name: "shm_open", code: `
from multiprocessing import shared_memory
kept = []
for i in range(100):
    kept.append(shared_memory.SharedMemory(create=True, size=4 * MIB)); kept[-1].buf[:] = b'x' * (4 * MIB)
`},
	{name: "System V", segments: true, code: `
c = ctypes.CDLL(None, use_errno=True)
c.shmat.restype = ctypes.c_void_p
for i in range(100):
    id = c.shmget(0, 4 * MIB, 0o1600)
    if id < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    at = c.shmat(id, None, 0)
    ctypes.memset(at, 1, 4 * MIB)
`},
	{name: "/tmp", code: `
with open('/tmp/f', 'wb', buffering=0) as f: fill(f.write)
`},
	{name: "/dev/shm", code: `
with open('/dev/shm/f', 'wb', buffering=0) as f: fill(f.write)
`},
	{name: "page cache", cache: true, code: `
with open('f', 'wb', buffering=0) as f: fill(f.write, 240)
with open('f', 'rb') as f: m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(sum(m[i] for i in range(0, len(m), 4096))) # and it stays mapped
time.sleep(0.5)
`},
}

// leaders that have ended show no memory of theirs; their threads have it.
var leaders = hog{name: "leaders that have ended", code: `
import threading
def hog():
    held = [bytearray(b'x' * MIB) for _ in range(100)]
    hold()
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hog).start()
        nr = 60 if os.uname().machine == 'x86_64' else 93
        ctypes.CDLL(None).syscall(ctypes.c_long(nr), ctypes.c_long(0))
time.sleep(20)
`}

// oneThread keeps its memory files in a table of descriptors that only a thread has.
var oneThread = hog{name: "memory files of one thread", code: `
import threading
def leak():
    def write(b): os.write(os.memfd_create('m'), b)
    fill(write); hold()
t = threading.Thread(target=leak); t.start(); t.join()
`}

// gauge looks how much all processes of a session have, as the kernel accounts it to their
// control group: the session's own, or where it has none one without a limit.
type gauge struct {
	group *cgroup
	own   bool // the session's
	limit int64
	quit  chan struct{}
	done  chan struct{}

	peak int64
	over time.Duration // how long there was more than the limit, from the first moment to the last
}

// newGauge is nil where no group can be made.
func newGauge(t *testing.T, s *session, limit int64) *gauge {
	t.Helper()
	g := &gauge{group: s.live.cage.group, own: s.live.cage.group != nil, limit: limit, quit: make(chan struct{}), done: make(chan struct{})}
	if !g.own {
		groups, _ := findCgroups("/proc/self")
		if groups == nil {
			return nil
		}
		var err error
		if g.group, err = groups.create(Policy{Memory: 1 << 40, Tasks: 10000}); err != nil {
			t.Fatal(err)
		}
		for _, pid := range descendants(s.live.cage.Pid(), nil) {
			if err := g.group.place(pid); err != nil {
				t.Log(err) // it has just ended
			}
		}
	}
	go g.look()
	return g
}

func (g *gauge) look() {
	defer close(g.done)
	var first time.Time
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-g.quit:
			tick.Stop()
			return
		case <-tick.C:
		}
		used, err := g.group.usage()
		if err != nil {
			return
		}
		g.peak = max(g.peak, used)
		if used > g.limit {
			if first.IsZero() {
				first = time.Now()
			}
			g.over = time.Since(first)
		}
	}
}

// end waits for the last look, when the session has ended.
func (g *gauge) end(t *testing.T) {
	close(g.quit)
	<-g.done
	if g.own {
		return
	}
	if err := g.group.remove(); err != nil {
		t.Error(err)
	}
}

// neighbour is another session, which calls all the while.
type neighbour struct {
	session sandbox.Session
	quit    chan struct{}
	done    chan struct{}
	calls   int
	longest time.Duration
	fault   error
}

func newNeighbour(t *testing.T, l *Local) *neighbour {
	n := &neighbour{session: opener(l)(t), quit: make(chan struct{}), done: make(chan struct{})}
	do(t, n.session, "n = 0", sandbox.StatusOK, sandbox.StateNew)
	go n.call(context.WithoutCancel(t.Context()))
	return n
}

func (n *neighbour) call(ctx context.Context) {
	defer close(n.done)
	for tick := time.NewTicker(20 * time.Millisecond); n.fault == nil; {
		select {
		case <-n.quit:
			tick.Stop()
			return
		case <-tick.C:
		}
		begun := time.Now()
		res, err := n.session.Run(ctx, sandbox.Request{Code: "n += 1; n", Timeout: patience})
		n.longest = max(n.longest, time.Since(begun))
		if n.calls++; err != nil || res.State != sandbox.StateKept || string(res.Output) != fmt.Sprint(n.calls) {
			n.fault = fmt.Errorf("call %d: %s, %s, %s, %v: %s", n.calls, res.Status, res.State, res.Output, err, res.Error)
		}
	}
}

func (n *neighbour) end(t *testing.T) {
	close(n.quit)
	<-n.done
	if n.fault != nil {
		t.Errorf("the neighbour felt it: %v", n.fault)
	}
	t.Logf("the neighbour's %d calls were answered, the slowest after %v", n.calls, n.longest.Round(time.Millisecond))
}

// withoutCgroups is a host on which the server finds no control group to write to.
func withoutCgroups(t *testing.T) nativeConfig {
	t.Helper()
	c := testNative()
	c.Proc = filepath.Join(fakeProc(t, os.Getpid(), "", ""), "self")
	return c
}

// Whatever way code takes memory, the session stays within its limit, or is stopped soon
// after it has gone beyond, and another session feels nothing.
func TestMemoryLimit(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		if err := canWatchMemory(); err != nil {
			t.Error(err)
		}
		if os.Geteuid() == 0 {
			t.Run("control group", func(t *testing.T) {
				l := local(t, Config{Limits: hogLimits})
				required(t, l.wall.limitsMemory(), "no control group can be made here: "+l.String())
				tryHogs(t, l, hogs)
			})
		}
		t.Run("watchdog", func(t *testing.T) {
			l := local(t, Config{Limits: hogLimits, native: withoutCgroups(t)})
			if l.wall.limitsMemory() {
				t.Fatal("there are control groups")
			}
			some := hogs
			if os.Geteuid() != 0 { // another user looks into processes otherwise; the rest is no process's
				some = hogs[:3]
			}
			tryHogs(t, l, append([]hog{leaders, oneThread}, some...))
		})
	})
}

func tryHogs(t *testing.T, l *Local, all []hog) {
	n := newNeighbour(t, l)
	defer n.end(t)
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) {
			s := opener(l)(t).(*session)
			do(t, s, hogCode, sandbox.StatusOK, sandbox.StateNew)
			allowed := l.cfg.Limits.Memory + watchAllowance
			g := newGauge(t, s, allowed)
			code := h.code
			if !h.cache {
				code += "hold()\n" // or it may be over before anybody looks
			}
			begun := time.Now()
			res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 20 * time.Second})
			took := time.Since(begun)
			want := sandbox.StatusOOM
			switch {
			case h.cache:
				want = sandbox.StatusOK
			case h.segments && !l.wall.limitsMemory():
				want = sandbox.StatusError
			}
			if err != nil || res.Status != want {
				t.Errorf("%s, %v: %s%s", res.Status, err, res.Stdout, res.Error)
			}
			// Files in memory outlive the code that wrote them, if not the session: it may be lost.
			again, err := s.Run(t.Context(), sandbox.Request{Code: "1 + 1", Timeout: 20 * time.Second})
			if err != nil || !again.Success() {
				t.Errorf("the next call: %+v, %v", again, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			told := fmt.Sprintf("%s after %v, %s then", res.Status, took.Round(time.Millisecond), again.State)
			if g != nil {
				g.end(t)
				told += fmt.Sprintf("; at most %d MiB, beyond the limit for %v", g.peak>>20, g.over.Round(time.Millisecond))
				if !h.cache && g.over > 5*time.Second { // a safety limit: measured are tenths of a second
					t.Errorf("%v beyond the limit", g.over)
				}
				if l.wall.limitsMemory() && g.peak > allowed {
					t.Errorf("%d MiB in a control group of %d", g.peak>>20, allowed>>20)
				}
			}
			t.Log(told)
		})
	}
}
