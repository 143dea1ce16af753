package srt

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var _ sandbox.Checkpointer = (*Local)(nil)

// checkpoints counts those of all sessions. It is safe for concurrent use.
type checkpoints struct{ made, taken atomic.Int64 }

// count hears that one was parked, or else that a parked one has become a worker.
func (c *checkpoints) count(parked bool) {
	if parked {
		c.made.Add(1)
	} else {
		c.taken.Add(1)
	}
}

func (c *checkpoints) read() sandbox.Checkpoints {
	return sandbox.Checkpoints{Made: c.made.Load(), Taken: c.taken.Load()}
}

// unsaved says of variables that were lost why no checkpoint was there; "" where none is to be expected.
func unsaved(c Config) string {
	if c.Checkpoint == sandbox.CheckpointOff || runtime.GOOS != "linux" {
		return ""
	}
	text := fmt.Sprintf("no checkpoint was there to restore the variables from: none is made while the interpreter holds more than %s, five eighths of its memory limit, "+
		"or has as many processes and threads as it may, and one is given up where memory is short", kernel.Bytes(c.Limits.Memory/8*5))
	if c.Checkpoint == sandbox.CheckpointIdle {
		text += "; nor is one made before ten milliseconds have passed without a call"
	}
	return text
}
