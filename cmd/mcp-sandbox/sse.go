package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/server"
	"go.opentelemetry.io/otel/trace"

	"mcp-sandbox/sandbox"
)

// maxUnderWay bounds the requests of one event stream that are not answered: a
// message is accepted at once, so that nothing else holds its sender back.
const maxUnderWay = 256

// sse is the transport of revision 2024-11-05: GET /sse is a stream of events,
// and what is sent to /message is answered there. mcp-go's own lets any web page
// in, and goes on with the calls of a client that has gone.
type sse struct {
	server   *server.MCPServer
	sessions *sandbox.Sessions
	bodies   *budget
	answers  *budget
	draining <-chan struct{} // closed when the server is to end: streams end with their last answer
	log      *slog.Logger

	mu   sync.Mutex
	byID map[string]*sseClient
}

// sseClient is one open stream of events.
type sseClient struct {
	*stream
	caller sandbox.Caller
	ctx    context.Context // of all its calls: it ends with the stream

	mu     sync.Mutex // holds messages in the order they came
	closed bool       // takes no more
}

// listen is GET /sse.
func (s *sse) listen(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // HEAD, which would wait for a stream that it never sees
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, "the stream of events is for GET")
		return
	}
	if _, ok := accepts(r.Header, "text/event-stream"); !ok {
		refuse(w, http.StatusNotAcceptable, "the answer is text/event-stream: accept it")
		return
	}
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Time{}) // there is no body to wait for
	id := uuid.NewString()
	caller := sandbox.Caller{Principal: principalOf(r.Context()), Connection: "sse " + id}
	ctx, cancel := context.WithCancel(withCaller(r.Context(), caller))
	defer cancel()
	c := &sseClient{stream: newStream(newPeer(s.server, s.log), "sse "+id), caller: caller, ctx: ctx}
	c.hold = func(id json.RawMessage, text []byte) ([]byte, func()) {
		return s.answers.hold(caller.Principal, id, text)
	}
	s.add(id, c)
	s.log.Debug("event stream opened", "principal", caller.Principal)
	begun := time.Now()
	defer func() {
		s.remove(id)
		cancel()
		c.close()
		c.calls.Wait()
		s.sessions.Disconnect(caller)
		s.log.Debug("event stream ended", "principal", caller.Principal, "after", time.Since(begun))
	}()
	out := newEvents(w)
	if out.event("endpoint", []byte("/message?sessionId="+id)) != nil {
		return
	}
	go func() { // ends with ctx
		select {
		case <-s.draining:
			c.close()
			_ = c.finish(ctx)
		case <-ctx.Done():
		}
	}()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	_ = c.write(outlet{put: out.message, sign: out.comment, alive: alive.C, gone: ctx.Done()})
}

func (s *sse) add(id string, c *sseClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = c
}

func (s *sse) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// find is a principal's own; nil for a stranger's and an ended one alike.
func (s *sse) find(principal, id string) *sseClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byID[id]
	if c == nil || c.caller.Principal != principal {
		return nil
	}
	return c
}

// message is POST /message.
func (s *sse) message(w http.ResponseWriter, r *http.Request) {
	c := s.find(principalOf(r.Context()), r.URL.Query().Get("sessionId"))
	if c == nil {
		refuseCall(w, http.StatusNotFound, nil, codeUnknownSession, "unknown session: its event stream has ended or never was; open another by GET /sse")
		return
	}
	body, done := s.bodies.read(w, r)
	if body == nil {
		return
	}
	m, fault := decode(body)
	switch {
	case fault != nil:
		refuseCall(w, http.StatusBadRequest, nil, fault.Code, fault.Message)
	case len(m.text) > maxBare:
		refuseCall(w, http.StatusRequestEntityTooLarge, m.ID, codeRefused, tooLongBare)
	case m.request() && c.underWay() >= maxUnderWay:
		retry(w, http.StatusTooManyRequests, "too many requests of this client are not answered yet")
	case !c.accept(r.Context(), m, done):
		retry(w, http.StatusServiceUnavailable, "the event stream is ending")
	default:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	done()
}

// accept takes one message after the other; it returns false once the stream
// is ending, without having taken it. Of from, the context of its request, nothing
// but the trace goes on: the call ends with the stream.
func (c *sseClient) accept(from context.Context, m message, done func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	ctx := c.ctx
	if caller := trace.SpanContextFromContext(from); caller.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, caller)
	}
	c.take(ctx, m, done)
	return true
}

func (c *sseClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
