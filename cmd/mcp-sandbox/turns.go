package main

import (
	"context"
	"encoding/json"
	"sync"

	"mcp-sandbox/sandbox"
)

// turns keeps calls for one session in the order in which their client sent
// them, also when it did not wait for answers: x = 41, then x + 1. It is safe
// for concurrent use.
type turns struct {
	mu   sync.Mutex
	last map[string]*turn // by session; "" = the connection's own
	own  string           // the id of the connection's own; "" = not known yet
}

// turn is one call's place.
type turn struct {
	session string
	before  <-chan struct{} // closed when earlier calls are over; nil = there are none
	over    chan struct{}
}

// take gives the next place in a session's line; nil where there is no line.
func (t *turns) take(session string) *turn {
	if session == sandbox.NewSession {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if session == t.own { // the same session by its name
		session = ""
	}
	next := &turn{session: session, over: make(chan struct{})}
	if last := t.last[session]; last != nil {
		next.before = last.over
	}
	if t.last == nil {
		t.last = map[string]*turn{}
	}
	t.last[session] = next
	return next
}

// end gives the place up. A call that ended before its turn came, because its
// client cancelled it, does not let later ones pass earlier ones.
func (t *turns) end(done *turn) {
	if done == nil {
		return
	}
	over := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.last[done.session] == done {
			delete(t.last, done.session)
		}
		close(done.over)
	}
	select {
	case <-done.before:
	default:
		if done.before != nil {
			go func() { // ends with the calls before
				<-done.before
				over()
			}()
			return
		}
	}
	over()
}

// learn takes the session id that a call's result names: that of a call which
// named none is the connection's own. No client can use it in a call before.
func (t *turns) learn(ctx context.Context, id string) {
	if place, _ := ctx.Value(turnKey{}).(*turn); place != nil && place.session == "" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.own = id
	}
}

type turnKey struct{}

// waitTurn waits until earlier calls for the same session are over. A call that is
// given up already has no turn: it would open a session that nobody asks for.
func waitTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || t.before == nil {
		return nil
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sessionOf is the session that a call's arguments name; "" if none.
func sessionOf(arguments json.RawMessage) string {
	var a map[string]json.RawMessage // only the exact name counts
	var id string
	if json.Unmarshal(arguments, &a) != nil || json.Unmarshal(a["session_id"], &id) != nil {
		return ""
	}
	return id
}
