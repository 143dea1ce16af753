package main_test

import (
	"bytes"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A server that is killed in the middle of work takes its sessions with it at
// once; what the kernel can't remove, the next server does.
func TestKilledServerLeavesNothing(t *testing.T) { killServers(t, 50) }

func killServers(t *testing.T, times int) {
	t.Helper()
	server := binary(t)
	tmp, err := os.MkdirTemp("", "killed-") // not t.TempDir, which a guest's user can't reach
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	mark := "31536." + fmt.Sprint(mathrand.Uint32()) // the seconds that children sleep, and how we know them
	code := "import os, subprocess, threading\n" +
		"open('f', 'wb').write(bytes(1 << 20))\n" +
		"for i in range(3): subprocess.Popen(['sleep', '" + mark + "'], start_new_session=True)\n" +
		"if os.fork() == 0:\n    os.setsid()\n    while True: os.write(1, b'x' * 4096)\n" +
		"while True: pass\n"
	killed := map[string]bool{}
	for i := range times {
		pid := killAtWork(t, server, tmp, code, i%2 == 0)
		killed[fmt.Sprint(pid)] = true
	}
	deadline := time.Now().Add(20 * time.Second)
	for left := marked(t, mark); len(left) > 0; left = marked(t, mark) {
		if time.Now().After(deadline) {
			t.Fatalf("processes outlive their servers: %q", left)
		}
		time.Sleep(20 * time.Millisecond)
	}

	_, stderr, err := try(t, "", []string{"TMPDIR=" + tmp}, server, "exec", "1")
	if err != nil {
		t.Fatalf("the next start: %v\n%s", err, stderr)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("after the next start there are left: %v, %v\n%s", left, err, stderr)
		_ = filepath.WalkDir(tmp, func(path string, _ fs.DirEntry, err error) error {
			t.Logf("%s, %v", path, err)
			return nil
		})
	}
	for _, group := range controlGroups() {
		if parts := strings.Split(group, "."); len(parts) > 1 && killed[parts[1]] {
			t.Errorf("after the next start there is left: control group %s", group)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(tmp)) {
		t.Errorf("a mount is left on the host: %v\n%s", err, mounts)
	}
}

// killAtWork starts a server, has it work, and kills it at a random moment: if
// early is true often before the interpreter has even started.
func killAtWork(t *testing.T, server, tmp, code string, early bool) int {
	t.Helper()
	w := newWire(t, server, "TMPDIR="+tmp)
	w.send("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "t", "version": "0"}})
	w.send("tools/call", map[string]any{"name": "execute_python", "arguments": map[string]string{"code": code}})
	if !early {
		if _, err := w.out.ReadString('\n'); err != nil {
			t.Errorf("no answer to initialize: %v", err)
		}
	}
	time.Sleep(mathrand.N(250 * time.Millisecond)) // the random moment, not a wait for something
	if err := w.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = w.cmd.Wait() // killed
	return w.cmd.Process.Pid
}

// controlGroups are the names of all groups that servers have made.
func controlGroups() []string {
	var names []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "mcp-sandbox.") {
			names = append(names, d.Name())
		}
		return nil
	})
	return names
}
