package main

import (
	"context"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// exchange is one POST of streamable HTTP and what answers it: a JSON body, or,
// once there is something to tell before the answer, a stream of events.
type exchange struct {
	w       http.ResponseWriter
	ear     *ear // of this request alone, so that nobody else gets its progress
	streams bool // the client takes events
	status  func(code int) int
}

func newExchange(w http.ResponseWriter, r *http.Request, p *peer, id string) *exchange {
	named, _ := accepts(r.Header, "text/event-stream")
	x := &exchange{w: w, ear: p.newEar(id, callDepth), streams: named, status: func(int) int { return http.StatusOK }}
	x.ear.Initialize()
	return x
}

// reply is what handling a request gave: see peer.handle.
type reply struct {
	text []byte
	code int
}

// serve answers with what handle gives. It returns when handle has, even if the
// client has gone: what a call holds is free then.
func (x *exchange) serve(cancel context.CancelFunc, handle func() reply) {
	answered := make(chan reply, 1)
	go func() { answered <- handle() }()
	out := newEvents(x.w)
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	put := func(b []byte) error {
		if !x.streams {
			return nil
		}
		return out.message(b)
	}
	for {
		var err error
		select {
		case n := <-x.ear.notifications:
			err = putJSON(put, n)
		case <-alive.C:
			if x.streams {
				err = out.comment()
			}
		case a := <-answered:
			x.finish(out, put, a)
			return
		}
		if err != nil { // nobody reads any longer
			cancel()
			<-answered
			return
		}
	}
}

// finish writes what was told before the answer, and the answer. All of it has
// come: who tells something ends before the call does.
func (x *exchange) finish(out *events, put func([]byte) error, a reply) {
	for len(x.ear.notifications) > 0 {
		if putJSON(put, <-x.ear.notifications) != nil {
			return
		}
	}
	switch {
	case out.open && a.text != nil:
		_ = out.message(a.text) // a client that has gone needs no answer
	case out.open:
	case a.text != nil:
		x.body(x.status(a.code), a.text)
	case x.streams: // cancelled: the client expects no answer, but the end
		out.start()
	default:
		x.w.WriteHeader(http.StatusAccepted)
	}
}

func (x *exchange) body(status int, text []byte) {
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTime))
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(text)
	_, _ = x.w.Write([]byte{'\n'}) // by itself: text may be large, and have no room for it
}

// modernStatus is the HTTP status that 2026-07-28 gives a JSON-RPC error, so
// that what stands between need not read the body.
func modernStatus(code int) int {
	switch code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION,
		mcp.INVALID_REQUEST, mcp.INVALID_PARAMS, mcp.PARSE_ERROR:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}
