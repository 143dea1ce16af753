package externals

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// TestMain is also the fake upstream, which tests start as a child.
func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv("FAKE"); ok {
		os.Exit(fakeMain(mode, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// child is a Process without the care of the product's own.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	gone   chan struct{}
	err    error
}

func startChild(c Command) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stderr = c.Env, c.Dir, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, inErr := cmd.StdinPipe()
	r, w, outErr := os.Pipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	cmd.Stdout = w
	err := cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	p := &child{cmd: cmd, stdin: in, stdout: r, gone: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

func (c *child) Stdin() io.WriteCloser { return c.stdin }
func (c *child) Stdout() io.ReadCloser { return c.stdout }
func (c *child) Kill()                 { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
func (c *child) Wait() error           { <-c.gone; return c.err }

// logged is a log that tests can read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// open makes a client that is closed at the test's end.
func open(t testing.TB, cfg Config) *Client {
	t.Helper()
	cfg.Start = startChild
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fake is a server of the file that is our own binary.
func fake(t testing.TB, mode string, env ...string) Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Name: "fake", Command: exe, Dir: t.TempDir(), Env: map[string]string{"FAKE": mode}}
	for i := 0; i < len(env); i += 2 {
		s.Env[env[i]] = env[i+1]
	}
	return s
}
