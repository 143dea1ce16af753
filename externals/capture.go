package externals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// capture takes a reply as it came: mcp-go decodes schemas and values into types
// of its own, which lose what these don't know, and digits of large integers.
type capture struct {
	call bool // a tool's result, which mcp-go need not decode

	mu     sync.Mutex
	result json.RawMessage
	fault  *mcp.JSONRPCErrorDetails // the server's word that it did not do it
	cause  error                    // why the transport failed, where it is worse at telling
}

type captureKey struct{}

func withCapture(ctx context.Context, call bool) (context.Context, *capture) {
	c := &capture{call: call}
	return context.WithValue(ctx, captureKey{}, c), c
}

// nothing stands in for a captured result.
var nothing = json.RawMessage(`{"content":[]}`)

// noTools stands in for a list that is too long, which mcp-go would decode whole.
var noTools = json.RawMessage(`{"tools":[]}`)

// endless reports whether a reply has a list of too many tools.
func endless(result json.RawMessage) bool {
	var page struct {
		Tools parts `json:"tools"`
	}
	var many *tooMany
	return errors.As(json.Unmarshal(result, &page), &many)
}

// captured hands a reply to the capture of its request, and gives what mcp-go is to see.
func captured(ctx context.Context, reply *transport.JSONRPCResponse) *transport.JSONRPCResponse {
	c, ok := ctx.Value(captureKey{}).(*capture)
	if !ok {
		return reply
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result, c.fault = reply.Result, reply.Error
	if !c.call && endless(reply.Result) {
		short := *reply
		short.Result = noTools
		return &short
	}
	if !c.call || reply.Error != nil || bytes.Contains(reply.Result, []byte(`"input_required"`)) {
		return reply
	}
	short := *reply
	short.Result = nothing
	return &short
}

// failed notes why a transport can't give the reply.
func failed(ctx context.Context, err error) {
	if c, ok := ctx.Value(captureKey{}).(*capture); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cause == nil {
			c.cause = err
		}
	}
}

// of is what became of the request, err being what mcp-go made of it.
func (c *capture) of(err error) (json.RawMessage, *mcp.JSONRPCErrorDetails, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fault != nil:
		return nil, c.fault, nil
	case err == nil && len(c.result) == 0:
		return nil, nil, errors.New("it sent a reply that holds nothing")
	case err != nil && c.cause != nil:
		return nil, nil, c.cause
	}
	return c.result, nil, err
}

// why is what made the transport fail, or err, as mcp-go has it.
func (c *capture) why(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}
