package sandboxtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// Bait lays out on this host, until the test ends, what the probes look for:
// a secret in the environment and in a file that everybody may read, listeners
// on loopback, on an abstract socket and on one in the file system. The server
// is this process. limits are those of the sessions that will be opened.
//
// It sets an environment variable, so that the test can't be parallel.
func Bait(t *testing.T, limits sandbox.Limits) EscapeEnv {
	t.Helper()
	limits, err := limits.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	value := "canary-" + strings.ToLower(rand.Text())
	env := EscapeEnv{
		CanaryName: "MCP_SANDBOX_TEST_CANARY", CanaryValue: value,
		HostPID: os.Getpid(), Limits: limits,
	}
	t.Setenv(env.CanaryName, value)
	env.Hostname, _ = os.Hostname()
	env.HostPIDNS, _ = os.Readlink("/proc/self/ns/pid")
	env.HostStart = startTime(os.Getpid())

	// Not t.TempDir, whose parent is closed to others: a file that the guest's
	// user may not read anyway would prove nothing about the wall.
	dir, err := os.MkdirTemp("", "bait-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	env.CanaryFile = filepath.Join(dir, "canary")
	env.Socket = filepath.Join(dir, "socket")
	if err := os.WriteFile(env.CanaryFile, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
	listen := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	env.Loopback = listen("tcp", "127.0.0.1:0")
	listen("unix", env.Socket)
	if runtime.GOOS == "linux" {
		env.Abstract = "bait-" + value
		listen("unix", "@"+env.Abstract)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, env.CanaryFile: 0o644, env.Socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return env
}

// startTime is when a process began, in the kernel's ticks; "" where there is
// no /proc.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// hostProcesses lists the processes of this machine whose command line holds
// token; none where there is no /proc.
func hostProcesses(token string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(b, []byte(token)) {
			found = append(found, pid)
		}
	}
	return found
}
