package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// streamable is the endpoint /mcp: streamable HTTP of the revisions with
// sessions, up to 2025-11-25, and of those without. Which one a request means
// it says itself. There is no stream for the server's own requests: it has none.
type streamable struct {
	server      *server.MCPServer
	sessions    *sandbox.Sessions
	connections *connections
	bodies      *budget
	answers     *budget
	log         *slog.Logger

	requests atomic.Uint64 // of the revisions without sessions: each is a client of its own to mcp-go
}

// era is what a request says of its revision.
type era struct {
	header string // of Mcp-Protocol-Version
	meta   string // in _meta
}

func eraOf(h http.Header, m message) era {
	var params struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &params) // mcp-go says what is wrong with it
	return era{header: h.Get(mcp.HeaderProtocolVersion), meta: params.Meta.ProtocolVersion()}
}

func (e era) modern() bool { return mcp.IsModernProtocol(e.header) || mcp.IsModernProtocol(e.meta) }

// post serves one message.
func (s *streamable) post(w http.ResponseWriter, r *http.Request) {
	_, json := accepts(r.Header, "application/json")
	_, events := accepts(r.Header, "text/event-stream")
	if !json && !events {
		refuse(w, http.StatusNotAcceptable, "the answer is application/json or text/event-stream: accept both")
		return
	}
	body, done := s.bodies.read(w, r)
	if body == nil {
		return
	}
	defer done()
	m, fault := decode(body)
	switch {
	case fault != nil:
		refuseCall(w, http.StatusBadRequest, nil, fault.Code, fault.Message)
	case len(m.text) > maxBare:
		refuseCall(w, http.StatusRequestEntityTooLarge, m.ID, mcp.INVALID_REQUEST, tooLongBare)
	default:
		if e := eraOf(r.Header, m); e.modern() {
			s.modern(w, r, m, e)
		} else {
			s.legacy(w, r, m, e)
		}
	}
}

const tooLongBare = "the message is too long: only the arguments of a call may have more than 1 MiB"

// modern serves a message of a revision without sessions. Every such request is
// a client of its own: nothing of it is shared with another.
func (s *streamable) modern(w http.ResponseWriter, r *http.Request, m message, e era) {
	if fault := s.checkModern(r.Header, m, e); fault != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fault.ID = requestID(m.ID)
		_ = json.NewEncoder(w).Encode(fault)
		return
	}
	ctx := withCaller(r.Context(), sandbox.Caller{Principal: principalOf(r.Context())})
	p := newPeer(s.server, s.log)
	// A notification has nothing to act on: a request is cancelled by closing its
	// stream, and whose request an id names is not known here.
	if !m.request() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	x := newExchange(w, r, p, "request "+strconv.FormatUint(s.requests.Add(1), 10))
	x.status = modernStatus
	s.run(ctx, x, p, m)
}

// requestID is an id as it came, for an answer.
func requestID(raw json.RawMessage) mcp.RequestId {
	var id any
	_ = json.Unmarshal(raw, &id)
	return mcp.NewRequestId(id)
}

// checkModern holds a message against its headers, as 2026-07-28 wants it: what
// stands between may go by the headers alone.
func (s *streamable) checkModern(h http.Header, m message, e era) *mcp.JSONRPCError {
	fault := func(code int, text string) *mcp.JSONRPCError {
		return &mcp.JSONRPCError{JSONRPC: mcp.JSONRPC_VERSION, Error: mcp.JSONRPCErrorDetails{Code: code, Message: brief(text)}}
	}
	switch {
	case m.Method == "":
		return fault(mcp.INVALID_REQUEST, "the message has no method: revision 2026-07-28 has no answers of clients")
	case h.Get(mcp.HeaderLastEventID) != "":
		return fault(mcp.HEADER_MISMATCH, mcp.HeaderLastEventID+" is not supported: streams can't be resumed, send the request again")
	case e.header == "":
		return fault(mcp.HEADER_MISMATCH, "the header "+mcp.HeaderProtocolVersion+" is required with "+mcp.MetaKeyProtocolVersion)
	case e.meta == "":
		return fault(mcp.INVALID_PARAMS, "missing or invalid _meta field "+mcp.MetaKeyProtocolVersion)
	case e.header != e.meta:
		return fault(mcp.HEADER_MISMATCH, mcp.HeaderProtocolVersion+" is "+e.header+", but "+mcp.MetaKeyProtocolVersion+" is "+e.meta)
	case !mcp.IsValidProtocolVersion(e.meta):
		refusal := mcp.UnsupportedProtocolVersionError{Version: brief(e.meta), Supported: mcp.ValidProtocolVersions}.JSONRPCError()
		return &refusal
	}
	err := mcp.ValidateStandardHeaders(h.Get, e.meta, mcp.MCPMethod(m.Method), m.Params)
	if err == nil && m.Method == string(mcp.MethodToolsCall) {
		err = s.checkParamHeaders(h, m)
	}
	var mismatch mcp.HeaderMismatchError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		return fault(mcp.HEADER_MISMATCH, mismatch.Error())
	default:
		return fault(mcp.INVALID_PARAMS, err.Error())
	}
}

