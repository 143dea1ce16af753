package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// stream is a client that one writer talks to, whatever brings its messages:
// the standard streams, or server-sent events. It stands in for mcp-go's own
// transports, which write progress after the result it belongs to, run calls in
// any order, cannot cancel a queued one, and lose a cancellation that follows
// its request closely. Messages are to be taken by one goroutine at a time.
type stream struct {
	*peer
	ear *ear

	hold func(id json.RawMessage, text []byte) (_ []byte, over func()) // takes memory for an answer, or shortens it; nil = there is enough

	answers chan letter    // to the one writer; never closed
	calls   sync.WaitGroup // requests under way
	flush   chan struct{}  // closed once no more answers come
	written chan struct{}  // closed when the writer has ended
}

// letter is a message on its way out. over is called once it is written, or given up.
type letter struct {
	text []byte
	over func()
}

func newStream(p *peer, id string) *stream {
	return &stream{
		peer: p, ear: p.newEar(id, earDepth),
		answers: make(chan letter), flush: make(chan struct{}), written: make(chan struct{}),
	}
}

// receive takes one message as it came.
func (s *stream) receive(ctx context.Context, l line) {
	if l.huge {
		s.answer(ctx.Done(), failure(l.id(), mcp.INVALID_REQUEST, tooLong))
		return
	}
	m, fault := decode(l.text)
	if fault != nil {
		s.answer(ctx.Done(), failure(nil, fault.Code, fault.Message))
		return
	}
	s.take(ctx, m, func() {})
}

// take handles one message, and leaves requests to goroutines of their own. It
// calls done when the message is needed no longer.
func (s *stream) take(ctx context.Context, m message, done func()) {
	ctx = s.server.WithContext(ctx, s.ear)
	now := func(id string) {
		defer done()
		s.dispatch(ctx, &request{id: id, giveUp: ctx.Done()}, m.text)
	}
	switch {
	case m.response():
		done()
	case m.Method == cancelledMethod:
		s.cancel(m.Params)
		done()
	case m.ID == nil || string(m.ID) == "null":
		now("")
	case m.Method == string(mcp.MethodInitialize): // what follows relies on it
		now(string(m.ID))
	default:
		s.start(ctx, m, done)
	}
}

func (s *stream) start(ctx context.Context, m message, done func()) {
	ctx, r, over := s.begin(ctx, m)
	s.calls.Go(func() {
		defer done()
		defer over()
		s.dispatch(ctx, r, m.text)
	})
}

func (s *stream) dispatch(ctx context.Context, r *request, text []byte) {
	b, _ := s.handle(ctx, r, text)
	if b == nil {
		return
	}
	l := letter{b, func() {}}
	if s.hold != nil {
		l.text, l.over = s.hold(json.RawMessage(r.id), b)
	}
	s.send(r.giveUp, l)
}

func (s *stream) answer(giveUp <-chan struct{}, b []byte) { s.send(giveUp, letter{b, func() {}}) }

func (s *stream) send(giveUp <-chan struct{}, l letter) {
	select {
	case s.answers <- l: // the writer's now
	case <-s.written: // the client is gone
		l.over()
	case <-giveUp:
		l.over()
	}
}

// outlet is where a stream's writer writes.
type outlet struct {
	put   func([]byte) error // one message
	sign  func() error       // a sign of life, at each tick of alive
	alive <-chan time.Time   // nil = never
	gone  <-chan struct{}    // closed when nobody reads any longer; nil = put tells
}

// write is the only writer, until put fails, the client is gone or no more
// answers come. It writes what a request sent before its answer ahead of that
// answer.
func (s *stream) write(to outlet) (err error) {
	defer close(s.written)
	for err == nil {
		select {
		case n := <-s.ear.notifications:
			err = putJSON(to.put, n)
		case l := <-s.answers:
			if err = s.putEarlier(to.put); err == nil {
				err = to.put(l.text)
			}
			l.over()
		case <-to.alive:
			err = to.sign()
		case <-to.gone:
			return nil
		case <-s.flush:
			return nil
		}
	}
	return err
}

// putEarlier writes the notifications that are there.
func (s *stream) putEarlier(put func([]byte) error) error {
	for len(s.ear.notifications) > 0 {
		if err := putJSON(put, <-s.ear.notifications); err != nil {
			return err
		}
	}
	return nil
}

func putJSON(put func([]byte) error, n mcp.JSONRPCNotification) error {
	b, err := json.Marshal(n)
	if err != nil { // a message of ours that JSON can't hold is not worth the connection
		return nil
	}
	return put(b)
}

// finish waits, once receive is called no more, until every handler has returned
// and its answer is written. It gives up when ctx ends.
func (s *stream) finish(ctx context.Context) error {
	go func() { s.calls.Wait(); close(s.flush) }()
	select {
	case <-s.written:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
