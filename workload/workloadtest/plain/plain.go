// Package plain starts the emulator's containers as plain processes, with no
// wall: what runs in them can do whatever this process can. It is for
// code that its caller trusts.
package plain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"mcp-sandbox/workload/workloadtest"
)

var _ workloadtest.Starter = Start

// drain is how long output is read on after the process has ended: what left its
// group holds the pipes open.
const drain = time.Second

// Start is a workloadtest.Starter.
func Start(ctx context.Context, p workloadtest.Process) (workloadtest.Running, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "workload-")
	if err != nil {
		return nil, fmt.Errorf("plain: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plain: %w", err), os.Remove(dir))
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir, cmd.Env = dir, withPort(p.Env, port)
	cmd.Stdout, cmd.Stderr = p.Stdout, p.Stderr
	cmd.SysProcAttr, cmd.WaitDelay = apart(), drain
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("plain: %w", err), os.RemoveAll(dir))
	}
	r := &running{cmd: cmd, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, ended: make(chan struct{})}
	go r.wait()
	return r, nil
}

type running struct {
	cmd   *exec.Cmd
	addr  string
	dir   string
	ended chan struct{} // closed when code is set
	code  int

	mu     sync.Mutex
	reaped bool // the group's number may be another's
}

// wait is the one goroutine of a process; it ends with it.
func (r *running) wait() {
	defer close(r.ended)
	err := r.cmd.Wait() // exec closes the pipes by WaitDelay, whoever holds them
	r.mu.Lock()
	if !r.reaped {
		// What the leader left behind keeps the group's number from being used again.
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		r.reaped = true
	}
	r.mu.Unlock()
	_ = os.RemoveAll(r.dir) // a temporary directory
	r.code = exitCode(r.cmd.ProcessState, err)
}

func exitCode(state *os.ProcessState, err error) int {
	if state == nil {
		return 255
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	if err != nil && state.ExitCode() < 0 {
		return 255
	}
	return state.ExitCode()
}

func (r *running) Wait() int {
	<-r.ended
	return r.code
}

func (r *running) Terminate() { r.signal(syscall.SIGTERM) }
func (r *running) Kill()      { r.signal(syscall.SIGKILL) }

func (r *running) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		_ = syscall.Kill(-r.cmd.Process.Pid, s) // it may have ended
	}
}

func (r *running) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", r.addr)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// withPort says which port to listen on, since containers share ours.
func withPort(env []string, port int) []string {
	number := strconv.Itoa(port)
	return append(slices.Clone(env), "DRX_PORT="+number, "PORT="+number)
}
