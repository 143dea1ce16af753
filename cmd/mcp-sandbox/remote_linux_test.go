package main_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload"
)

// cluster is an emulated one, whose containers are behind the wall.
type cluster struct{ endpoint, token string }

func startCluster(t *testing.T) cluster {
	t.Helper()
	cmd := exec.Command(binary(t), "workload-emulator", "--speed", "50", "--log-level", "warn")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	found := regexp.MustCompile(`DATAROBOT_ENDPOINT=(\S+) DATAROBOT_API_TOKEN=(\S+)`).FindStringSubmatch(line)
	if err != nil || found == nil {
		t.Fatalf("%q: %v", line, err)
	}
	return cluster{found[1], found[2]}
}

// left are the workloads and artifacts that the cluster has.
func (c cluster) left(t *testing.T) (n int) {
	t.Helper()
	for _, what := range []string{"workloads", "artifacts"} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.endpoint+"/"+what+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Data []any }
		err = json.NewDecoder(res.Body).Decode(&list)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		n += len(list.Data)
	}
	return n
}

// remote opens sessions on a cluster, such that remember unless cfg has another mode, and
// sees to that nothing is left there.
func (c cluster) remote(t *testing.T, cfg workload.Config) func(t *testing.T) sandbox.Session {
	t.Helper()
	cfg.Endpoint, cfg.Token, cfg.Mode, cfg.Instance, cfg.WorkDir = c.endpoint, c.token, cmp.Or(cfg.Mode, workload.ModeSession), t.Name(), t.TempDir()
	w, err := workload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(time.Minute); c.left(t) > 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%d workloads and artifacts are left", c.left(t))
				return
			}
		}
	})
	var opened atomic.Int64
	return func(t *testing.T) sandbox.Session {
		t.Helper()
		s, err := w.Open(t.Context(), sandbox.Spec{ID: fmt.Sprintf("s%d", opened.Add(1))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

// The one suite for all backends, on containers that remember.
func TestRemoteConformance(t *testing.T) {
	t.Parallel() // it waits more than it works
	limits := sandbox.Limits{Disk: 64 << 20, Inodes: 5000, OpenFiles: 256}
	const memory = 384 << 20
	open := startCluster(t).remote(t, workload.Config{Memory: memory, Limits: limits})
	has := limits
	has.Memory = memory
	sandboxtest.Run(t, open, sandboxtest.Abilities{Limits: has, Lacks: map[sandboxtest.Ability]string{
		sandboxtest.Commands:    "commands run on this machine",
		sandboxtest.Hibernation: "a container holds its variables until it is deleted",
		sandboxtest.TaskLimit:   "the cluster limits tasks, and has no way to be asked for it",
	}})
}

// Code in a container shares its user with the agent, and the agent's port is open to it.
func TestRemoteAgentHolds(t *testing.T) {
	t.Parallel() // it waits more than it works
	open := startCluster(t).remote(t, workload.Config{})
	call := func(t *testing.T, s sandbox.Session, code string) sandbox.Result {
		t.Helper()
		res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for name, c := range map[string]struct{ code, output string }{
		"its memory, environment and descriptors": {`import os, ctypes
found = []
for what in ('mem', 'environ', 'maps', 'fd', 'cwd', 'exe', 'syscall', 'io'):
    path = '/proc/1/' + what
    try:
        found.append((what, len(os.listdir(path) if what == 'fd' else os.readlink(path) if what in ('cwd', 'exe') else open(path, 'rb').read(1))))
    except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
    if libc.ptrace(request, 1, 0, 0) == 0:
        found.append('traced')
found`, "[]"},
		"SIGKILL": {"import os\nos.kill(1, 9)\n0", "0"},
		"its port": {`import socket
found = []
for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    for family, address in ((socket.AF_INET, ('0.0.0.0', 8080)), (socket.AF_INET, ('127.0.0.1', 8080)), (socket.AF_INET6, ('::', 8080))):
        try:
            with socket.socket(family) as s:
                s.setsockopt(socket.SOL_SOCKET, option, 1)
                s.bind(address)
                s.listen()
                found.append((option, address))
        except OSError:
            pass
found`, "[]"},
		"another key, a message of one's own": {`import http.client, os
found = []
for path, body in (('/v1/hello', os.urandom(32)), ('/v1/start', os.urandom(100)), ('/v1/shutdown', bytes(100)), ('/healthz', b''), ('/v1/talk', b'x' * 3_000_000)):
    c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=5)
    try:
        c.request('POST', path, body)
        found.append(c.getresponse().status)
    except OSError:
        found.append('closed')
    c.close()
found`, `[409,409,409,200,`},
		"connections without end": {`import socket
held = []
for n in range(150):
    try:
        s = socket.create_connection(('127.0.0.1', 8080), timeout=2)
        s.send(b'POST /v1/talk HTTP/1.1\r\nContent-Length: 100\r\n' + (b'' if n % 2 else b'\r\nhalf'))
        held.append(s)
    except OSError:
        pass
len(held) > 50`, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			call(t, s, "before = 1")
			if res := call(t, s, c.code); !strings.HasPrefix(string(res.Output), c.output) {
				t.Errorf("%s %s", res.Output, res.Error)
			}
			if res := call(t, s, "before"); string(res.Output) != "1" || res.State != sandbox.StateKept {
				t.Errorf("after it: %+v", res)
			}
		})
	}
	// Who ends the supervisor has ended his own variables; the container goes on.
	for name, code := range map[string]string{
		"the supervisor killed": "import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(5)",
		"everything killed":     "import os\nos.kill(-1, 9)\nimport time\ntime.sleep(5)",
		"everything stopped":    "import os\nos.kill(os.getppid(), 19)\nimport time\ntime.sleep(5)",
		"the agent told to end": "import os\nos.kill(1, 15)\nimport time\ntime.sleep(5)",
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			call(t, s, "before = 1\nopen('kept', 'w').write('k')")
			res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 3 * time.Second})
			if err != nil || res.Status == sandbox.StatusOK || res.State != sandbox.StateLost {
				t.Errorf("%+v, %v", res, err)
			}
			if res := call(t, s, "['before' in globals(), open('kept').read()]"); string(res.Output) != `[false,"k"]` || res.State == sandbox.StateKept {
				t.Errorf("after it: %+v", res)
			}
		})
	}
}

// What a result says is true of a container, where neither this machine's Python nor its
// outputs count.
func TestRemoteTells(t *testing.T) {
	s := startCluster(t).remote(t, workload.Config{})(t)
	for code, c := range map[string]struct{ says, never string }{
		"import nothing_of_this_name": {"--workload-image", "--python"},
		"print('a' * 100_000)":        {"bytes left out; not kept: write long output to a file]", "resource"},
	} {
		res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: 20 * time.Second})
		if said := res.Stdout + res.Error; err != nil || !strings.Contains(said, c.says) || strings.Contains(said, c.never) {
			t.Errorf("%s: %v\n%s", code, err, said)
		}
	}
}
