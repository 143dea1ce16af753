package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// What code asks of external tools comes from a process that user code shares: a
// frame may be forged, and is then no more than a call that the code could have made.
// All that decides is here and in sandbox.Externals. What the guest's own side,
// externals.py, never sends ends the interpreter; what code may ask in vain is
// answered with a fault.

const (
	maxExternalLists = 200         // lists of tools in one call of a session
	externalWindow   = 2 << 20     // bytes of answers that the worker may be behind with when another is sent
	slack            = 100         // frames
	externalGrace    = time.Second // for calls to heed that their context has ended
)

// externals are the calls of external tools that one call of the session makes.
// It is safe for concurrent use. Its owner ends it by close.
type externals struct {
	to      sandbox.Externals
	limits  sandbox.ExternalsLimits
	cell    uint64
	send    func(kind byte, payload []byte) error // one frame to the interpreter
	broken  func(error)                           // what was sent is malformed
	ctx     context.Context                       // of the calls; ends when the code is to end
	cancel  context.CancelCauseFunc
	running chan struct{} // holds a token for each call under way
	done    chan struct{} // closed when nothing is sent any longer
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	stopped bool // the code is to end: what it asks for is refused
	last    uint64
	pending map[uint64]*external
	calls   int
	lists   int
	asides  int   // frames that begin nothing
	bytes   int64 // of arguments and results
	clock   clock // of the time that calls took together
	log     []*external
	sent    int64         // bytes of answers
	taken   int64         // of these, as the worker says
	moved   chan struct{} // closed, and made anew, when taken grows
}

// external is one call, or one list of tools.
type external struct {
	id           uint64
	server, tool string // a list has no tool
	size         int
	got          int    // bytes of arguments so far
	arguments    []byte // these, unless it is refused already
	refused      bool   // its bytes are beyond what is allowed
	under        bool   // it has all its arguments
	ctx          context.Context
	cancel       context.CancelFunc

	// Of a call, guarded by externals.mu:
	begun time.Time // zero = it waits
	took  time.Duration
	ok    bool
}

func newExternals(ctx context.Context, c *Client, req sandbox.Request) (*externals, error) {
	if req.Externals == nil {
		return nil, nil
	}
	limits, err := req.ExternalsLimits.Resolve()
	if err != nil {
		return nil, sandbox.Invalid("%v", err)
	}
	e := &externals{
		to: req.Externals, limits: limits, send: c.send, broken: c.fail, running: make(chan struct{}, sandbox.MaxExternalsRunning),
		done: make(chan struct{}), pending: map[uint64]*external{}, moved: make(chan struct{}),
	}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	e.clock.limit = limits.Time
	c.mu.Lock()
	c.cells++
	e.cell = c.cells
	c.mu.Unlock()
	return e, nil
}

// offer is what the request tells the worker.
func (e *externals) offer() any {
	if e == nil {
		return nil
	}
	type server struct {
		Name     string `json:"name"`
		Note     string `json:"note,omitempty"`
		Revision string `json:"revision,omitempty"`
	}
	servers := []server{}
	for _, s := range e.to.Servers(e.ctx) {
		servers = append(servers, server{s.Name, s.Note, s.Revision})
	}
	return map[string]any{
		"cell": e.cell, "servers": servers, "calls": e.limits.Calls, "lists": maxExternalLists, "arguments": sandbox.MaxExternalArguments,
	}
}

// takeExternal passes a frame to the call that it belongs to.
func (c *Client) takeExternal(payload []byte) error {
	h, data, err := decodeExternal(payload)
	if err != nil {
		return err
	}
	c.mu.Lock()
	var e *externals
	if c.call != nil {
		e = c.call.externals
	}
	c.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%w: a call of an external tool that nobody allows", errFrame)
	}
	return e.take(h, data)
}

// take does what a frame asks for. It does not wait.
func (e *externals) take(h externalHead, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if h.Cell != e.cell {
		return fmt.Errorf("%w: external: of another call", errFrame)
	}
	if h.Taken > e.sent {
		return fmt.Errorf("%w: external: %d bytes taken of %d", errFrame, h.Taken, e.sent)
	}
	if h.Taken > e.taken {
		e.taken = h.Taken
		close(e.moved)
		e.moved = make(chan struct{})
	}
	if h.Op == "cancel" || h.Op == "taken" {
		// Of the former there is one for a call, of the latter one for a mebibyte.
		if e.asides++; e.asides > e.limits.Calls+maxExternalLists+int(e.limits.Bytes>>20)+slack {
			return fmt.Errorf("%w: external: a flood", errFrame)
		}
	}
	x := e.pending[h.ID]
	switch h.Op {
	case "call", "list":
		var err error
		if x, err = e.begin(h); err != nil {
			return err
		}
	case "cancel":
		if x != nil { // else its answer has passed it
			x.cancel()
			delete(e.pending, h.ID)
			if !x.under {
				x.arguments = nil // the log keeps x
			}
		}
		return nil
	case "taken":
		return nil
	}
	if x == nil || x.under || x.got+len(data) > x.size {
		return fmt.Errorf("%w: external: arguments of no call", errFrame)
	}
	x.got += len(data)
	if !x.refused { // what is beyond the budget must not be heaped up here either
		x.arguments = append(x.arguments, data...)
	}
	if x.under = x.got == x.size; x.under {
		e.wg.Go(func() { e.run(x) })
	}
	return nil
}

