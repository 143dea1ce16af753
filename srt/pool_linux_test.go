package srt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// whenReady waits until the pool is full.
func whenReady(t testing.TB, l *Local) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(l.pool.ready) < cap(l.pool.ready); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d interpreters are ready instead of %d", len(l.pool.ready), cap(l.pool.ready))
		}
	}
}

// readyOpener opens sessions that were ready, and no others.
func readyOpener(l *Local) func(t *testing.T) sandbox.Session {
	open := opener(l)
	var turn sync.Mutex
	return func(t *testing.T) sandbox.Session {
		t.Helper()
		turn.Lock()
		defer turn.Unlock()
		whenReady(t, l)
		s := open(t)
		if s.(*session).made.IsZero() {
			t.Fatal("a session was started, although one was ready")
		}
		return s
	}
}

// A session that was ready is what any other is.
func TestReady(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Warm: 2, Preload: []string{"json.tool", "sqlite3"}})
		open := readyOpener(l)
		a, b := open(t).(*session), open(t).(*session)
		for _, s := range []*session{a, b} {
			res := do(t, s, "import os, sys, random\n"+
				"[sorted(n for n in globals() if n[:2] != '__'), 'json.tool' in sys.modules, os.getcwd(), os.listdir(), sys.path[-1], len([p for p in os.listdir('/proc') if p.isdigit()])]",
				sandbox.StatusOK, sandbox.StateNew)
			if want := `[["inputs","os","random","sys"],true,"/workspace",[],"/workspace",2]`; string(res.Output) != want || res.Stdout+res.Stderr != "" || len(res.Notes) > 0 {
				t.Errorf("%s, want %s\n%s%s%q", res.Output, want, res.Stdout, res.Stderr, res.Notes)
			}
		}
		do(t, a, "secret = 1; open('made', 'w').write('a'); open('/tmp/made', 'w').write('a')", sandbox.StatusOK, sandbox.StateKept)
		if res := do(t, b, "('secret' in globals(), os.path.exists('made'), os.path.exists('/tmp/made'))", sandbox.StatusOK, sandbox.StateKept); string(res.Output) != "[false,false,false]" {
			t.Errorf("one session sees another: %s", res.Output)
		}
		if text, err := a.Root().ReadFile("made"); err != nil || string(text) != "a" {
			t.Errorf("the server's view of the workspace: %q, %v", text, err)
		}
		if _, err := os.Stat(filepath.Join(l.runtime.path, a.id, workspaceDir, "made")); err != nil {
			t.Error(err)
		}
		if usage, err := a.disk.measure(0); err != nil || usage.inodes != 1 {
			t.Errorf("its limits are watched elsewhere: %+v, %v", usage, err)
		}
	})
}

// What draws random numbers draws others in each session.
func TestReadyDrawApart(t *testing.T) {
	l := local(t, Config{Warm: 2, Preload: []string{"random", "uuid", "tempfile"}})
	open := readyOpener(l)
	seen := map[string]bool{}
	for range 4 {
		res := do(t, open(t), "import random, uuid, tempfile\n[random.random(), uuid.uuid4().hex, tempfile.mktemp(), hash('x')]", sandbox.StatusOK, sandbox.StateNew)
		var drawn []any
		if err := json.Unmarshal(res.Output, &drawn); err != nil {
			t.Fatal(err)
		}
		for i, d := range drawn {
			name := fmt.Sprint(i, d)
			if seen[name] {
				t.Errorf("drawn twice: %v", d)
			}
			seen[name] = true
		}
	}
}

// The libraries of data work, imported ahead: they work, and each session draws its own numbers.
func TestReadyWithPandas(t *testing.T) {
	python := os.Getenv("MCP_SANDBOX_TEST_ANALYST_PYTHON")
	required(t, python != "", "no MCP_SANDBOX_TEST_ANALYST_PYTHON, which `make test` sets")
	l := local(t, Config{Warm: 2, Python: python, Preload: []string{"numpy", "pandas", "matplotlib.pyplot"}})
	open := readyOpener(l)
	seen := map[float64]bool{}
	for range 3 {
		s := open(t)
		start := time.Now()
		res := do(t, s, "import sys\n[m in sys.modules for m in ('numpy', 'pandas', 'matplotlib.pyplot')] + ['pandas' in globals(), 'pd' in globals()]", sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != "[true,true,true,false,false]" || res.Stdout+res.Stderr != "" || len(res.Notes) > 0 {
			t.Errorf("%s\n%s%s%q", res.Output, res.Stdout, res.Stderr, res.Notes)
		}
		res = do(t, s, "import numpy, pandas\n[int(pandas.DataFrame({'a': [40, 2]}).a.sum()), numpy.random.random(), numpy.random.default_rng().random()]", sandbox.StatusOK, sandbox.StateKept)
		t.Logf("%s after %v", res.Output, time.Since(start))
		var drawn []float64
		if err := json.Unmarshal(res.Output, &drawn); err != nil || len(drawn) != 3 || drawn[0] != 42 {
			t.Fatalf("%s, %v", res.Output, err)
		}
		for _, d := range drawn[1:] {
			if seen[d] {
				t.Errorf("drawn twice: %v", d)
			}
			seen[d] = true
		}
	}
}

// One that has died meanwhile, or whose worker has, is not handed out.
func TestReadyThatDied(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Warm: 1})
		for name, victim := range map[string]func(*session) int{
			"supervisor": func(s *session) int { return s.live.cage.Pid() },
			"worker":     func(s *session) int { return descendants(s.live.cage.Pid(), nil)[1] },
		} {
			whenReady(t, l)
			ready := <-l.pool.ready
			if err := syscall.Kill(victim(ready), syscall.SIGKILL); err != nil {
				t.Fatal(name, err)
			}
			l.pool.ready <- ready // at once: its death may not have been heard of
			if name == "worker" {
				for deadline := time.Now().Add(patience); ready.live.client.IsWarm() && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
			}
			s := opener(l)(t).(*session)
			if s == ready {
				t.Errorf("%s: a dead one was handed out", name)
			}
			do(t, s, "1", sandbox.StatusOK, sandbox.StateNew)
			if _, err := os.Stat(ready.dir); !os.IsNotExist(err) {
				t.Errorf("%s: the dead one's directory is left: %v", name, err)
			}
		}
	})
}

