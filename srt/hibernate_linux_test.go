package srt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// hibernated runs code in a session and hibernates it.
func hibernated(t *testing.T, s sandbox.Session, code string) {
	t.Helper()
	do(t, s, code, sandbox.StatusOK, sandbox.StateNew)
	hibernate(t, s)
}

func hibernate(t *testing.T, s sandbox.Session) {
	t.Helper()
	if err := s.(sandbox.Hibernator).Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.(*session).live != nil {
		t.Fatal("its processes live on")
	}
}

func noted(res sandbox.Result, what string) bool {
	return slices.ContainsFunc(res.Notes, func(n string) bool { return strings.Contains(n, what) })
}

func TestHibernate(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{})
		s := opener(l)(t).(*session)
		hibernated(t, s, "import os, math as m\nopen('kept', 'w').write('yes'); open('/tmp/gone', 'w').write('no')\n"+
			"os.environ['HOUSE'] = 'mine'; os.mkdir('sub'); os.chdir('sub')\n"+
			"shared = [1]; a = {'s': shared}; b = (shared,); gen = (i for i in b); fh = open('../kept'); n = 0")
		res := do(t, s, "n += 1\n(a['s'] is b[0] is shared, m.pi > 3, n, os.environ['HOUSE'], os.getcwd(), open('../kept').read(), os.path.exists('/tmp/gone'), 'gen' in globals())",
			sandbox.StatusOK, sandbox.StateRestored)
		if string(res.Output) != `[true,true,1,"mine","/workspace/sub","yes",false,false]` {
			t.Errorf("%s", res.Output)
		}
		for _, want := range []string{"imported anew", "gen (TypeError", "fh (TypeError", "/tmp: gone"} {
			if !noted(res, want) {
				t.Errorf("no word of %q in %q", want, res.Notes)
			}
		}
		if res := do(t, s, "n += 1; n", sandbox.StatusOK, sandbox.StateKept); string(res.Output) != "2" || len(res.Notes) != 0 {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		hibernate(t, s)
		hibernate(t, s) // twice is fine
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res := do(t, s, "'n' in globals()", sandbox.StatusOK, sandbox.StateNew); string(res.Output) != "false" {
			t.Errorf("after a reset: %s, %q", res.Output, res.Notes)
		}
	})
}

// What is restored, and then lost, must not come back.
func TestLostAfterRestored(t *testing.T) {
	l := local(t, Config{Checkpoint: sandbox.CheckpointOff})
	s := opener(l)(t).(*session)
	hibernated(t, s, "x = 1")
	do(t, s, "import os; os._exit(3)", sandbox.StatusCrash, sandbox.StateLost)
	if res := do(t, s, "'x' in globals()", sandbox.StatusOK, sandbox.StateNew); string(res.Output) != "false" {
		t.Errorf("%s, %q", res.Output, res.Notes)
	}
	do(t, s, "y = 2", sandbox.StatusOK, sandbox.StateKept)
	if err := s.Shed("there was no room"); err != nil {
		t.Fatal(err)
	}
	res := do(t, s, "'y' in globals()", sandbox.StatusOK, sandbox.StateLost)
	if string(res.Output) != "false" || !noted(res, "there was no room") {
		t.Errorf("%s, %q", res.Output, res.Notes)
	}
}

// Checkpoints know of variables that were restored from disk, and protect them
// while they are saved.
func TestHibernationAndCheckpoints(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{})
		s := opener(l)(t).(*session)
		hibernated(t, s, "x = 1")
		if res := do(t, s, "x = 2; import os; os._exit(3)", sandbox.StatusCrash, sandbox.StateRestored); !noted(res, "imported anew") {
			t.Errorf("%q", res.Notes)
		}
		if res := do(t, s, "x", sandbox.StatusOK, sandbox.StateKept); string(res.Output) != "1" {
			t.Errorf("%s", res.Output)
		}
		do(t, s, "x = 3\nclass Deadly:\n    def __reduce__(self): __import__('os')._exit(7)\nDeadly.__module__ = 'builtins'; deadly = Deadly()", sandbox.StatusOK, sandbox.StateKept)
		hibernate(t, s)
		res := do(t, s, "x", sandbox.StatusOK, sandbox.StateRestored)
		if string(res.Output) != "3" || !noted(res, "ended between the calls") || !noted(res, "not kept: deadly") || noted(res, "as they were after call") {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
	})
}

