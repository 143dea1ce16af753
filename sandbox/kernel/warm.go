package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"mcp-sandbox/sandbox"
)

// Warm has the interpreter do what a first call would wait for, and import
// modules, by name. It comes before any call, and is none itself: no name of a
// module is bound, the first call's State is new, and what importing prints is
// dropped. limit bounds it; the end of ctx interrupts it. The error may be an
// ImportError, or a NameError of a module that took too long or ended the interpreter.
func (c *Client) Warm(ctx context.Context, modules []string, limit time.Duration) error {
	if err := c.awaitWorker(ctx); err != nil {
		return err
	}
	id := uuid.NewString()
	payload, err := marshal(map[string]any{"op": "warm", "id": id, "modules": append([]string{}, modules...)})
	if err != nil {
		return err
	}
	t := &transfer{names: &names{doing: "loaded"}}
	r := runner{c: c, call: c.beginTransfer(id, t), limit: limit, grace: c.cfg.Grace}
	if c.cfg.Output != nil {
		c.cfg.Output.Begin(nil)
	}
	_ = c.send(kindRequest, payload) // a failure breaks the client, which wait sees
	r.wait(ctx)
	if c.cfg.Output != nil {
		var dropped sandbox.Result
		c.cfg.Output.End(&dropped)
	}
	reply := r.out.reply
	if reply != nil {
		c.restore(history{fresh: true}) // where the worker died, the next one is fresh anyway
	}
	switch {
	case r.broken != nil:
		return r.broken
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.why != nil:
		return t.names.blame(ctx, &r, errors.New(r.why.Text))
	case r.out.died != nil:
		return t.names.blame(ctx, &r, fmt.Errorf("%w: %s", ErrDied, describe(r.out.died)))
	case reply.Event == "refused":
		return fmt.Errorf("the interpreter refused to warm up: %s", reply.Error)
	case reply.Error != "":
		return ImportError(reply.Error)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warm = true
	return nil
}

// IsWarm reports whether the worker that [Client.Warm] has warmed up is still there.
func (c *Client) IsWarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.warm && c.err == nil
}

// ImportError says which module can't be imported, and why, in Python's words:
// "numpy: ModuleNotFoundError: No module named 'numpy'".
type ImportError string

// Error implements error.
func (e ImportError) Error() string { return string(e) }

// Missing reports whether there is no such module, or none that it needs.
func (e ImportError) Missing() bool { return strings.Contains(string(e), ": ModuleNotFoundError: ") }

// pingWait is less than the start of another interpreter takes on a busy machine.
const pingWait = 500 * time.Millisecond

// Ping asks the supervisor whether it is there, and waits for the answer. After half a
// second without one the client is broken, and the error wraps ErrLate.
func (c *Client) Ping() error { return c.control("ping", pingWait) }
