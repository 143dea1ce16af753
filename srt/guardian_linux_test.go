package srt

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// When the server is killed the guardian ends what no signal of the kernel's would: a daemon
// that has left its session and its parents. And no other process of the user's ends with it.
func TestGuardianOutlivesServer(t *testing.T) {
	asUser(t, func(t *testing.T) {
		required(t, os.Getenv(testBin) != "", testBin+" does not say where the binary is")
		mark := fmt.Sprintf("98765.%d", os.Getpid())
		stranger := exec.Command("/bin/sleep", "600")
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stranger.Process.Kill(); err != nil {
				t.Error("the guardian ended a process of somebody else's:", err)
			}
			_ = stranger.Wait()
		}()
		code := fmt.Sprintf("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '%s'])\n    os._exit(0)\ntime.sleep(600)", mark)
		server := exec.Command(os.Getenv(testBin), "exec", "--wall=landlock", "--python="+testPython, "--timeout=60s", code)
		server.Dir = t.TempDir()
		server.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + server.Dir, "TMPDIR=" + t.TempDir()}
		var said bytes.Buffer
		server.Stdout, server.Stderr = &said, &said
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(patience)
		for len(withArgument(t, mark)) == 0 && time.Now().Before(until) {
			time.Sleep(10 * time.Millisecond)
		}
		if len(withArgument(t, mark)) != 1 {
			_ = server.Process.Kill()
			_ = server.Wait()
			t.Fatalf("the daemon did not start: %s", &said)
		}
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait() // it was killed
		killed := time.Now()
		for time.Now().Before(killed.Add(patience)) {
			if len(withArgument(t, mark)) == 0 && len(withArgument(t, verbGuard)) == 0 {
				t.Logf("nothing was left %v after the server was killed", time.Since(killed).Round(time.Millisecond))
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("left are the daemon %v and guardians %v", withArgument(t, mark), withArgument(t, verbGuard))
	})
}

// withArgument lists this user's processes that have the word as their last argument.
func withArgument(t *testing.T, word string) (pids []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		var st unix.Stat_t
		line, err := os.ReadFile(name) // it may have ended
		if err == nil && unix.Stat(name, &st) == nil && int(st.Uid) == os.Geteuid() && strings.HasSuffix(string(line), "\x00"+word+"\x00") {
			pids = append(pids, name)
		}
	}
	return pids
}

// A person who calls what is for the server alone does no harm, least of all kill(-1).
func TestGuardianByHand(t *testing.T) {
	asUser(t, func(t *testing.T) {
		for _, verb := range []string{verbGuard, verbWarden} {
			cmd := exec.Command("/proc/self/exe", "be-child", verb)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "be-child is for mcp-sandbox itself") {
				t.Errorf("%s: %v, %s", verb, err, out)
			}
		}
	})
}
