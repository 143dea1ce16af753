package main

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// keepAlive is how often a stream of events that has nothing to say shows that
// it lives: proxies and clients give up on silent ones, some after 10 s.
const keepAlive = 8 * time.Second

// events writes server-sent events. It is not safe for concurrent use.
type events struct {
	w    http.ResponseWriter
	ctl  *http.ResponseController
	open bool // the header has been written
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, ctl: http.NewResponseController(w)}
}

// start writes the header, once.
func (e *events) start() {
	if e.open {
		return
	}
	e.open = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	e.w.WriteHeader(http.StatusOK)
}

// message writes one JSON-RPC message.
func (e *events) message(b []byte) error { return e.event("message", b) }

func (e *events) event(name string, data []byte) error {
	var out bytes.Buffer
	out.Grow(len(data) + 32)
	out.WriteString("event: " + name + "\ndata: ")
	out.Write(data) // JSON as encoding/json writes it: one line
	out.WriteString("\n\n")
	return e.write(out.Bytes())
}

// comment is a sign of life that clients skip.
func (e *events) comment() error { return e.write([]byte(": alive\n\n")) }

// write fails when the client has gone, or does not read.
func (e *events) write(b []byte) error {
	e.start()
	if err := e.ctl.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.ctl.Flush()
}

// accepts reports whether a request's Accept names a media type itself, or
// leaves room for it by a wildcard.
func accepts(h http.Header, kind string) (named, possible bool) {
	accept := strings.Join(h.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return false, true
	}
	family, _, _ := strings.Cut(kind, "/")
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case kind:
			return true, true
		case "*/*", family + "/*":
			possible = true
		}
	}
	return false, possible
}