// The pool gives up what has grown old or has died, and has others in their place.
func TestReadyGrowsOld(t *testing.T) {
	l := local(t, Config{Warm: 2})
	whenReady(t, l)
	old, young := <-l.pool.ready, <-l.pool.ready
	old.made = old.made.Add(-2 * warmAge)
	l.pool.ready <- old
	l.pool.ready <- young
	l.pool.weed(l.pool.unfit()) // the goroutine sleeps now, for seconds
	if _, err := os.Stat(old.dir); !os.IsNotExist(err) || len(l.pool.ready) != 1 {
		t.Errorf("the old one is kept: %v, %d are ready", err, len(l.pool.ready))
	}
	l.pool.taken <- struct{}{}
	whenReady(t, l)
}

// Where memory is short none is made beyond the one that proves that it can be, and those
// that are ready are given up one by one.
func TestReadyWhenMemoryIsShort(t *testing.T) {
	var free, asked atomic.Int64
	free.Store(100 * mib)
	l := local(t, Config{Warm: 2, bounds: func() []memoryBound {
		asked.Add(1)
		return []memoryBound{{1000 * mib, free.Load()}}
	}})
	rounds := func() { // when the second begins, the first is over
		for range 2 {
			before := asked.Load()
			l.pool.taken <- struct{}{}
			for deadline := time.Now().Add(patience); asked.Load() == before && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}
	}
	for _, c := range []struct {
		free int64
		want int
	}{{100, 1}, {900, 2}, {100, 2}, {99, 0}, {99, 0}} {
		free.Store(c.free * mib)
		rounds()
		rounds()
		for deadline := time.Now().Add(patience); l.Ready() != c.want && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // the last of them may be on its way
		}
		if n := l.Ready(); n != c.want {
			t.Errorf("with %d MiB free %d are ready, want %d", c.free, n, c.want)
		}
	}
	do(t, opener(l)(t), "1", sandbox.StatusOK, sandbox.StateNew) // started for itself
}

// However soon the end comes, nothing is left: no directory, process or group.
func TestCloseWhileMaking(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		for i := range 12 {
			l, err := New(t.Context(), Config{Warm: 3, Python: testPython, native: testNative()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * 20 * time.Millisecond) // the moments to be tried
			if i%3 == 0 {
				_, _ = l.Open(t.Context(), sandbox.Spec{ID: "one"})
			}
			start := time.Now()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("closing took %v", took)
			}
			if _, err := os.Stat(l.runtime.path); !os.IsNotExist(err) {
				t.Errorf("the directory is left: %v", err)
			}
			if s, err := l.Open(t.Context(), sandbox.Spec{ID: "late"}); err == nil {
				s.Close()
				t.Error("opened after the end")
			}
		}
		for _, pid := range descendants(os.Getpid(), nil)[1:] {
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(name), "main.pyc") {
				t.Errorf("process %d is left: %q", pid, name)
			}
		}
	})
}

