package sandbox

import (
	"context"
	"time"

	"mcp-sandbox/allowlist"
)

// CommandRunner is a power that a Session may have besides: read-only commands
// in the session's workspace.
type CommandRunner interface {
	// RunCommand runs a command line that the allowlist accepted, without any
	// shell. What was said of Session.Run about ctx, turns and Close holds here;
	// the variables are not touched, and State is StateNone. A command that this
	// machine does not have is refused before anything ran, with an error of
	// StatusInvalid.
	RunCommand(ctx context.Context, req CommandRequest) (Result, error)
}

// CommandRequest is one call of commands.
type CommandRequest struct {
	Pipeline *allowlist.Pipeline
	Command  string                            // as it was typed, for the result; not read
	Timeout  time.Duration                     // for the whole line; 0 = DefaultTimeout
	Progress func(stream Stream, piece []byte) // as in Request
}

// Check refuses a request that no backend could run, as [Request.Check] does.
// It does not look at the arguments: that is [allowlist.List.Resolve]'s.
func (r CommandRequest) Check() error {
	if r.Pipeline == nil || len(r.Pipeline.Steps) == 0 {
		return Invalid("there is no command to run")
	}
	for _, step := range r.Pipeline.Steps {
		if len(step.Stages) == 0 {
			return Invalid("there is no command on one side of &&")
		}
	}
	if r.Timeout < 0 {
		return Invalid("the timeout must be above 0; got %v", r.Timeout)
	}
	return nil
}
