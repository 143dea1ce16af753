package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcp-sandbox/sandbox"
)

func paths(res sandbox.Result) []string {
	var all []string
	for _, f := range res.Files {
		all = append(all, fmt.Sprintf("%s:%d", f.Path, f.Size))
	}
	return all
}

// Each call names what it has changed, and nothing else.
func TestChangedFiles(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{})
		s := opener(l)(t).(*session)
		state := sandbox.StateNew
		for i, step := range []struct {
			code string
			want string // newest first
		}{
			{"pass", ""},
			{"open('a.txt', 'w').write('12345')", "a.txt:5"},
			{"pass", ""},
			{"open('a.txt').read()", ""},
			{"import os, time\nfor n in 'xyz':\n  open(n, 'w').write(n); time.sleep(.02)\nos.makedirs('d/e'); open('d/e/f', 'w').close()", "d/e/f:0 z:1 y:1 x:1"},
			{"open('a.txt', 'r+').write('54321')", "a.txt:5"},                         // the same size
			{"open('x', 'a').write('x'); os.utime('x', (1, 1))", "x:2"},               // a time of its own
			{"os.rename('y', 'd/y2')", "d/y2:1"},                                      // moved
			{"os.remove('z'); os.symlink('/etc/passwd', 'link'); os.mkfifo('p')", ""}, // no files
			{"os.makedirs('__pycache__'); open('__pycache__/m.pyc', 'w').close(); open('n.py', 'w').close()", "n.py:0"},
			{"import subprocess; subprocess.run('echo hi >from_child', shell=True)", "from_child:3"},
			{"open(b'bad\\xff', 'w').write('1')", "bad\xff:1"},
			{"open('late', 'w').write('1'); 1/0", "late:1"},
			{"os.rename('d', 'd2')", "d2/e/f:0 d2/y2:1"}, // with all that lies in it
			{"os.chmod('d2', 0o700)", ""},
			{"os.mkdir('g'); os.rename('d2/e', 'g/e')", "g/e/f:0"},
			{"open('g/e/f', 'w').write('1'); os.mkdir('h'); os.rename('g', 'h/g')", "h/g/e/f:1"},
			{"pass", ""},
		} {
			want := sandbox.StatusOK
			if strings.HasSuffix(step.code, "1/0") {
				want = sandbox.StatusError
			}
			res := do(t, s, step.code, want, state)
			state = sandbox.StateKept
			if got := strings.Join(paths(res), " "); got != step.want {
				t.Errorf("%d: %s\n%s\nwant\n%s", i, step.code, got, step.want)
			}
		}
		res := do(t, s, "import os\nopen('before', 'w').write('1'); os._exit(1)", sandbox.StatusCrash, sandbox.StateRestored)
		if got := paths(res); !slices.Equal(got, []string{"before:1"}) {
			t.Errorf("%q", got)
		}
		// What comes from outside between the calls is no call's.
		outside := filepath.Join(s.workspace, "outside")
		if err := os.WriteFile(outside, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(outside, &st); err != nil {
			t.Fatal(err)
		}
		for fileClock() <= st.Ctim.Nano() { // what comes within the tick in which a call begins may be
			time.Sleep(time.Millisecond)
		}
		for range 20 {
			if res := do(t, s, "import time; time.sleep(.01)", sandbox.StatusOK, sandbox.StateKept); len(res.Files) > 0 {
				t.Errorf("%q", paths(res))
			}
		}
		for i := range 20 { // faster than the clock by which files are stamped
			res := do(t, s, fmt.Sprintf("open('q%d', 'w').close()", i), sandbox.StatusOK, sandbox.StateKept)
			if got := paths(res); !slices.Equal(got, []string{fmt.Sprintf("q%d:0", i)}) {
				t.Errorf("%d: %q", i, got)
			}
		}
	})
}

// What a client stores is no call's, however soon a call follows, until one changes it.
func TestStoredFilesAreNoCalls(t *testing.T) {
	s := opener(local(t, Config{}))(t).(*session)
	do(t, s, "pass", sandbox.StatusOK, sandbox.StateNew)
	for i := range 20 {
		name := fmt.Sprintf("d%d/f", i)
		if _, err := s.StoreFile(t.Context(), name, 1, strings.NewReader("1")); err != nil {
			t.Fatal(err)
		}
		if res := do(t, s, "pass", sandbox.StatusOK, sandbox.StateKept); len(res.Files) > 0 {
			t.Fatalf("%q", paths(res))
		}
	}
	res := do(t, s, "import time; time.sleep(.02); open('d1/f', 'w').write('22'); import os; os.rename('d2', 'e')", sandbox.StatusOK, sandbox.StateKept)
	if got := slices.Sorted(slices.Values(paths(res))); !slices.Equal(got, []string{"d1/f:2", "e/f:1"}) {
		t.Errorf("%q", got)
	}
}

// A directory that was there before the first call, and is moved in it.
func TestMovedBeforeSeen(t *testing.T) {
	dir := t.TempDir()
	for _, below := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, below), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, below, "f"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var last unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "c/f"), &last); err != nil {
		t.Fatal(err)
	}
	for fileClock() <= last.Ctim.Nano() {
		time.Sleep(time.Millisecond)
	}
	var c changes
	c.begin()
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"moved/b/f:0", ""} {
		var res sandbox.Result
		c.end(root, &res)
		if got := strings.Join(paths(res), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c.begin()
	}
}

// A workspace of many files costs a bounded time, which is said once; what lies at the
// top is found all the same.
func TestManyFiles(t *testing.T) {
	l := local(t, Config{})
	s := opener(l)(t).(*session)
	do(t, s, "import os\nfor i in range(50):\n  os.makedirs(f'd{i}')\n  for j in range(100): open(f'd{i}/{j}', 'w').close()", sandbox.StatusOK, sandbox.StateNew)
	res := do(t, s, "open('top', 'w').close()", sandbox.StatusOK, sandbox.StateKept)
	if got := paths(res); !slices.Contains(got, "top:0") || !res.FilesCut {
		t.Errorf("%.200q, cut %v", got, res.FilesCut)
	}
	if res := do(t, s, "pass", sandbox.StatusOK, sandbox.StateKept); len(res.Notes) > 0 {
		t.Errorf("said again: %q", res.Notes)
	}
}

func BenchmarkChanges(b *testing.B) {
	for _, n := range []int{0, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			for i := range n {
				below := filepath.Join(dir, fmt.Sprint("d", i/100))
				_ = os.MkdirAll(below, 0o755)
				if err := os.WriteFile(filepath.Join(below, fmt.Sprint(i)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				b.Fatal(err)
			}
			defer root.Close()
			for b.Loop() {
				var c changes
				var res sandbox.Result
				c.begin()
				c.end(root, &res)
			}
		})
	}
}
