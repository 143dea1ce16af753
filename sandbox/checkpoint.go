package sandbox

import "fmt"

// Checkpoint says when the worker is copied, so that the copy can take over if
// the worker ends. A copy is a fork: it shares its memory with the worker until
// one of the two writes to it. None is made while the worker holds more than five
// eighths of the memory limit: an older one has to do then, or there is none. There
// are none outside Linux.
type Checkpoint string

// The times of a checkpoint.
const (
	// CheckpointAlways: after each reply, and before a call if there was no time
	// for it. Nothing is lost but the call that failed.
	CheckpointAlways Checkpoint = "always"
	// CheckpointIdle: only when no call comes for ten milliseconds. What calls in
	// quick succession changed may be lost together.
	CheckpointIdle Checkpoint = "idle"
	// CheckpointOff: never. All variables are lost with the worker.
	CheckpointOff Checkpoint = "off"
)

// Resolve returns c, always for "", or an error that names what is known.
func (c Checkpoint) Resolve() (Checkpoint, error) {
	switch c {
	case "":
		return CheckpointAlways, nil
	case CheckpointAlways, CheckpointIdle, CheckpointOff:
		return c, nil
	}
	return "", fmt.Errorf("checkpoint: %q is none of always, idle, off", string(c))
}
