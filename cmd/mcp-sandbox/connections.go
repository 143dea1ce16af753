package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// maxConnections is how many connections of one principal are remembered: many
// clients open one for each call, and none says goodbye.
const maxConnections = 1024

// connection is what an Mcp-Session-Id stands for: a client of a revision up to
// 2025-11-25.
type connection struct {
	*peer
	id     string
	caller sandbox.Caller

	users int       // guarded by connections.mu: requests under way
	used  time.Time // likewise: when the last one ended
	over  bool      // likewise: it was removed
}

// connections are those that clients have opened. They are safe for concurrent
// use.
type connections struct {
	server *server.MCPServer
	gone   func(sandbox.Caller) // told of each that ends, once nothing of it is under way
	log    *slog.Logger

	mu   sync.Mutex
	byID map[string]*connection
}

// add opens a connection and marks it as used until leave. Beyond the limit it
// forgets the principal's longest idle one; nil means that all are in use.
func (cs *connections) add(principal string) *connection {
	id := uuid.NewString()
	c := &connection{
		peer: newPeer(cs.server, cs.log), id: id, users: 1,
		caller: sandbox.Caller{Principal: principal, Connection: "http " + id},
	}
	cs.mu.Lock()
	n, oldest := 0, (*connection)(nil)
	for _, other := range cs.byID {
		if other.caller.Principal != principal {
			continue
		}
		n++
		if other.users == 0 && (oldest == nil || other.used.Before(oldest.used)) {
			oldest = other
		}
	}
	full := n >= maxConnections
	if full && oldest != nil {
		delete(cs.byID, oldest.id)
	}
	if !full || oldest != nil {
		cs.byID[id] = c
	} else {
		c = nil
	}
	cs.mu.Unlock()
	if full && oldest != nil {
		cs.gone(oldest.caller)
	}
	return c
}

// take finds a principal's connection and marks it as used until leave; nil for
// a stranger's, an ended and a malformed id alike.
func (cs *connections) take(principal, id string) *connection {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byID[id]
	if c == nil || c.caller.Principal != principal {
		return nil
	}
	c.users++
	return c
}

func (cs *connections) leave(c *connection) {
	cs.mu.Lock()
	c.users--
	c.used = time.Now()
	last := c.over && c.users == 0
	cs.mu.Unlock()
	if last {
		cs.gone(c.caller)
	}
}

// remove takes a connection that is in use out of the books; its client will not
// come back. With the last request under way it is gone.
func (cs *connections) remove(c *connection) {
	cs.mu.Lock()
	delete(cs.byID, c.id)
	c.over = true
	cs.mu.Unlock()
	c.cancelAll()
}

// sweep forgets connections that nobody has used for idle, until ctx ends. One
// with a request under way is never swept.
func (cs *connections) sweep(ctx context.Context, idle time.Duration) {
	tick := time.NewTicker(max(idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range cs.expired(now, idle) {
				cs.log.Debug("forgot a connection", "principal", c.caller.Principal, "unused", now.Sub(c.used))
				cs.gone(c.caller)
			}
		}
	}
}

func (cs *connections) expired(now time.Time, idle time.Duration) []*connection {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var out []*connection
	for id, c := range cs.byID {
		if c.users == 0 && now.Sub(c.used) >= idle {
			delete(cs.byID, id)
			out = append(out, c)
		}
	}
	return out
}
