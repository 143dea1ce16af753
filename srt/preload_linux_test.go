package srt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// environment makes a virtual environment with modules, by name and content, and returns its Python.
func environment(t *testing.T, modules map[string]string) string {
	t.Helper()
	version, err := exec.Command(testPython, "-I", "-S", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	packages := filepath.Join(dir, "lib", strings.TrimSpace(string(version)), "site-packages")
	for _, made := range []string{packages, filepath.Join(dir, "bin")} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{filepath.Join(dir, "pyvenv.cfg"): "home = " + filepath.Dir(testPython) + "\n"}
	for name, content := range modules {
		files[filepath.Join(packages, name+".py")] = content
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Join(dir, "bin", "python3")
	if err := os.Symlink(testPython, python); err != nil {
		t.Fatal(err)
	}
	return python
}

// A module that does not let itself be imported is told by its name, and soon enough for the server's client.
func TestPreloadThatHarms(t *testing.T) {
	python := environment(t, map[string]string{
		"leaves": "import sys; sys.exit('usage: ...')",
		"dies":   "import os; os._exit(3)",
		"broken": "1 / 0",
		"hangs":  "import time\nwhile True: time.sleep(1)",
	})
	for name, want := range map[string]string{
		"leaves": "can't import leaves: it is a program, and ends the interpreter that imports it (SystemExit): leave it out",
		"dies":   "ends when it imports dies (the interpreter ended meanwhile: it exited with code 3, by os._exit or from native code): leave it out",
		"broken": "can't import broken: ZeroDivisionError: division by zero: leave it out",
		"hangs":  "does not import all in 20s, and the longest, hangs, took ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			l, err := New(t.Context(), Config{Warm: 1, Preload: []string{"json", name}, Python: python, native: testNative()})
			if err == nil {
				l.Close()
			}
			if took := time.Since(start); err == nil || !strings.Contains(err.Error(), want) || took > preloadLimit+20*time.Second {
				t.Errorf("after %v: %v, want %q", took, err, want)
			}
		})
	}
}

// Interpreters that are stopped are not asked one after the other while a session waits.
func TestReadyThatAreStopped(t *testing.T) {
	const stopped = 8
	l := local(t, Config{Warm: stopped})
	whenReady(t, l)
	for range stopped {
		s := <-l.pool.ready
		for _, pid := range descendants(s.live.cage.Pid(), nil) {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
		}
		l.pool.ready <- s
	}
	start := time.Now()
	s := opener(l)(t)
	if took := time.Since(start); took > stopped*time.Second/2 { // of which each would take its half
		t.Errorf("it opened after %v", took)
	}
	do(t, s, "1", sandbox.StatusOK, sandbox.StateNew)
	start = time.Now()
	if err := l.Close(); err != nil || time.Since(start) > 3*time.Second {
		t.Errorf("closed after %v: %v", time.Since(start), err)
	}
}
