package externals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

const (
	patience = 2 * time.Second        // a call waits this long for the next attempt to connect
	firstGap = 500 * time.Millisecond // between the second attempt that fails and the third
	longest  = 30 * time.Second       // gap between attempts
)

// upstream is one server: its connection, made when it is needed and again when it is
// lost, and what is known of its tools. It is safe for concurrent use.
type upstream struct {
	server  Server
	cfg     *Config
	secrets redactor
	log     *slog.Logger
	life    context.Context // ends with the Client
	wg      *sync.WaitGroup // of the Client

	listing chan struct{} // holds a token while the list of tools is asked for

	mu       sync.Mutex
	closed   bool
	conn     *conn         // nil = none
	dialing  *attempt      // nil = none is under way
	checking chan struct{} // closed when conn has shown whether it lives; nil = nobody doubts it
	failures int           // in a row, without a call that worked
	next     time.Time     // when another attempt may be made
	reason   string        // of the last failure
	list     *listing      // what was last heard; nil = nothing yet
	stale    bool          // it may have changed since
	revision int           // counts what may be changes
}

// attempt is one to connect, which several calls may wait for.
type attempt struct {
	done chan struct{} // closed when conn and err are set
	conn *conn
	err  error
}

// connection is the one that there is, or a new one.
func (u *upstream) connection(ctx context.Context) (*conn, error) {
	if err := u.checked(ctx); err != nil {
		return nil, err
	}
	u.mu.Lock()
	if u.conn != nil && !u.conn.over() {
		defer u.mu.Unlock()
		return u.conn, nil
	}
	a := u.dialing
	if a == nil {
		if u.closed {
			defer u.mu.Unlock()
			return nil, sandbox.ErrClosed
		}
		wait := time.Until(u.next)
		if wait > patience {
			defer u.mu.Unlock()
			return nil, &sandbox.ExternalError{Fault: sandbox.ExternalUnavailable,
				Text: fmt.Sprintf("%s is down: %s. It is tried again in %.0f s", u.server.Name, u.reason, wait.Seconds())}
		}
		a = &attempt{done: make(chan struct{})}
		u.dialing = a
		u.wg.Go(func() { u.connect(a, wait) })
	}
	u.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connect makes the attempt. That a caller goes away does not end it: the next one
// will want it.
func (u *upstream) connect(a *attempt, wait time.Duration) {
	defer close(a.done)
	select {
	case <-time.After(wait):
	case <-u.life.Done():
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(u.life, u.cfg.StartTimeout, fmt.Errorf("it did not start within %v", u.cfg.StartTimeout))
	defer cancel()
	var c *conn
	err := ctx.Err()
	if err == nil {
		c, err = u.dial(ctx)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dialing = nil
	if err != nil {
		a.err = u.unavailable(err)
		u.fail(err)
		if u.life.Err() == nil {
			u.log.Warn("an external server can't be reached", "reason", u.reason)
		}
		return
	}
	u.conn, a.conn, u.stale = c, c, true
	u.log.Info("connected to an external server", "protocol", c.client.ProtocolVersion(), "took", time.Since(begin).Round(time.Millisecond))
	u.wg.Go(func() { u.watch(c) })
}

// watch closes a connection when it is over, or we are.
func (u *upstream) watch(c *conn) {
	lost, why := c.link.lost()
	select {
	case <-lost:
		u.mu.Lock()
		if u.conn == c {
			u.conn = nil
			u.fail(why())
			u.log.Warn("an external server is lost", "reason", u.reason)
		}
		u.mu.Unlock()
	case <-c.ended:
	}
	if err := c.close(); err != nil {
		u.log.Debug("an external server ended in disorder", "err", u.secrets.text(err.Error()))
	}
}

// fail counts a failure, and says when the next attempt may be made: at once after the
// first. u.mu is held.
func (u *upstream) fail(err error) {
	u.reason = u.words(err)
	u.failures++
	u.next = time.Now()
	if u.failures > 1 {
		u.next = u.next.Add(min(longest, firstGap<<min(u.failures-2, 10)))
	}
}

// drop gives up a connection that the server does not know any more.
func (u *upstream) drop(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conn == c {
		u.conn = nil
		c.cancel()
	}
}

// checkTime is how long a server that was late once may take to show that it lives.
const checkTime = 2 * time.Second

// check finds out whether a server that did not answer a call in good time answers at
// all, and gives the connection up if it doesn't.
func (u *upstream) check(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.checking != nil || u.conn != c || u.closed {
		return
	}
	done := make(chan struct{})
	u.checking = done
	u.wg.Go(func() {
		ctx, cancel := context.WithTimeout(u.life, checkTime)
		defer cancel()
		_, err := c.client.ListToolsByPage(ctx, mcp.ListToolsRequest{})
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.link.abandon(errors.New("it does not answer any more"))
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.checking = nil
		close(done)
	})
}

// checked waits until no check is under way.
func (u *upstream) checked(ctx context.Context) error {
	u.mu.Lock()
	done := u.checking
	u.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// works notes that a call came back: what failed before is of no account.
func (u *upstream) works() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failures = 0
}

// changed notes that the list of tools may not be true any more.
func (u *upstream) changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.stale {
		u.stale = true
		u.revision++
	}
}

// words is an error as a sentence may go on with it, for guests and the log.
func (u *upstream) words(err error) string {
	var (
		web  *url.Error
		op   *net.OpError
		name *net.DNSError
	)
	switch { // whose texts hold the address, which is nobody's business inside
	case errors.As(err, &name):
		err = errors.New(name.Err)
	case errors.As(err, &op):
		err = op.Err
	case errors.As(err, &web):
		err = web.Err
	}
	return oneLine(u.secrets.text(err.Error()), 500)
}

func (u *upstream) unavailable(err error) error {
	var known *sandbox.ExternalError
	if errors.As(err, &known) {
		return err
	}
	return &sandbox.ExternalError{Fault: sandbox.ExternalUnavailable, Text: u.server.Name + " is not available: " + u.words(err)}
}

// known is what was last heard of the tools, however long ago; nil = nothing.
func (u *upstream) known() (list *listing, revision string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.list == nil || u.stale {
		return u.list, ""
	}
	return u.list, strconv.Itoa(u.revision)
}

// current is the list of tools as of now. One that is older than age is asked for again.
func (u *upstream) current(ctx context.Context, c *conn, age time.Duration) (*listing, error) {
	select {
	case u.listing <- struct{}{}:
		defer func() { <-u.listing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	u.mu.Lock()
	list, stale := u.list, u.stale
	u.mu.Unlock()
	if list != nil && !stale && (c.tells && age > 0 || time.Since(list.at) < age) {
		return list, nil
	}
	u.mu.Lock()
	u.stale = false // what changes from here on may not be in the answer
	u.mu.Unlock()
	list, err := u.fetch(ctx, c)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.stale = true
		return nil, err
	}
	if u.list == nil || !u.list.same(list) {
		u.revision++
	}
	if u.list == nil || len(u.list.all) != len(list.all) {
		n := len(list.permitted())
		u.log.Info("tools of an external server", "callable", n, "withheld", len(list.all)-n)
	}
	u.list = list
	return list, nil
}

// tool finds a tool that may be called. A server may have got one since it was asked.
func (u *upstream) tool(ctx context.Context, c *conn, name string) error {
	list, err := u.current(ctx, c, fresh)
	if err != nil {
		return err
	}
	t, ok := list.find(name)
	if !ok && time.Since(list.at) > time.Second {
		if list, err = u.current(ctx, c, 0); err != nil {
			return err
		}
		t, ok = list.find(name)
	}
	switch {
	case !ok:
		return &sandbox.ExternalError{Fault: sandbox.ExternalUnknown, Text: fmt.Sprintf("%s has no tool %q%s", u.server.Name, oneLine(name, 100), nearest(name, list.permitted()))}
	case t.refusal != "":
		return &sandbox.ExternalError{Fault: sandbox.ExternalDenied, Text: fmt.Sprintf("%s.%s may not be called: %s", u.server.Name, name, t.refusal)}
	}
	return nil
}

// tools are those that may be called.
func (u *upstream) tools(ctx context.Context) ([]sandbox.ExternalTool, error) {
	list, err := again(ctx, u, func(c *conn) (*listing, error) { return u.current(ctx, c, fresh) })
	if err != nil {
		return nil, err
	}
	return list.permitted(), nil
}

// call calls a tool.
func (u *upstream) call(ctx context.Context, name string, arguments json.RawMessage) (sandbox.ExternalResult, error) {
	return again(ctx, u, func(c *conn) (sandbox.ExternalResult, error) {
		var none sandbox.ExternalResult
		if err := u.tool(ctx, c, name); err != nil {
			return none, err
		}
		var request mcp.CallToolRequest
		request.Params.Name, request.Params.Arguments = name, arguments
		within, capture := withCapture(ctx, true)
		_, err := c.client.CallTool(within, request)
		raw, fault, err := capture.of(err)
		switch {
		case fault != nil: // it was asked wrongly, or says so
			u.works()
			return sandbox.ExternalResult{IsError: true, Content: []sandbox.ExternalContent{{
				Kind: sandbox.ExternalText, Text: sandbox.Clip(u.secrets.text(fault.Message), 4<<10),
			}}}, nil
		case err != nil:
			return none, err
		}
		u.works()
		return decode(raw, u.secrets)
	})
}

// again does something over the connection, and once more over a new one where the
// server had forgotten the old one before it did anything.
func again[T any](ctx context.Context, u *upstream, do func(*conn) (T, error)) (out T, err error) {
	for range 2 {
		c, err := u.connection(ctx)
		if err != nil {
			return out, u.verdict(ctx, err)
		}
		begin := time.Now()
		out, err = do(c)
		// One that was interrupted may have waited for a server that hangs: a call's own
		// limit is often above that of the code.
		if err != nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Err() != nil && time.Since(begin) >= u.cfg.doubt) {
			u.check(c)
		}
		if !errors.Is(err, transport.ErrSessionTerminated) {
			return out, u.verdict(ctx, err)
		}
		u.drop(c)
	}
	return out, u.unavailable(errors.New("it forgets its sessions at once"))
}

// verdict is an error as a guest may read it.
func (u *upstream) verdict(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &sandbox.ExternalError{Fault: sandbox.ExternalLate, Text: u.server.Name + " did not answer in its time"}
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return u.unavailable(err)
}
