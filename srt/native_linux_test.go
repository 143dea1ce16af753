package srt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is a safety limit alone: no test is decided by it.
const patience = 60 * time.Second

const testPython = "/usr/bin/python3" // where an ordinary user finds one too

// clientPython names an interpreter that has pip and requests.
const clientPython = "MCP_SANDBOX_TEST_CLIENT_PYTHON"

// sideBySide lets a long test run beside others. In the test binary of an ordinary user it
// does nothing: there the environment may be changed, and nothing else runs.
func sideBySide(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Parallel()
	}
}

// asEachUser runs test as who we are and, where that is root, once more as an ordinary
// user, in a test binary of its own.
func asEachUser(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Run("user", test)
		return
	}
	t.Run("root", test)
	t.Run("as user", func(t *testing.T) {
		name, _, _ := strings.Cut(t.Name(), "/")
		ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
		defer cancel()
		// By the link: the file itself lies where only root can go.
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+name+"$/^user$", "-test.v", "-test.count=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		cmd.Env = []string{"PATH=/usr/bin:/bin", "MCP_SANDBOX_REQUIRE=" + os.Getenv("MCP_SANDBOX_REQUIRE"), testBin + "=" + os.Getenv(testBin), clientPython + "=" + os.Getenv(clientPython)}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if strings.Contains(string(out), "SKIP") {
			t.Skip(string(out))
		}
	})
}

// nativeWall returns a wall that is taken down with the test.
func nativeWall(t *testing.T) *native {
	t.Helper()
	n, err := newNative(testNative())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// workspace makes a directory as the server would: the guest's own.
func workspace(t *testing.T, n *native) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wall-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	uid, gid := n.hostIDs()
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

func testPolicy(workspace string) Policy {
	return Policy{Workspace: Mount{Host: workspace, Writable: true}, AllowExec: true}
}

// python runs code behind the wall until it ends, and returns what it printed.
func python(t *testing.T, n *native, p Policy, code string) string {
	t.Helper()
	out, err := tryPython(t, n, p, command{Path: testPython, Args: []string{"-I", "-c", code}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// tryPython starts c, and returns its standard output, its standard error after that, and
// an error for a wall not raised or a program that did not end well.
func tryPython(t *testing.T, n *native, p Policy, c command) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Stdout, c.Stderr = w, w
	if c.Env == nil {
		c.Env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cage, err := n.start(ctx, p, c)
	w.Close()
	if err != nil {
		return "", err
	}
	defer cage.Close()
	stop := time.AfterFunc(patience, func() { cage.Kill() })
	defer stop.Stop()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if state := cage.Wait(); !state.Success() {
		return string(out), fmt.Errorf("the program ended: %v", state)
	}
	return string(out), nil
}

func TestStart(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir := workspace(t, n)
		out := python(t, n, testPolicy(dir), `
import os
open("/workspace/made", "w").write("x")
print(os.getpid(), os.getuid(), os.getcwd())`)
		if out != "1 1000 /tmp\n" {
			t.Errorf("printed %q", out)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
			t.Error(err)
		}
	})
}

// Whichever thread be-child begins on, the wall is built by the process's first: on a busy
// machine one start in some thousands failed, since /proc/self was somebody else's.
func TestStartOffFirstThread(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		exe := filepath.Join(t.TempDir(), offFirstThread)
		if err := os.Symlink("/proc/self/exe", exe); err != nil { // the file itself is out of a user's reach
			t.Fatal(err)
		}
		n, err := newNative(nativeConfig{Executable: exe})
		if err != nil {
			t.Fatal(err)
		}
		defer n.close()
		p := testPolicy("")
		p.Memory = 1 << 45 // a race detector maps as much
		out, err := tryPython(t, n, p, command{Path: testPython, OOMFD: true, Args: []string{"-I", "-c", "import os; print(os.write(3, b'500'))"}})
		if err != nil || out != "3\n" {
			t.Errorf("printed %q, %v", out, err)
		}
	})
}

func layerOf(err error) string {
	var l *LayerError
	if errors.As(err, &l) {
		return l.Layer
	}
	return fmt.Sprintf("no layer: %v", err)
}
