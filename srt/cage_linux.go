package srt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcp-sandbox/srt/egress"
)

// cage is one walled PID namespace and the control group around it. It is safe for
// concurrent use. Whoever started it must call Close.
type cage struct {
	cmd   *exec.Cmd
	limit int64         // of memory, in bytes
	group *cgroup       // nil where none can be written
	done  chan struct{} // closed when every process inside is dead and reaped
	proxy *egress.Proxy // of its network; nil = it has none
	ended chan struct{} // closed when the proxy has ended, which it does after done; nil = there is none

	seenOOM atomic.Int64 // kills that oomKilled has told of
	closing sync.Once
	closed  error
}

// cageOf takes over a started command: from here on one goroutine waits for it, and ends
// with it.
func cageOf(cmd *exec.Cmd, group *cgroup, limit int64) *cage {
	c := &cage{cmd: cmd, group: group, limit: limit, done: make(chan struct{})}
	go func() {
		// When the kernel lets PID 1 of a namespace be reaped, it has killed and reaped all
		// the others: no process of the guest outlives this.
		_ = cmd.Wait() // how it ended is in ProcessState
		close(c.done)
	}()
	return c
}

// Pid is the host's number of PID 1 inside. It names nobody else until Done.
func (c *cage) Pid() int { return c.cmd.Process.Pid }

// Done is closed when every process inside is dead.
func (c *cage) Done() <-chan struct{} { return c.done }

// Wait blocks until Done and says how PID 1 ended.
func (c *cage) Wait() *os.ProcessState {
	<-c.done
	return c.cmd.ProcessState
}

// killPatience is how long the end of what was killed is waited for. SIGKILL is prompt; only a
// process held in the kernel, by a file server that hangs for instance, takes longer.
const killPatience = 10 * time.Second

// Kill ends everything inside and waits for the end. It is fine on a dead cage.
func (c *cage) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("srt: kill: %w", err)
	}
	late := time.NewTimer(killPatience)
	defer late.Stop()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-c.done:
			return nil
		case <-again.C:
			// PID 1 ends the others, once it runs; on a starved machine they are in its way.
			for _, pid := range descendants(c.Pid(), nil) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone is what we want
			}
		case <-late.C:
			return fmt.Errorf("srt: kill: process %d is held in the kernel", c.Pid())
		}
	}
}

// Close kills, and takes the control group away. Fine twice.
func (c *cage) Close() error {
	c.closing.Do(func() {
		if c.closed = c.Kill(); c.closed == nil {
			c.closed = c.group.remove()
			if c.ended != nil {
				<-c.ended
			}
		}
	})
	return c.closed
}

// limitsMemory reports whether the kernel bounds the memory of all processes together.
func (c *cage) limitsMemory() bool { return c.group != nil }

// OOMKills is how many processes inside the kernel has killed at the memory limit; false
// where it does not count.
func (c *cage) OOMKills() (int64, bool) { return c.group.oomKills() }

// oomKilled reports whether the kernel has killed since it was last asked.
func (c *cage) oomKilled() bool {
	n, ok := c.group.oomKills()
	return ok && n > c.seenOOM.Swap(n)
}

// memory is what all processes inside use, in bytes: as the control group accounts it, or
// added up process by process where there is none.
func (c *cage) memory() (int64, error) {
	if c.group != nil {
		return c.group.usage()
	}
	h, err := heldBy(c.Pid(), true)
	if err != nil {
		return 0, err
	}
	return memoryOf(c.Pid(), c.limit, h)
}