// With a workspace that all share, Reset takes an interpreter that is ready; and once
// something else lies at the workspace, none that was ready before is handed out.
func TestReadyWithSharedWorkspace(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		parent, err := os.MkdirTemp("", "shared-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(parent)
		dir := filepath.Join(parent, "workspace")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		// What lies in the workspace is not imported ahead, whoever put it there.
		if err := os.WriteFile(filepath.Join(dir, "wave.py"), []byte("print('theirs')"), 0o644); err != nil {
			t.Fatal(err)
		}
		l := local(t, Config{Warm: 1, Preload: []string{"wave"}, Workspace: dir})
		s := readyOpener(l)(t).(*session)
		res := do(t, s, "x = 1; open('kept', 'w').write('yes'); import wave; wave.__name__, hasattr(wave, 'open')", sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != `["wave",true]` || res.Stdout != "" {
			t.Errorf("%s %s", res.Output, res.Stdout)
		}
		whenReady(t, l)
		next := <-l.pool.ready
		live := next.live
		l.pool.ready <- next
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		res = do(t, s, "'x' in globals(), open('kept').read()", sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != `[false,"yes"]` || s.live != live {
			t.Errorf("%s; the interpreter was ready: %v", res.Output, s.live == live)
		}

		whenReady(t, l)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if s, err := l.Open(t.Context(), sandbox.Spec{ID: "other"}); err == nil {
			s.Close()
			t.Error("opened although something else lies at the workspace")
		} else if !strings.Contains(err.Error(), "something else lies there") {
			t.Error(err)
		}
	})
}

// With a workspace of its own, a fresh interpreter after Reset gets its imports while nobody waits.
func TestResetWarmsUp(t *testing.T) {
	l := local(t, Config{Warm: 1, Preload: []string{"asyncio", "unittest.mock", "http.server", "xmlrpc.client", "sqlite3", "wave"}})
	s := readyOpener(l)(t).(*session)
	do(t, s, "x = 1; open('kept', 'w').write('yes')", sandbox.StatusOK, sandbox.StateNew)
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); len(s.turn) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it imports for ever")
		}
	}
	res := do(t, s, "import sys; ['x' in globals(), open('kept').read(), 'wave' in sys.modules]", sandbox.StatusOK, sandbox.StateNew)
	if string(res.Output) != `[false,"yes",true]` {
		t.Errorf("%s", res.Output)
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A call that comes meanwhile does not wait for the rest.
	res = do(t, s, "import sys; ['x' in globals(), open('kept').read(), 'wave' in sys.modules]", sandbox.StatusOK, sandbox.StateNew)
	if string(res.Output) != `[false,"yes",false]` {
		t.Errorf("%s", res.Output)
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // while it imports
		t.Error(err)
	}
}

func TestPreloadThatFails(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		for _, c := range []struct {
			warm    int
			modules []string
			want    []string
		}{
			{1, []string{"json", "no_such_module"}, []string{"preload: ", testPython, "can't import no_such_module: ModuleNotFoundError: No module named 'no_such_module'"}},
			{1, []string{"a b", "1a", "a.", ".a", ""}, []string{`"a b"`, `"1a"`, `"a."`, `".a"`, `""`}},
			{0, []string{"json"}, []string{"warm above 0"}},
			{-1, nil, []string{"warm: -1"}},
		} {
			l, err := New(t.Context(), Config{Warm: c.warm, Preload: c.modules, Python: testPython, native: testNative()})
			if err == nil {
				l.Close()
				t.Errorf("%q: accepted", c.modules)
				continue
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q: %q lacks %q", c.modules, err, part)
				}
			}
		}
	})
}

// A session that is live and idle, its standby included, costs little where others share
// the pages of programs and libraries with it.
func TestIdleMemory(t *testing.T) {
	const sessions, most = 20, 9 * mib
	l := local(t, Config{Warm: 1})
	open := readyOpener(l)
	var all []*session
	for range sessions {
		s := open(t).(*session)
		do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateNew)
		all = append(all, s)
	}
	var each []int64
	for _, s := range all {
		whenParked(t, s)
		each = append(each, proportionalOf(t, s))
	}
	if m := median(each); m > most {
		t.Errorf("%d kB at the median, want %d", m>>10, most>>10)
	} else {
		t.Logf("%d kB at the median of %d", m>>10, sessions)
	}
}

// proportionalOf is the session's share of all memory that its processes map, in bytes.
func proportionalOf(t testing.TB, s *session) (total int64) {
	t.Helper()
	for _, pid := range descendants(s.live.cage.Pid(), nil) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			t.Fatal(err)
		}
		kb, err := field(string(text), "Pss:")
		if err != nil {
			t.Fatal(err)
		}
		total += kb << 10
	}
	return total
}

// What a killed server left is not taken for a fresh one.
func TestReadyBesideLeftovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	lay(t, markerText, dir, markerFile)
	l := local(t, Config{StateDir: dir})
	lay(t, "theirs", l.state.sessions, warmPrefix+"1", workspaceDir, "f")
	l.cfg.Warm = 1
	l.pool = newPool(l)
	if res := do(t, readyOpener(l)(t), "import os; os.listdir()", sandbox.StatusOK, sandbox.StateNew); string(res.Output) != "[]" {
		t.Errorf("%s", res.Output)
	}
}

// What ails the server's disk is told, and costs one of those that are ready.
func TestReadyOnBadDisk(t *testing.T) {
	l := local(t, Config{StateDir: filepath.Join(t.TempDir(), "state"), Warm: 2})
	whenReady(t, l)
	for range 2 {
		s := <-l.pool.ready
		lay(t, "", s.dir, recordFile+".new", "x") // where the record is to be written
		l.pool.ready <- s
	}
	if s, err := l.Open(t.Context(), sandbox.Spec{ID: "one", Principal: "ann"}); layerOf(err) != layerWorkspace {
		t.Errorf("%v, %v", s, err)
	}
	if n := l.Ready(); n != 1 {
		t.Errorf("%d are ready, want 1", n)
	}
}
