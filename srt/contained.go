package srt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"mcp-sandbox/srt/egress"
)

// Program is what runs as PID 1 behind a wall of its own, as in a container: with no
// workspace, /tmp as its directory, and nothing on its standard input.
type Program struct {
	Argv   []string // Argv[0] is an absolute path, below /usr or the interpreter's prefixes
	Env    []string // all of it
	Port   int      // of loopback, on which it will listen; 0 = none
	Memory int64    // bytes; 0 = a session's

	Stdout, Stderr io.Writer // written from one goroutine each; nil = nowhere
}

// policy is what the program may see and use.
func (p Program) policy(l *Local) Policy {
	policy := l.policy("", l.wall.places(""))
	policy.Workspace, policy.Mounts = Mount{}, slices.Clone(policy.Mounts)
	policy.Network = egress.Rules{} // its network is its own
	if p.Memory > 0 {
		policy.Memory = max(p.Memory, minMemory)
	}
	return policy
}

func (p Program) validate() error {
	if len(p.Argv) == 0 {
		return errors.New("srt: a program without a name")
	}
	if p.Port < 0 || p.Port > 65535 {
		return fmt.Errorf("srt: %d is no port", p.Port)
	}
	return nil
}

// drains are the pipes from a program to its writers.
type drains struct {
	guest  []*os.File // the guest's ends, nil where nobody listens
	server []*os.File
	to     []io.Writer
}

func newDrains(writers ...io.Writer) (o *drains, err error) {
	o = &drains{}
	for _, w := range writers {
		if w == nil {
			o.guest = append(o.guest, nil)
			continue
		}
		r, g, err := os.Pipe()
		if err != nil {
			o.closeGuest()
			closeAll(o.server)
			return nil, err
		}
		o.guest, o.server, o.to = append(o.guest, g), append(o.server, r), append(o.to, w)
	}
	return o, nil
}

func (o *drains) closeGuest() {
	for _, f := range o.guest {
		if f != nil {
			f.Close()
		}
	}
}

// copy passes one output on, until nobody can write to it any more.
func (o *drains) copy(i int) {
	_, _ = io.Copy(o.to[i], o.server[i]) // what a writer refuses is lost
	_, _ = io.Copy(io.Discard, o.server[i])
	o.server[i].Close()
}
