package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/externals"
)

// otherServer writes a file with one server: this very program, marked.
func otherServer(t testing.TB, mark string, args ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mcp.json")
	data, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"other": map[string]any{
		"command": "fake-sandbox", "args": append([]string{"serve", "--log-level", "error", "--env", "MARK=" + mark}, args...),
		"description": "A sandbox", "allowDestructive": true,
	}}})
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// A server that is its own upstream, or another's that comes back to it, calls nothing.
func TestExternalsNested(t *testing.T) {
	t.Parallel()
	file := otherServer(t, rand.Text())
	ring := otherServer(t, rand.Text(), "--externals", file)
	s := startWeb(t, "--externals", ring)
	code := `external other execute_python {"code":"external other execute_python {\"code\":\"print hi\"}"}`
	if r := s.modern(map[string]any{"code": code}); !r.Success {
		t.Errorf("the outer call: %+v", r)
	} else if body := s.do("POST", "/mcp", append(append(header{}, both...), modernHeaders...), modernCall(map[string]any{"code": code})).body; !strings.Contains(body, "may not call externals itself") {
		t.Errorf("the inner call: %s", body)
	}
	if r := s.modern(map[string]any{"code": `external other execute_python {"code":"print hi"}`}, externals.DepthHeader, "1"); r.Success || !strings.Contains(r.Error, "may not call externals itself") {
		t.Errorf("asked by another: %+v", r)
	}
}

// What an upstream has started ends with it, wherever that went, and it with us.
func TestKeeper(t *testing.T) {
	t.Parallel()
	const script = `setsid sh -c 'echo $$; exec sleep 1000 <&- >&- 2>&-' & sh -c 'echo $$; exec sleep 1000' & read line; echo got $line; exit 3`
	for name, end := range map[string]func(externals.Process){
		"killed": func(p externals.Process) { p.Kill() },
		"by itself": func(p externals.Process) {
			if _, err := io.WriteString(p.Stdin(), "word\n"); err != nil {
				t.Error(err)
			}
		},
		"as we are killed": func(p externals.Process) { _ = p.(*kept).life.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := startUpstream(externals.Command{Path: "sh", Args: []string{"-c", script}, Env: upstreamEnvironment(), Dir: t.TempDir(), Stderr: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			var pids [2]int
			if _, err := fmt.Fscan(p.Stdout(), &pids[0], &pids[1]); err != nil {
				t.Fatal(err)
			}
			end(p)
			err = p.Wait()
			var exit *exec.ExitError
			if name == "by itself" && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
				t.Errorf("it ended with %v", err)
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
					t.Errorf("process %d is there: %v", pid, err)
				}
			}
		})
	}
	if _, err := startUpstream(externals.Command{Path: "no-such-command", Env: []string{"PATH=" + t.TempDir()}}); err == nil || !strings.Contains(err.Error(), "not on PATH") {
		t.Errorf("no such command: %v", err)
	}
}

// The descriptors of a child are its streams and no more.
func TestKeeperDescriptors(t *testing.T) {
	t.Parallel()
	p, err := startUpstream(externals.Command{Path: "sh", Args: []string{"-c", "ls /proc/self/fd; read line"}, Env: upstreamEnvironment(), Dir: "/", Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	_ = p.Stdin().Close()
	done := time.AfterFunc(time.Minute, p.Kill)
	defer done.Stop()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(fd); err != nil || n > 3 { // 3 is ls's own
			t.Errorf("descriptors: %s", out)
		}
	}
}

// The budgets go with each call to the kernel, which keeps them.
func TestExternalsBudgets(t *testing.T) {
	t.Parallel()
	file := otherServer(t, rand.Text())
	for want, flags := range map[string][]string{
		"{Calls:100 Bytes:67108864 Time:10m0s Timeout:1m0s}\n": nil,
		"{Calls:7 Bytes:2097152 Time:1m30s Timeout:5s}\n":      {"--externals-max-calls", "7", "--externals-max-bytes", "2MiB", "--externals-max-time", "90s", "--externals-timeout", "5s"},
	} {
		if got := runFake(t, "", append(append([]string{"exec", "--externals", file}, flags...), "limits")...); got.code != 0 || got.stdout != want {
			t.Errorf("%+v; want %s", got, want)
		}
	}
	if got := runFake(t, "", "exec", "--externals", file, "--externals-max-time", "0s", "limits"); got.code != exitUsage || !strings.Contains(got.stderr, "must be above 0") {
		t.Errorf("no time at all: %+v", got)
	}
}

func TestExternalsFaults(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(name, []byte(`{"mcpServers":{"a":{"comand":"x"},"b":{"command":"${XG_NOT_SET}"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("fake-sandbox", "--externals", name).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), "mcpServers.a.comand: unknown key") || !strings.Contains(string(out), "XG_NOT_SET is not set") {
		t.Errorf("%v: %s", err, out)
	}
}
