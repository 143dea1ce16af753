package srt

import (
	"sync"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// commandWatch holds the limits of a line of commands that the kernel doesn't: of memory
// where no control group does, and of temporary files on the server's disk. A line leaves
// nothing behind, so the watch lives as long as the line; one that is over before the first
// look costs a timer.
type commandWatch struct {
	mu    sync.Mutex
	timer *time.Timer // nil = nothing to watch, or closed
}

func watchCommands(w *warden) *commandWatch {
	c := &commandWatch{}
	if w.cage.limitsMemory() && len(w.scratch) == 0 {
		return c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(watchBusy, func() { c.look(w) })
	return c
}

// look adds up once, and says when to look again.
func (c *commandWatch) look(w *warden) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return
	}
	begun := time.Now()
	limit := w.memory + watchAllowance
	// Nothing is held beside files and memory: there are no memory files behind that wall,
	// and deleted ones lie on /tmp, which counts by what is used of it.
	near := false
	if !w.cage.limitsMemory() {
		used, err := memoryOf(w.cage.kin, limit, held{})
		if near = err == nil && used > limit/2; err == nil && used > limit { // an error: it has ended meanwhile
			w.stop(kernel.StopReason{Status: sandbox.StatusOOM, Text: outOfMemory(w.memory, allEnded)})
		}
	}
	for _, d := range w.scratch {
		if used, err := d.measure(0); err == nil && used.beyond(d.soft) {
			w.stop(kernel.StopReason{Status: sandbox.StatusError, Text: d.text(used)})
		}
	}
	c.timer.Reset(rest(time.Since(begun), near))
}

// close ends the watch, and waits for a look under way.
func (c *commandWatch) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}
