package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is fake-sandbox as a client starts it.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	pipe   io.ReadCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("fake-sandbox", args...), stderr: &bytes.Buffer{}}
	p.Stderr = p.stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.pipe, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(p.pipe)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	p.send(t, hello)
	p.send(t, call(1, "hang"))
	p.await(t, "hanging")
	return p
}

func (p *process) send(t *testing.T, l string) {
	t.Helper()
	if _, err := io.WriteString(p.in, l+"\n"); err != nil {
		t.Fatal(err)
	}
}

// await reads until a line holds a word.
func (p *process) await(t *testing.T, word string) {
	t.Helper()
	for {
		l, err := p.out.ReadString('\n')
		if strings.Contains(l, word) {
			return
		}
		if err != nil {
			t.Fatalf("%q never came: %v\n%s", word, err, p.stderr)
		}
	}
}

// ended waits for the end: its exit code, and how long it took.
func (p *process) ended() (rest string, code int, took time.Duration) {
	begin := time.Now()
	b, _ := io.ReadAll(p.out)
	_ = p.Wait()
	return string(b), p.ProcessState.ExitCode(), time.Since(begin)
}

// A signal interrupts what runs, answers it, closes the sessions, and is no
// failure.
func TestSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			p := start(t, "--log-level", "debug")
			if err := p.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			rest, code, took := p.ended()
			if code != 0 || took > 3*time.Second {
				t.Errorf("exit code %d after %v", code, took)
			}
			if !strings.Contains(rest, `"status":"cancelled"`) {
				t.Errorf("the call was not answered: %q", rest)
			}
			for l := range strings.Lines(rest) {
				if !json.Valid([]byte(l)) {
					t.Errorf("stdout holds %q", l)
				}
			}
			for _, want := range []string{"fake: interrupted", "fake: closed", "ended"} {
				if !strings.Contains(p.stderr.String(), want) {
					t.Errorf("%q is missing in\n%s", want, p.stderr)
				}
			}
		})
	}
}

// Code that can't be interrupted does not keep the server.
func TestSignalIsBounded(t *testing.T) {
	p := start(t)
	p.send(t, callNew(3, "stubborn 60s"))
	p.await(t, "stubborn")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, code, took := p.ended(); code != 1 || took > endLimit+2*time.Second || !strings.Contains(p.stderr.String(), "closing took too long") {
		t.Errorf("exit code %d after %v\n%s", code, took, p.stderr)
	}
}

// A client that closes our stdout does not kill us before all is closed.
func TestBrokenPipe(t *testing.T) {
	p := start(t)
	p.pipe.Close()
	p.send(t, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	_ = p.Wait()
	if code := p.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.stderr.String(), "fake: closed") {
		t.Errorf("exit code %d\n%s", code, p.stderr)
	}
}
