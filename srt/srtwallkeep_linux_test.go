package srt

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// noneLives waits until none of some processes lives.
func noneLives(t *testing.T, pids []int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var alive []int
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil && !zombie(pid) {
				alive = append(alive, pid)
			}
		}
		if len(alive) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%v live on", alive)
		}
	}
}

func zombie(pid int) bool {
	state, _, err := statOf(fmt.Sprintf("/proc/%d", pid))
	return err != nil || state == 'Z'
}

// The keeper outlives its server by as long as it takes to end what the other has started,
// also what has left its group and its session.
func TestSRTKeeper(t *testing.T) {
	lifeR, life, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	exe := os.Getenv(testBin)
	if exe == "" {
		exe = "/proc/self/exe"
	}
	const script = `trap "" TERM; setsid sh -c 'trap "" TERM; (setsid sleep 600 & echo $!); echo $$; exec sleep 600' & sleep 600 & echo $!; echo $$; wait`
	cmd := exec.Command(exe, "be-child", verbKeep, "/bin/sh", "-c", script)
	cmd.ExtraFiles = []*os.File{lifeR}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lifeR.Close()
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 4 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 4 {
		t.Fatalf("started %v", pids)
	}
	life.Close() // as by the server's death
	_ = cmd.Wait()
	noneLives(t, pids)
}

// A cage ends wherever it is hit, nothing of it is left, and the session goes on.
func TestSRTKilled(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := srtLocal(t, Config{Limits: small})
		s := opener(l)(t).(*session)
		// What needs a Unix socket can't be had, and the like that needs none can.
		const processes = `import multiprocessing, socket
def double(n): return 2 * n
def unix():
    try: socket.socket(socket.AF_UNIX)
    except PermissionError: return "refused"
def manager():
    try: multiprocessing.Manager()
    except EOFError: return "refused"
with multiprocessing.Pool(2) as pool: doubled = pool.map(double, [1, 2])
x = 41
[doubled, unix(), manager(), bool(socket.socketpair())]`
		if got := string(do(t, s, processes, sandbox.StatusOK, sandbox.StateNew).Output); got != `[[2,4],"refused","refused",true]` {
			t.Errorf("processes and Unix sockets: %s", got)
		}
		for name, victim := range map[string]func(c *cage) int{
			"the supervisor": func(c *cage) int { return c.Pid() },
			"PID 1 inside": func(c *cage) int {
				pid, err := parentOf(c.Pid())
				if err != nil {
					t.Fatal(err)
				}
				return pid
			},
			"srt": func(c *cage) int { return descendants(c.cmd.Process.Pid, nil)[1] },
		} {
			c := s.live.cage
			all := descendants(c.cmd.Process.Pid, nil)
			if len(all) < 5 {
				t.Fatalf("%s: %v are no keeper, srt, bubblewrap, PID 1, supervisor and worker", name, all)
			}
			dir := l.wall.(*srtWall).dir
			if err := syscall.Kill(victim(c), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-s.live.client.Broken()
			do(t, s, "'x' in globals()", sandbox.StatusOK, sandbox.StateLost)
			noneLives(t, all)
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 { // the kernel's files, and the live cage
				t.Errorf("%s: left in the wall's directory: %v, %v", name, left, err)
			}
			do(t, s, "x = 41", sandbox.StatusOK, sandbox.StateKept)
		}
		// Nor does srt leave files of its own where code works.
		if got := string(do(t, s, "import os; sorted(os.listdir())", sandbox.StatusOK, sandbox.StateKept).Output); got != "[]" {
			t.Errorf("in the workspace: %s", got)
		}
	})
}

// What srt says when it fails is what the operator reads.
func TestSRTSays(t *testing.T) {
	asUser(t, func(t *testing.T) {
		dir := t.TempDir()
		fake := dir + "/srt"
		script := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 0.0.83; else echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1; fi\n"
		if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Wall: WallSRT, Python: testPython, native: testNative(), srt: testSRTConfig(t)}
		cfg.srt.Command = fake
		_, err := New(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "setting up uid map: Permission denied") || !strings.Contains(err.Error(), "user.max_user_namespaces") {
			t.Errorf("neither the reason nor the remedy: %v", err)
		}
	})
}
