package srt

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// wheel writes a wheel of one module that says hello. It brings a start-up file that
// leaves a mark where it runs.
func wheel(t *testing.T, dir, name, mark string, needs ...string) string {
	t.Helper()
	path := filepath.Join(dir, name+"-1.0-py3-none-any.whl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info := name + "-1.0.dist-info/"
	metadata := "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"
	for _, n := range needs {
		metadata += "Requires-Dist: " + n + "\n"
	}
	z := zip.NewWriter(f)
	for _, file := range [][2]string{
		{name + ".py", "print('hello')\n"},
		{name + ".pth", "import os; open(" + fmt.Sprintf("%q", mark) + ", 'w')\n"},
		{info + "METADATA", metadata},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + name + ".pth,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(file[0])
		if err == nil {
			_, err = w.Write([]byte(file[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// evil writes a package that leaves a mark when it is built. Its builder is its own.
func evil(t *testing.T, dir, mark string) string {
	t.Helper()
	at := filepath.Join(dir, "evil")
	for name, text := range map[string]string{
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"b\"\nbackend-path = [\".\"]\n[project]\nname = \"evil\"\nversion = \"1.0\"\n",
		"b.py":           "open(" + fmt.Sprintf("%q", mark) + ", 'w')\ndef build_wheel(*a, **k): raise SystemExit('built')\n",
	} {
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// installers are the variables of a server with each, none of which asks a network.
func installers(t *testing.T) map[string][]string {
	t.Helper()
	cache := t.TempDir()
	both := []string{"PIP_NO_INDEX=1", "UV_OFFLINE=1", "UV_CACHE_DIR=" + cache, "PIP_CACHE_DIR=" + cache, "HOME=" + cache}
	all := map[string][]string{"pip": append(slices.Clone(both), "PATH=/usr/bin:/bin")}
	uv := os.Getenv("MCP_SANDBOX_TEST_UV")
	required(t, uv != "", "MCP_SANDBOX_TEST_UV is not set: run make test, which installs uv")
	bin := t.TempDir()
	if err := os.Symlink(uv, filepath.Join(bin, "uv")); err != nil {
		t.Fatal(err)
	}
	all["uv"] = append(slices.Clone(both), "PATH="+bin)
	return all
}

// progress gathers lines.
type progress struct {
	mu    sync.Mutex
	lines []string
}

func (p *progress) tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

func (p *progress) count(word string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if strings.HasPrefix(l, word) {
			n++
		}
	}
	return n
}

// Two servers at once make an environment once; it is whole, its packages are known, and
// none of its code has run. One that was cut short is made anew.
func TestMakeEnvironment(t *testing.T) {
	t.Parallel()
	python := hasPython(t)
	for tool, variables := range installers(t) {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			dir := written(t, map[string]string{"requirements.txt": "greet == 1.0\n--find-links .\n", "uv.toml": ""})
			mark := filepath.Join(dir, "ran")
			wheel(t, dir, "greet", mark)
			said := &progress{}
			e := Environment{Requirements: filepath.Join(dir, "requirements.txt"), Cache: filepath.Join(dir, "cache"), Variables: variables, Progress: said.tell}
			cfg := Config{Python: python, PythonEnv: os.Environ()}
			made := make([]string, 2)
			var both sync.WaitGroup
			for i := range made {
				both.Go(func() {
					var err error
					if made[i], err = MakeEnvironment(t.Context(), cfg, e); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			if t.Failed() || made[0] != made[1] || said.count("made ") != 1 || said.count("another server") > 1 {
				t.Fatalf("%q\n%s", made, strings.Join(said.lines, "\n"))
			}
			i, err := safeInterpreter(t.Context(), Config{Python: made[0]})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(i.Packages, "greet 1.0") || !slices.Contains(i.Prefixes, filepath.Dir(filepath.Dir(made[0]))) {
				t.Errorf("%q, %q", i.Packages, i.Prefixes)
			}
			compiled, _ := filepath.Glob(filepath.Join(filepath.Dir(made[0]), "../lib/*/site-packages/__pycache__/greet.*.pyc"))
			if len(compiled) != 1 {
				t.Errorf("compiled: %q", compiled)
			}
			closed(t, filepath.Dir(filepath.Dir(made[0])))

			if tool == "uv" { // which is quick
				if err := os.Remove(filepath.Join(filepath.Dir(made[0]), "..", environmentMade)); err != nil {
					t.Fatal(err)
				}
				if again, err := MakeEnvironment(t.Context(), cfg, e); err != nil || again != made[0] || said.count("made ") != 2 {
					t.Errorf("a half-made one: %s, %v\n%s", again, err, strings.Join(said.lines, "\n"))
				}
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("a start-up file of a package has run outside the wall")
			}
			// An environment as the interpreter makes no other of the same, and is no part of it.
			e.Progress = func(line string) { t.Errorf("made again: %s", line) }
			from := Config{Python: made[0]}
			if again, err := MakeEnvironment(t.Context(), from, e); err != nil || again != made[0] {
				t.Errorf("made with the environment itself: %s, %v", again, err)
			}
		})
	}
}

// closed checks that guests can read what is in an environment, and others of this machine can't.
func closed(t *testing.T, dir string) {
	t.Helper()
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return err
	})
}

// What comes as source does not run, also where another package's wheel names it by its
// address. What fails leaves nothing.
func TestMakeEnvironmentRunsNoSource(t *testing.T) {
	t.Parallel()
	python := hasPython(t)
	for tool, variables := range installers(t) {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			dir := written(t, nil)
			mark := filepath.Join(dir, "ran")
			wheel(t, dir, "greet", mark, "evil @ file://"+evil(t, dir, mark))
			e := Environment{Requirements: filepath.Join(dir, "requirements.txt"), Cache: filepath.Join(dir, "cache"), Variables: variables}
			if err := os.WriteFile(e.Requirements, []byte("greet-1.0-py3-none-any.whl\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			cfg := Config{Python: python, PythonEnv: os.Environ()}
			_, err := MakeEnvironment(t.Context(), cfg, e)
			if err == nil || !strings.Contains(err.Error(), "--dangerously-build-packages") {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Fatal("a package's code has run outside the wall")
			}
			left, _ := filepath.Glob(filepath.Join(e.Cache, "venvs", "*"))
			if len(left) != 1 || filepath.Ext(left[0]) != ".lock" {
				t.Errorf("left behind: %q", left)
			}
			e.DangerouslyBuild = true // or this test could not fail
			if _, err = MakeEnvironment(t.Context(), cfg, e); err == nil {
				t.Error("built what can't be built")
			}
			if _, err := os.Stat(mark); err != nil {
				t.Errorf("allowed, it did not run: %v", err)
			}
		})
	}
}

func TestMakeEnvironmentFails(t *testing.T) {
	t.Parallel()
	python := hasPython(t)
	uv := installers(t)["uv"]
	dir := written(t, map[string]string{"requirements.txt": "no-such-package\n--no-index\n", "work/cache/x": ""})
	e := Environment{Requirements: filepath.Join(dir, "requirements.txt"), Cache: filepath.Join(dir, "cache"), Variables: uv}
	cfg := Config{Python: python, PythonEnv: os.Environ()}
	_, err := MakeEnvironment(t.Context(), cfg, e)
	if err == nil || !strings.HasPrefix(err.Error(), "srt: packages: ") || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("the installer's words are missing: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the operator has gone"))
	if _, err := MakeEnvironment(ctx, cfg, e); err == nil {
		t.Error("made after its time")
	}
	in := cfg
	in.Workspace = filepath.Join(dir, "work")
	e.Cache = filepath.Join(dir, "work", "cache")
	if _, err := MakeEnvironment(t.Context(), in, e); err == nil || !strings.Contains(err.Error(), "can write") {
		t.Errorf("in the workspace: %v", err)
	}
	e.Cache = filepath.Join(dir, "open")
	if err := errors.Join(os.MkdirAll(filepath.Join(e.Cache, "venvs"), 0o700), os.Chmod(filepath.Join(e.Cache, "venvs"), 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeEnvironment(t.Context(), cfg, e); err == nil || !strings.Contains(err.Error(), "others") {
		t.Errorf("in a directory that is everybody's: %v", err)
	}
	if err := errors.Join(os.Chmod(filepath.Join(e.Cache, "venvs"), 0o700), os.Chmod(e.Cache, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeEnvironment(t.Context(), cfg, e); err == nil || !strings.Contains(err.Error(), "in the place of") {
		t.Errorf("below a directory that is everybody's: %v", err)
	}
}

func TestToldLines(t *testing.T) {
	t.Parallel()
	var all []string
	said := &told{tell: func(l string) { all = append(all, l) }}
	for _, piece := range []string{"one\ntw", "o\r\n\x1b[31mred\x1b[0m\n", strings.Repeat("x", 3*toldLine), "y\n", "end\xff"} {
		_, _ = said.Write([]byte(piece))
	}
	said.end()
	if want := []string{"one", "two", "[31mred[0m", strings.Repeat("x", toldLine), "end"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
}
