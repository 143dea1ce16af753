package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"sync"
	"time"
)

// peer is a process that answers lines of JSON on stdin with lines on stdout,
// told apart by their id. It is safe for concurrent use.
type peer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer  // to be read when done is closed
	done   chan struct{} // the process has closed its stdout

	mu      sync.Mutex
	id      int
	waiting map[int]chan []byte
}

const peerPatience = 5 * time.Minute // for one answer

// startPeer needs no more of cmd than what to run. Its owner must call end.
func startPeer(cmd *exec.Cmd) (*peer, error) {
	p := &peer{cmd: cmd, done: make(chan struct{}), waiting: map[int]chan []byte{}}
	cmd.Stderr = &p.stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(bufio.NewReader(out))
	return p, nil
}

func (p *peer) read(out *bufio.Reader) {
	defer close(p.done)
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return
		}
		var head struct {
			ID int `json:"id"`
		}
		if json.Unmarshal(line, &head) != nil {
			continue // not an answer: whoever waits for one will say so
		}
		p.mu.Lock()
		if c := p.waiting[head.ID]; c != nil {
			delete(p.waiting, head.ID)
			c <- line
		}
		p.mu.Unlock()
	}
}

// ask sends a request and decodes its answer into answer.
func (p *peer) ask(request map[string]any, answer any) error {
	c := make(chan []byte, 1)
	p.mu.Lock()
	p.id++
	request = maps.Clone(request)
	request["id"] = p.id
	p.waiting[p.id] = c
	b, err := json.Marshal(request)
	if err == nil {
		_, err = p.in.Write(append(b, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case line := <-c:
		return json.Unmarshal(line, answer)
	case <-p.done:
		return fmt.Errorf("%s has ended", p.cmd.Path)
	case <-time.After(peerPatience):
		return fmt.Errorf("%s: no answer in %v to %s", p.cmd.Path, peerPatience, b)
	}
}

// end closes the input and waits for the process. Its error says what the
// process had to say.
func (p *peer) end() error {
	p.in.Close()
	<-p.done
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.cmd.Path, err, p.stderr.String())
	}
	return nil
}
