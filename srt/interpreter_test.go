package srt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func hasPython(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	required(t, err == nil, "no python3")
	return path
}

func TestInterpreterBehindAShim(t *testing.T) {
	python := hasPython(t)
	shim := script(t, fmt.Sprintf("exec %s \"$@\"\n", python))
	i, err := findInterpreter(t.Context(), shim, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if i.Path == shim || !filepath.IsAbs(i.Path) || !strings.HasPrefix(i.Version, "3.") || len(i.compiled["main.pyc"]) == 0 {
		t.Errorf("%+v", i)
	}
}

func TestInterpreterThatIsNone(t *testing.T) {
	t.Run("not on PATH", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := findInterpreter(t.Context(), "", nil)
		if err == nil || !strings.Contains(err.Error(), "apt install python3") {
			t.Errorf("%v", err)
		}
	})
	for name, c := range map[string]struct{ path, want string }{
		"a path to nothing": {"/nonexistent/python", "no interpreter at"},
		"talks nonsense":    {script(t, "echo hello"), "does not answer like Python 3"},
		"fails":             {script(t, "echo 'no such version' >&2; exit 1"), "no such version"},
		"is too old":        {script(t, `echo '{"implementation":"cpython","version":[3,8,1]}'`), "3.9 or later"},
		"is another kind":   {script(t, `echo '{"implementation":"pypy","version":[3,11,0]}'`), "pypy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := findInterpreter(t.Context(), c.path, os.Environ())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func TestPrefixes(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	got, err := prefixes([]string{"/usr", "/opt/py/lib/python3", "/opt/py", "/home/ann/.pyenv/versions/3.12", "/opt/pyx"})
	want := []string{"/home/ann/.pyenv/versions/3.12", "/opt/py", "/opt/pyx"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, broad := range []string{"/", "/home", "/home/ann", "/opt", "/etc"} {
		if got, err := prefixes([]string{broad}); err == nil {
			t.Errorf("%s was accepted: %q", broad, got)
		}
	}
}

// What a shim has started ends with it, however it ends.
func TestInterpreterEndsWhole(t *testing.T) {
	for name, end := range map[string]string{"hangs": "wait", "leaves a child": "exit 0"} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			shim := script(t, fmt.Sprintf("sleep 1000 &\necho $! > %s.new; mv %s.new %s\n%s\n", pid, pid, pid, end))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if end == "wait" {
				go func() {
					for { // until the child is there
						if _, err := os.Stat(pid); err == nil || ctx.Err() != nil {
							cancel()
							return
						}
						time.Sleep(time.Millisecond)
					}
				}()
			}
			if _, err := findInterpreter(ctx, shim, os.Environ()); err == nil {
				t.Fatal("it was taken for an interpreter")
			}
			text, err := os.ReadFile(pid)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			for begun := time.Now(); runs(n); time.Sleep(time.Millisecond) {
				if time.Since(begun) > 10*time.Second {
					_ = syscall.Kill(n, syscall.SIGKILL)
					t.Fatal("its child lives")
				}
			}
		})
	}
}

// runs reports whether pid is there and no mere remainder that nobody waited for.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// madeVenv is a virtual environment as venv makes it, without pip.
func madeVenv(t *testing.T) (dir, packages string) {
	t.Helper()
	python := hasPython(t)
	out, err := exec.Command(python, "-I", "-S", "-c", "import os, sys; print(os.path.realpath(sys.executable), '%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	real, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	dir, err = os.MkdirTemp("", "venv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	packages = filepath.Join(dir, "lib", "python"+version, "site-packages")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "bin"), 0o755), os.MkdirAll(packages, 0o755), os.Chmod(dir, 0o755),
		os.Symlink(real, filepath.Join(dir, "bin", "python")),
		os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte("home = "+filepath.Dir(real)+"\n"), 0o644),
		os.MkdirAll(filepath.Join(packages, "some_thing-1.2.dist-info"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, packages
}

// A guest may be able to write what an environment's start-up files lead to. None of it
// is run outside the wall.
func TestInterpreterRunsNoStartUpFiles(t *testing.T) {
	dir, packages := madeVenv(t)
	marker := filepath.Join(dir, "ran")
	if err := os.WriteFile(filepath.Join(packages, "x.pth"), []byte("import os; open('"+marker+"', 'w')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(packages, "sitecustomize.py"), []byte("open('"+marker+"', 'w')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // a relative path is one of the directory that the server was started in
	i, err := findInterpreter(t.Context(), "bin/python", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a start-up file of the environment was run outside the wall")
	}
	if !slices.Contains(i.Packages, "some-thing 1.2") || !slices.Contains(i.Prefixes, dir) || i.Path != filepath.Join(dir, "bin", "python") {
		t.Errorf("%+v", i)
	}
}

// What code inside can write, and what the server runs outside, are kept apart.
func TestInterpreterThatAGuestCouldChange(t *testing.T) {
	dir, packages := madeVenv(t)
	python := filepath.Join(dir, "bin", "python")
	for _, workspace := range []string{dir, packages, filepath.Join(dir, "lib"), filepath.Join(dir, "bin")} {
		_, err := safeInterpreter(t.Context(), Config{Python: python, Workspace: workspace})
		if err == nil || !strings.Contains(err.Error(), "apart") {
			t.Errorf("workspace %s: %v", workspace, err)
		}
	}
	if _, err := safeInterpreter(t.Context(), Config{Python: python, Workspace: t.TempDir()}); err != nil {
		t.Errorf("apart: %v", err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte("home = "+home+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := safeInterpreter(t.Context(), Config{Python: python, Workspace: home}); err == nil || !strings.Contains(err.Error(), "apart") {
		t.Errorf("at home in the workspace: %v", err)
	}
}

// Below an environment, however it was made and of whatever, is the interpreter that has
// the standard library: that of a prefix of its own, as pyenv and conda have them, too.
func TestInterpreterBelowEnvironments(t *testing.T) {
	t.Parallel()
	list := os.Getenv("MCP_SANDBOX_TEST_PYTHONS")
	required(t, list != "", "MCP_SANDBOX_TEST_PYTHONS is not set: run make test")
	all := filepath.SplitList(list)
	for _, python := range slices.Compact([]string{all[0], all[len(all)-1]}) {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(python))), func(t *testing.T) {
			t.Parallel()
			real, err := filepath.EvalSymlinks(python)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			from := python
			for _, how := range [][]string{{"--symlinks"}, {"--copies"}, {"--symlinks", "--system-site-packages"}} {
				env := filepath.Join(dir, strings.Join(how, ""))
				args := append([]string{"-I", "-S", "-m", "venv", "--without-pip"}, append(how, env)...)
				if out, err := exec.Command(from, args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				i, err := findInterpreter(t.Context(), filepath.Join(env, "bin", "python"), nil)
				if err != nil {
					t.Fatal(err)
				}
				if i.base != real || !slices.Contains(i.Prefixes, env) {
					t.Errorf("%v: below it is %s, want %s; prefixes %q", how, i.base, real, i.Prefixes)
				}
				if how[0] == "--symlinks" {
					from = filepath.Join(env, "bin", "python") // the next one is made of it
				}
			}
		})
	}
}