// begin counts a call. mu is held.
func (e *externals) begin(h externalHead) (*external, error) {
	if h.ID <= e.last {
		return nil, fmt.Errorf("%w: external: call %d after %d", errFrame, h.ID, e.last)
	}
	e.last = h.ID
	x := &external{id: h.ID, server: h.Server, tool: h.Tool, size: h.Size}
	x.ctx, x.cancel = context.WithCancel(e.ctx)
	if h.Op == "list" {
		x.tool, x.size = "", 0
		e.lists++
	} else {
		e.calls++
		e.bytes += int64(h.Size)
		x.refused = e.overweight() != nil
		if len(e.log) < sandbox.MaxExternalsListed {
			e.log = append(e.log, x)
		}
	}
	if e.calls > e.limits.Calls || e.lists > maxExternalLists { // externals.py counts as well
		x.cancel()
		return nil, fmt.Errorf("%w: external: more calls than are allowed", errFrame)
	}
	e.pending[h.ID] = x
	return x, nil
}

// run takes one call to its answer.
func (e *externals) run(x *external) {
	defer x.cancel()
	body, ok, err := e.ask(x)
	var known *sandbox.ExternalError
	switch {
	case err == nil:
	case errors.Is(context.Cause(x.ctx), errTimeSpent):
		body = encodeFault(sandbox.ExternalDenied, e.timeSpent().Error())
	case e.ctx.Err() != nil:
		body = encodeFault("ended", "the call was interrupted")
	case x.ctx.Err() != nil: // the guest has given it up, and waits for no answer
		e.end(x, false)
		return
	case errors.As(err, &known):
		body = encodeFault(known.Fault, known.Text)
	case errors.Is(err, context.DeadlineExceeded):
		body = encodeFault(sandbox.ExternalLate, fmt.Sprintf("no answer within %v", e.limits.Timeout))
	default:
		body = encodeFault(sandbox.ExternalUnavailable, "the call failed")
	}
	e.end(x, err == nil && ok)
	e.deliver(x, body)
}

// ask has the tool called; ok is whether it says that it did its work.
func (e *externals) ask(x *external) (body []byte, ok bool, err error) {
	if x.refused {
		return nil, false, e.weigh(0)
	}
	if x.tool != "" && !isObject(x.arguments) {
		err := fmt.Errorf("%w: external: arguments that are no JSON object", errFrame)
		e.broken(err)
		return nil, false, err
	}
	select {
	case e.running <- struct{}{}:
		defer func() { <-e.running }()
	case <-x.ctx.Done():
		return nil, false, x.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(x.ctx, e.limits.Timeout)
	defer cancel()
	if err := e.admit(x); err != nil {
		return nil, false, err
	}
	defer e.leave()
	if x.tool == "" {
		tools, err := e.to.Tools(ctx, x.server)
		if err == nil {
			body, err = encodeTools(tools)
		}
		if err == nil {
			err = e.weigh(len(body))
		}
		return body, err == nil, late(ctx, err)
	}
	r, err := e.to.Call(ctx, x.server, x.tool, x.arguments)
	if err == nil {
		body, err = encodeResult(r)
	}
	if err == nil {
		err = e.weigh(len(body))
	}
	return body, !r.IsError, late(ctx, err)
}

// late makes the error of a call that had no time left say so.
func late(ctx context.Context, err error) error {
	var known *sandbox.ExternalError
	if err != nil && !errors.As(err, &known) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// end puts down how a call ended.
func (e *externals) end(x *external, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.arguments = nil // the log keeps x
	if !e.closed && !x.begun.IsZero() {
		x.took, x.ok = time.Since(x.begun), ok
	}
}

// deliver sends an answer, once the worker has read enough of those before. What
// it does not read must not be heaped up in the supervisor.
func (e *externals) deliver(x *external, body []byte) {
	e.mu.Lock()
	for e.sent-e.taken > externalWindow && !e.closed {
		moved := e.moved
		e.mu.Unlock()
		select {
		case <-moved:
		case <-e.done:
		}
		e.mu.Lock()
	}
	if e.closed || e.pending[x.id] != x {
		e.mu.Unlock()
		return
	}
	delete(e.pending, x.id)
	e.sent += int64(len(body))
	head := fmt.Appendf(make([]byte, 0, len(body)+64), "%d %d %d\n", e.cell, x.id, e.sent)
	e.mu.Unlock()
	_ = e.send(kindAnswer, append(head, body...)) // a failure breaks the client
}

// stop cancels what is under way, and refuses the rest: the code is to end.
func (e *externals) stop() {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.cancel(nil)
}

// close ends it, with the call it belongs to, and waits for the calls under way. One that
// does not heed its context is left behind.
func (e *externals) close() {
	if e == nil {
		return
	}
	e.stop()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	for _, x := range e.log {
		if x.took == 0 && !x.begun.IsZero() {
			x.took = time.Since(x.begun)
		}
	}
	close(e.done)
	e.clock.stop()
	e.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		e.wg.Wait()
	}()
	grace := time.NewTimer(externalGrace)
	defer grace.Stop()
	select {
	case <-gone:
	case <-grace.C:
	}
}

// report tells the result of the calls made. e is closed.
func (e *externals) report(res *sandbox.Result) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.log {
		res.Calls = append(res.Calls, sandbox.Call{Name: x.server + "." + x.tool, Duration: x.took, OK: x.ok})
	}
	if more := e.calls - len(e.log); more > 0 {
		res.Notes = append(res.Notes, fmt.Sprintf("%d more calls of external tools are not listed", more))
	}
}