// checkParamHeaders holds arguments that a tool wants in headers too against them.
func (s *streamable) checkParamHeaders(h http.Header, m message) error {
	var call struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(m.Params, &call) != nil {
		return nil
	}
	tool := s.server.GetTool(call.Name)
	if tool == nil || len(mcp.ExtractParamHeaderBindings(&tool.Tool)) == 0 {
		return nil
	}
	params, err := json.Marshal(map[string]json.RawMessage{"arguments": m.arguments})
	if err != nil {
		return err
	}
	return mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values := h.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}, &tool.Tool, params)
}

// legacy serves a message of a revision with sessions.
func (s *streamable) legacy(w http.ResponseWriter, r *http.Request, m message, e era) {
	opens := m.request() && m.Method == string(mcp.MethodInitialize)
	if !opens && e.header != "" && !mcp.IsValidProtocolVersion(e.header) {
		refuseCall(w, http.StatusBadRequest, m.ID, mcp.INVALID_REQUEST, brief("unsupported protocol version: "+e.header))
		return
	}
	if opens {
		s.initialize(w, r, m)
		return
	}
	c := s.take(w, r, m.ID)
	if c == nil {
		return
	}
	defer s.connections.leave(c)
	ctx := withCaller(r.Context(), c.caller)
	switch {
	case m.response():
		w.WriteHeader(http.StatusAccepted)
	case m.Method == cancelledMethod:
		c.cancel(m.Params)
		w.WriteHeader(http.StatusAccepted)
	case m.request():
		s.run(ctx, newExchange(w, r, c.peer, c.id), c.peer, m)
	default:
		if b, _ := c.handle(s.server.WithContext(ctx, c.newEar(c.id, 0)), &request{}, m.text); b != nil {
			refuseAs(w, http.StatusBadRequest, b)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// initialize opens a connection, unless mcp-go refuses.
func (s *streamable) initialize(w http.ResponseWriter, r *http.Request, m message) {
	c := s.connections.add(principalOf(r.Context()))
	if c == nil {
		retry(w, http.StatusTooManyRequests, "all connections of this principal are in use")
		return
	}
	defer s.connections.leave(c)
	x := newExchange(w, r, c.peer, c.id)
	answer, code := c.handle(s.server.WithContext(withCaller(r.Context(), c.caller), x.ear), &request{id: string(m.ID)}, m.text)
	if code != 0 {
		s.connections.remove(c)
	} else {
		w.Header().Set(mcp.HeaderSessionID, c.id)
	}
	x.body(http.StatusOK, answer)
}

// take finds the connection that a request names, or answers that there is none.
func (s *streamable) take(w http.ResponseWriter, r *http.Request, id json.RawMessage) *connection {
	named := r.Header.Get(mcp.HeaderSessionID)
	if named == "" {
		refuseCall(w, http.StatusBadRequest, id, mcp.INVALID_REQUEST, "the header "+mcp.HeaderSessionID+" is required: send initialize first")
		return nil
	}
	c := s.connections.take(principalOf(r.Context()), named)
	if c == nil {
		refuseCall(w, http.StatusNotFound, id, codeUnknownSession, "unknown session: it has ended or never was; send initialize again")
	}
	return c
}

// codeUnknownSession is what the reference servers say of an Mcp-Session-Id that
// they don't know.
const codeUnknownSession = -32001

// run answers a request by an exchange of its own.
func (s *streamable) run(ctx context.Context, x *exchange, p *peer, m message) {
	ctx, r, over := p.begin(ctx, m)
	defer over()
	ctx = s.server.WithContext(ctx, x.ear)
	var written func()
	x.serve(r.cancel, func() reply {
		text, code := p.handle(ctx, r, m.text)
		text, written = s.answers.hold(principalOf(ctx), m.ID, text)
		return reply{text, code}
	})
	written()
}

// end is DELETE: the connection is over, and its own session with it.
func (s *streamable) end(w http.ResponseWriter, r *http.Request) {
	if mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion)) {
		s.notAllowed(w, r)
		return
	}
	c := s.take(w, r, nil)
	if c == nil {
		return
	}
	defer s.connections.leave(c)
	s.connections.remove(c)
	_, err := s.sessions.Reset(context.WithoutCancel(r.Context()), c.caller, "", true)
	if err != nil {
		s.log.Error("a session could not be closed", "err", err)
		refuse(w, http.StatusInternalServerError, "the session could not be closed in order")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *streamable) notAllowed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "POST, DELETE")
	refuse(w, http.StatusMethodNotAllowed, "only POST is served here, and DELETE in revisions with sessions: there is no stream of the server's own")
}

type callerKey struct{}

func withCaller(ctx context.Context, who sandbox.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// httpCaller is who asks, by the context of a request over HTTP. A request
// without one has no principal, and is refused by Sessions.
func httpCaller(ctx context.Context) sandbox.Caller {
	who, _ := ctx.Value(callerKey{}).(sandbox.Caller)
	return who
}
