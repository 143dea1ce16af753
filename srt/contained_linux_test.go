package srt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// contained is a program behind a wall of its own that ends with the test.
func contained(t *testing.T, l *Local, p Program) *Contained {
	t.Helper()
	c, err := l.Contain(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		c.Wait()
	})
	return c
}

// lockedBuffer is written by one goroutine and read by another.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func localForPrograms(t *testing.T) *Local {
	t.Helper()
	l, err := New(t.Context(), Config{native: testNative()})
	if err != nil {
		required(t, false, err.Error())
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestContain(t *testing.T) {
	l := localForPrograms(t)
	python := l.Python().Path

	t.Run("output and exit code", func(t *testing.T) {
		var out, errs lockedBuffer
		c := contained(t, l, Program{
			Argv: []string{python, "-c", "import os, sys; print(os.getpid(), os.getcwd(), os.environ['A']); print('e', file=sys.stderr); sys.exit(7)"},
			Env:  []string{"A=b"}, Stdout: &out, Stderr: &errs,
		})
		if code := c.Wait(); code != 7 {
			t.Errorf("exit code %d", code)
		}
		if got := out.String(); got != "1 /tmp b\n" {
			t.Errorf("stdout %q", got)
		}
		if got := errs.String(); got != "e\n" {
			t.Errorf("stderr %q", got)
		}
	})

	t.Run("a signal", func(t *testing.T) {
		c := contained(t, l, Program{Argv: []string{python, "-c", "import time; time.sleep(600)"}})
		c.Kill()
		if code := c.Wait(); code != 128+int(syscall.SIGKILL) {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("what the system refuses", func(t *testing.T) {
		_, err := l.Contain(t.Context(), Program{Argv: []string{"/usr/bin/not-there"}})
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a program that is not there: %v", err)
		}
		_, err = l.Contain(t.Context(), Program{Argv: []string{python, "-c", "0"}, Env: []string{"A=" + strings.Repeat("a", 1<<17)}})
		if !errors.Is(err, syscall.E2BIG) {
			t.Errorf("a variable that is too large: %v", err)
		}
	})
}

const echo = `
import socket, sys, threading
s = socket.create_server(("127.0.0.1", 8080))
print("ready", flush=True)
def serve(c):
    with c, c.makefile("rwb") as f:
        for line in f:
            f.write(line.upper()); f.flush()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
`

// A port of its own network can be reached, again and again, from the server alone.
func TestContainDial(t *testing.T) {
	l := localForPrograms(t)
	var out, errs lockedBuffer
	c := contained(t, l, Program{Argv: []string{l.Python().Path, "-u", "-c", echo}, Port: 8080, Stdout: &out, Stderr: &errs})
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "ready"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never listened: %s", errs.String())
		}
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:8080"); err == nil {
		conn.Close()
		t.Error("the port is the machine's")
	}
	say := func(text string) error {
		conn, err := c.Dial(t.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Fprintln(conn, text)
		got, err := bufio.NewReader(conn).ReadString('\n')
		if want := strings.ToUpper(text) + "\n"; err == nil && got != want {
			err = fmt.Errorf("said %q, heard %q", text, got)
		}
		return err
	}
	for i := range 5 * dialSockets {
		if err := say(fmt.Sprintf("in turn %d", i)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	var all sync.WaitGroup
	for i := range 3 * dialSockets {
		all.Go(func() {
			if err := say(fmt.Sprintf("at once %d", i)); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()

	var held []net.Conn
	for range dialSockets {
		conn, err := c.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one connection too many: %v", err)
	}
	for _, conn := range held {
		conn.Close()
		conn.Close() // fine twice
	}
	if err := say("once more"); err != nil {
		t.Error(err)
	}
	c.Kill()
	c.Wait()
	if _, err := c.Dial(t.Context()); !errors.Is(err, errGone) {
		t.Errorf("after the end: %v", err)
	}
}

func TestContainNothingListens(t *testing.T) {
	l := localForPrograms(t)
	c := contained(t, l, Program{Argv: []string{l.Python().Path, "-c", "import time; time.sleep(600)"}, Port: 8080})
	for range 3 * dialSockets {
		if _, err := c.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens: %v", err)
		}
	}
}

func TestContainOOM(t *testing.T) {
	l := localForPrograms(t)
	required(t, l.wall.limitsMemory(), "no control groups: the kernel does not count a program's memory")
	// One process alone is held by its own limit; several together the kernel must kill.
	const greedy = `
import os, sys, time
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        b = bytearray(100 << 20); time.sleep(2); os._exit(0)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) != 0 for c in children))`
	c := contained(t, l, Program{Argv: []string{l.Python().Path, "-c", greedy}, Memory: 128 << 20})
	if code := c.Wait(); code == 0 || !c.OOMKilled() {
		t.Errorf("exit code %d, killed for its memory: %v", code, c.OOMKilled())
	}
}
