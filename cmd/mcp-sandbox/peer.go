package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/tools"
)

// peer is one client as its requests show it: which are under way, so that it
// can cancel them, and in which order its calls take their turns. It is safe for
// concurrent use.
type peer struct {
	server *server.MCPServer
	log    *slog.Logger

	version atomic.Value // string: the revision that was agreed on; none = not known

	mu      sync.Mutex
	gone    bool // the client is: what it has sent is not begun
	pending map[*request]struct{}
	turns   turns
}

// request is one under way.
type request struct {
	id        string // as its sender wrote it
	cancel    context.CancelFunc
	cancelled atomic.Bool     // by its sender, who then expects no answer
	giveUp    <-chan struct{} // ends the wait for a client that does not read; nil = something else does
}

func newPeer(s *server.MCPServer, log *slog.Logger) *peer {
	return &peer{server: s, log: log, pending: map[*request]struct{}{}}
}

// begin takes down a request, with its place among the calls for its session.
// over must be called when it has been answered.
func (p *peer) begin(ctx context.Context, m message) (_ context.Context, r *request, over func()) {
	var place *turn
	if m.Method == string(mcp.MethodToolsCall) {
		ctx = tools.WithArguments(ctx, m.arguments)
		place = p.turns.take(sessionOf(m.arguments))
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, turnKey{}, place))
	r = &request{id: string(m.ID), cancel: cancel}
	p.mu.Lock()
	p.pending[r] = struct{}{}
	if p.gone {
		r.cancelled.Store(true)
		cancel()
	}
	p.mu.Unlock()
	return ctx, r, func() {
		cancel()
		p.turns.end(place)
		p.mu.Lock()
		delete(p.pending, r)
		p.mu.Unlock()
	}
}

// underWay is the number of requests that are not answered yet.
func (p *peer) underWay() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending)
}

// cancel ends the request that a notification names, also one that still waits.
func (p *peer) cancel(params json.RawMessage) {
	var named struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &named) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.pending {
		if r.id == string(named.RequestID) {
			r.cancelled.Store(true)
			r.cancel()
		}
	}
}

// cancelAll ends all requests, and those that are yet to begin: the client has gone.
func (p *peer) cancelAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for r := range p.pending {
		r.cancelled.Store(true)
		r.cancel()
	}
}

// handle lets mcp-go handle one message. The answer is nil where none is
// expected; code is that of a JSON-RPC error, or 0.
func (p *peer) handle(ctx context.Context, r *request, text []byte) (answer []byte, code int) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("panic while handling a message", "panic", v, "stack", string(debug.Stack()))
			if r.id != "" {
				answer, code = failure(json.RawMessage(r.id), mcp.INTERNAL_ERROR, "internal error"), mcp.INTERNAL_ERROR
			}
		}
	}()
	ctx, told := tools.WithCode(ctx)
	response := p.server.HandleMessage(ctx, text)
	switch answer := response.(type) {
	case mcp.JSONRPCResponse:
		if id := tools.SessionOf(answer.Result); id != "" { // before the client can name it
			p.turns.learn(ctx, id)
		}
	case mcp.JSONRPCError: // mcp-go echoes what it was sent
		answer.Error.Message = brief(answer.Error.Message)
		answer.Error.Code = cmp.Or(*told, answer.Error.Code)
		response, code = answer, answer.Error.Code
	}
	if response == nil || r.cancelled.Load() {
		return nil, code
	}
	b, err := json.Marshal(response)
	if err != nil {
		p.log.Error("an answer can't be encoded", "err", err)
		return failure(json.RawMessage(r.id), mcp.INTERNAL_ERROR, "the answer could not be encoded"), mcp.INTERNAL_ERROR
	}
	return b, code
}

// ear is a client as mcp-go wants to know it: where notifications for it go.
type ear struct {
	id            string
	notifications chan mcp.JSONRPCNotification
	initialized   atomic.Bool
	version       *atomic.Value // of its peer
}

// How many notifications wait for a client that reads slowly; further ones are
// dropped.
const (
	earDepth  = 256 // of all calls of a client
	callDepth = 16  // of one call, which tells something ten times a second at most
)

func (p *peer) newEar(id string, depth int) *ear {
	return &ear{id: id, notifications: make(chan mcp.JSONRPCNotification, depth), version: &p.version}
}

var _ server.SessionWithProtocolVersion = (*ear)(nil)

func (e *ear) SessionID() string                                   { return e.id }
func (e *ear) Initialize()                                         { e.initialized.Store(true) }
func (e *ear) SetProtocolVersion(v string)                         { e.version.Store(v) }
func (e *ear) Initialized() bool                                   { return e.initialized.Load() }
func (e *ear) NotificationChannel() chan<- mcp.JSONRPCNotification { return e.notifications }

// ProtocolVersion is the revision that was agreed on; "" if none was.
func (e *ear) ProtocolVersion() string {
	v, _ := e.version.Load().(string)
	return v
}
