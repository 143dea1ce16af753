package srt

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"mcp-sandbox/srt/egress"
)

// cage is all that runs behind one wall, and the control group around it. It is safe for
// concurrent use. Whoever started it must call Close.
type cage struct {
	cmd   *exec.Cmd     // the wall's outermost process: when it has been reaped, no process of the guest's is left
	kin   kin           // the processes inside
	limit int64         // of memory, in bytes
	group *cgroup       // nil where none can be written
	ends  ends          // how all inside is ended
	done  chan struct{} // closed when every process inside is dead and reaped
	proxy *egress.Proxy // of its network; nil = it has none
	ended chan struct{} // closed when the proxy has ended, which it does after done; nil = there is none

	seenOOM atomic.Int64 // kills that oomKilled has told of
	closing sync.Once
	closed  error
}

// ends is how a wall ends what is behind it. Its methods may be called at any time, from
// several goroutines, also when all is dead.
type ends interface {
	// kill asks for the end of everything inside, and does not wait for it.
	kill() error
	// press is called again and again until the end has come.
	press()
	// clear takes away what the start made on the host, but for the control group. It is
	// called once, when all inside is dead.
	clear() error
}

// cageOf takes over a started command: from here on one goroutine waits for it, and ends
// with it.
func cageOf(cmd *exec.Cmd, k kin, e ends, group *cgroup, limit int64) *cage {
	c := &cage{cmd: cmd, kin: k, ends: e, group: group, limit: limit, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(c.done)
	}()
	return c
}

// Pid is the host's number of the guest's first process. It names nobody else until Done.
func (c *cage) Pid() int { return c.kin.first }

// Done is closed when every process inside is dead.
func (c *cage) Done() <-chan struct{} { return c.done }

// Wait blocks until Done and says how the wall's outermost process ended: with native, and
// with it alone, that is the guest's first.
func (c *cage) Wait() *os.ProcessState {
	<-c.done
	return c.cmd.ProcessState
}

// killPatience is how long the end of what was killed is waited for. SIGKILL is prompt; only a
// process held in the kernel, by a file server that hangs for instance, takes longer.
const killPatience = 10 * time.Second

// Kill ends everything inside and waits for the end. It is fine on a dead cage.
func (c *cage) Kill() error {
	if err := c.ends.kill(); err != nil {
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
			c.ends.press()
		case <-late.C:
			return fmt.Errorf("srt: kill: process %d is held in the kernel", c.Pid())
		}
	}
}

// Close kills, and takes the control group away. Fine twice.
func (c *cage) Close() error {
	c.closing.Do(func() {
		if c.closed = c.Kill(); c.closed != nil {
			return
		}
		if c.ended != nil {
			<-c.ended
		}
		if c.closed = c.group.remove(); c.closed == nil {
			c.closed = c.ends.clear()
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
	h, err := heldBy(c.kin, true)
	if err != nil {
		return 0, err
	}
	return memoryOf(c.kin, c.limit, h)
}

// isFull reports whether there is no room to work in, although what went beyond the limit has
// ended: what lies in /tmp, in shared memory or in System V segments is no process's.
func (c *cage) isFull() bool {
	const looks = 25                // the kernel takes memory back some time after the end
	room := min(c.limit/16, 16*mib) // for an interpreter that has hardly any variables
	for range looks {
		switch used, err := c.memory(); {
		case err != nil: // it has ended itself
			return true
		case used < c.limit+watchAllowance-room:
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}