// What can't be saved stays as it is.
func TestHibernateThatFails(t *testing.T) {
	limits := small
	limits.Disk = 4 << 20
	l := local(t, Config{Limits: limits, Checkpoint: sandbox.CheckpointOff})
	s := opener(l)(t).(*session)
	do(t, s, "big = 'x' * (8 << 20)", sandbox.StatusOK, sandbox.StateNew)
	if err := s.Hibernate(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("8 MiB in 4: %v", err)
	}
	do(t, s, "len(big)", sandbox.StatusOK, sandbox.StateKept)
	do(t, s, "del big\nclass Slow:\n    def __reduce__(self):\n        import time\n        time.sleep(1000)\nimport copyreg\nslow = Slow()\n"+
		"class Slow2(complex): pass\nSlow.__module__ = 'builtins'\nx = 1", sandbox.StatusOK, sandbox.StateKept)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Hibernate(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what never ends: %v", err)
	}
	do(t, s, "x, type(slow).__name__", sandbox.StatusOK, sandbox.StateKept)
	do(t, s, "Slow.__reduce__ = lambda self: __import__('os')._exit(7)", sandbox.StatusOK, sandbox.StateKept)
	if err := s.Hibernate(t.Context()); err == nil {
		t.Error("hibernated although the interpreter ended")
	}
	if res := do(t, s, "'x' in globals()", sandbox.StatusOK, sandbox.StateLost); !noted(res, "while the variables of the idle session were saved") || string(res.Output) != "false" {
		t.Errorf("%s, %q", res.Output, res.Notes)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "state*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDamagedState(t *testing.T) {
	l := local(t, Config{})
	resum := func(b []byte) []byte { // as a forger would
		w, err := createState(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		head, snapshot, err := readState(bytesAt(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		payload, err := io.ReadAll(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		for i := range payload {
			payload[i] ^= byte(i)
		}
		if _, err := w.Write(payload); err != nil {
			t.Fatal(err)
		}
		if err := w.finish(head, false); err != nil {
			t.Fatal(err)
		}
		forged, err := os.ReadFile(w.f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return forged
	}
	for name, damage := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"one byte":  func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"another session's": func(b []byte) []byte {
			return []byte(strings.ReplaceAll(string(b), `"session":"s`, `"session":"t`))
		},
		"forged": resum,
		"no table": func([]byte) []byte {
			w, err := createState(filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.finish(stateHead{Session: "SESSION", Table: []byte(`{"python":3}`)}, false); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(w.f.Name())
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := opener(l)(t).(*session)
			hibernated(t, s, "x = [1, 2, 3]; y = {'a': x}")
			path := filepath.Join(s.dir, stateFile)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			res := do(t, s, "'x' in globals() or 'y' in globals()", sandbox.StatusOK, sandbox.StateLost)
			if string(res.Output) != "false" || !noted(res, "could not be restored") {
				t.Errorf("%s, %q", res.Output, res.Notes)
			}
			do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateKept)
		})
	}
}

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// A forged snapshot may run code; it runs behind the wall and nowhere else.
func TestForgedStateRunsInside(t *testing.T) {
	l := local(t, Config{})
	s := opener(l)(t).(*session)
	mark := filepath.Join(t.TempDir(), "outside")
	hibernated(t, s, "import os\nos.environ['MARK'] = '"+mark+"'\n"+
		"class Evil:\n    def __reduce__(self): return exec, (\"import os\\ntry: open(os.environ['MARK'], 'w')\\nexcept OSError: pass\\nopen('/workspace/inside', 'w').write(str(os.getuid()))\",)\n"+
		"Evil.__module__ = 'builtins'; evil = Evil()")
	do(t, s, "1", sandbox.StatusOK, sandbox.StateRestored)
	if _, err := os.Stat(mark); err == nil {
		t.Error("a pickle ran outside the wall")
	}
	if b, err := s.Root().ReadFile("inside"); err != nil || string(b) != "1000" {
		t.Errorf("inside: %q, %v", b, err)
	}
}

// The next server has what the one before it left.
func TestStateDir(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "deep", "state")
		cfg := Config{StateDir: dir}
		open := func(cfg Config) *Local {
			cfg.Python, cfg.native = testPython, testNative()
			l, err := New(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first := open(cfg)
		spec := sandbox.Spec{ID: "one", Principal: "ann", Created: time.Now().Add(-time.Hour).Truncate(time.Second)}
		session := func(l *Local, spec sandbox.Spec) *session {
			s, err := l.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return s.(*session)
		}
		s := session(first, spec)
		hibernated(t, s, "x = 1; open('f', 'w').write('kept')")
		do(t, session(first, sandbox.Spec{ID: "two", Principal: "bob"}), "x = 2", sandbox.StatusOK, sandbox.StateNew)
		if l, err := New(t.Context(), Config{StateDir: dir, Python: testPython, native: testNative()}); err == nil || !strings.Contains(err.Error(), "in use by another server") {
			t.Errorf("two servers have one state directory: %v", err)
			l.Close()
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}

		for _, left := range []string{"7b0e4a6e-1c1d-4a53-9d6e-0c6f2a1b3c4d", warmPrefix + "1", gonePrefix + "x"} {
			if err := os.MkdirAll(filepath.Join(dir, "sessions", left, workspaceDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		second := open(cfg)
		defer second.Close()
		kept := second.Kept()
		slices.SortFunc(kept, func(a, b sandbox.Kept) int { return strings.Compare(a.ID, b.ID) })
		if len(kept) != 2 || kept[0].ID != "one" || kept[0].Principal != "ann" || !kept[0].Created.Equal(spec.Created) || time.Since(kept[0].Used) > time.Minute || kept[1].Principal != "bob" {
			t.Errorf("%+v", kept)
		}
		s = session(second, kept[0].Spec)
		if res := do(t, s, "x, open('f').read()", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != `[1,"kept"]` {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		if res := do(t, session(second, kept[1].Spec), "'x' in globals()", sandbox.StatusOK, sandbox.StateLost); !noted(res, "before it could save") {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		do(t, s, "x = 5", sandbox.StatusOK, sandbox.StateKept)
		if err := second.Close(); err != nil { // as if killed: what was done since is not saved
			t.Fatal(err)
		}
		third := open(cfg)
		defer third.Close()
		if res := do(t, session(third, kept[0].Spec), "x", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != "1" || !noted(res, "what later calls changed in them is lost") {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		if err := third.Discard("two"); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(left) != 1 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestStateDirsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"open to others":   {Config{StateDir: open}, "chmod 700"},
		"a file":           {Config{StateDir: file}, ""},
		"in the workspace": {Config{StateDir: filepath.Join(dir, "ws", "x"), Workspace: dir}, "give them places apart"},
		"around a mount":   {Config{StateDir: dir, Mounts: []Mount{{Host: open, Guest: "/data"}}}, "give them places apart"},
		"in /usr":          {Config{StateDir: "/usr/local/mcp-sandbox-test"}, "give them places apart"},
	} {
		c.cfg.Python, c.cfg.native = testPython, testNative()
		l, err := New(t.Context(), c.cfg)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadState(f *testing.F) {
	path := filepath.Join(f.TempDir(), "s")
	w, err := createState(path)
	if err != nil {
		f.Fatal(err)
	}
	fmt.Fprint(w, "snapshot")
	if err := w.finish(stateHead{Session: "s", Table: []byte("{}")}, false); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(binary.BigEndian.AppendUint32([]byte(stateMagic), 1<<31))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, snapshot, err := readState(bytesAt(in), int64(len(in)))
		if err == nil && snapshot.Size() > int64(len(in)) {
			t.Fatal("more than there is")
		}
	})
}

// What it costs to put a session to sleep, and to wake it up.
func BenchmarkHibernation(b *testing.B) {
	for _, c := range []struct{ name, code string }{
		{"small", "x = 1; rows = [{'n': i} for i in range(100)]"},
		{"100MB of bytes", "x = bytearray(100 << 20)"},
		{"a million objects", "x = [{'n': i, 'v': [i]} for i in range(333_333)]"},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := local(b, Config{})
			opened, err := l.Open(b.Context(), sandbox.Spec{ID: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			s := opened.(*session)
			run := func(code string) {
				if res, err := s.Run(b.Context(), sandbox.Request{Code: code}); err != nil || !res.Success() {
					b.Fatalf("%+v, %v", res, err)
				}
			}
			run(c.code)
			var asleep, awake time.Duration
			for b.Loop() {
				start := time.Now()
				if err := s.Hibernate(b.Context()); err != nil {
					b.Fatal(err)
				}
				asleep += time.Since(start)
				start = time.Now()
				run("x")
				awake += time.Since(start)
			}
			b.ReportMetric(float64(asleep.Milliseconds())/float64(b.N), "ms/hibernate")
			b.ReportMetric(float64(awake.Milliseconds())/float64(b.N), "ms/restore")
		})
	}
}
