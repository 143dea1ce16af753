package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"mcp-sandbox/sandbox"
)

// Bounds of the last steps. A supervisor that takes longer is broken, and its
// owner ends the whole wall from outside. Where nothing is parked, a call ends
// within its limit and two and a half seconds: two of grace, and killWait. Where a
// standby is there to be saved, the same few milliseconds are the rule, and that of
// the two waits below the limit: a loaded machine must not cost the variables.
const (
	killWait   = 450 * time.Millisecond
	parkedWait = 5 * time.Second // instead of killWait and sweepWait
	sweepWait  = time.Second
	// heirWait bounds taking over: the five seconds that the supervisor allows a
	// standby, and the start of a fresh worker if it was none.
	heirWait = 10 * time.Second
)

// Run executes one request and says what became of it. Its error is non-nil if
// ctx ended or the client was closed, then beside a Result where the code had
// been started; or if there is no interpreter to run it. After a Result
// whose State is lost the client may be broken.
func (c *Client) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := req.Check(); err != nil {
		return sandbox.Result{}, err
	}
	if req.Timeout == 0 {
		req.Timeout = sandbox.DefaultTimeout
	}
	start := time.Now()
	if err := c.awaitWorker(ctx); err != nil {
		return sandbox.Result{}, err
	}
	id := uuid.NewString()
	ext, err := newExternals(ctx, c, req)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer ext.close()
	payload, err := encodeRun(id, req, ext)
	if err != nil {
		return sandbox.Result{}, err
	}
	if c.cfg.OOM != nil {
		c.cfg.OOM() // what was killed before is not this call's
	}
	k := c.begin(id, ext)
	res := sandbox.Result{Code: req.Code, Provisioning: time.Since(start)}
	if c.cfg.Output != nil {
		if n := c.cfg.Output.Begin(req.Progress); n > 0 {
			res.Notes = append(res.Notes, fmt.Sprintf("the first %d bytes of output came from the background, between the calls", n))
		}
	}
	r := runner{c: c, call: k, limit: req.Timeout, grace: c.cfg.Grace}
	sent := time.Now()
	_ = c.send(kindRequest, payload) // a failure breaks the client, which wait sees
	r.wait(ctx)
	c.mu.Lock()
	r.history, res.Displays = k.history, k.gallery.displays
	c.mu.Unlock()
	res.Duration = time.Since(sent)
	ext.report(&res)
	if c.cfg.Output != nil {
		c.cfg.Output.End(&res)
	}
	if errors.Is(r.broken, sandbox.ErrClosed) {
		res.Status, res.ExitCode = sandbox.StatusCancelled, sandbox.StatusCancelled.ExitCode()
		res.State = sandbox.StateLost
		return res, sandbox.ErrClosed // with what it had written
	}
	if p := r.out.reply; p != nil && p.Event == "refused" {
		c.restore(r.history) // nothing ran: the next call is as this one would have been
		return sandbox.Result{}, sandbox.Invalid("the interpreter refused the request: %s", p.Error)
	}
	r.report(&res)
	if res.Status == sandbox.StatusCancelled {
		return res, ctx.Err()
	}
	return res, nil
}

// history is what a call needs to know of those before it.
type history struct {
	fresh   bool     // the worker has run nothing yet
	between *event   // how the worker before it died, if nobody was told yet
	revived *revived // and what was restored after that death; nil = nothing
}

// begin registers a call, so that an answer to it is accepted.
func (c *Client) begin(id string, ext *externals) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := history{fresh: c.fresh, between: c.between, revived: c.revived}
	k := &call{id: id, outcome: make(chan outcome, 1), stops: make(chan StopReason, 1), history: h, externals: ext}
	c.call = k
	c.between, c.revived, c.fresh = nil, nil, false
	c.ran++
	c.sent++
	return k
}

// restore takes back what begin has done. The worker may have died since, and
// then knows better.
func (c *Client) restore(h history) {
	c.untell(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh = c.fresh || h.fresh
	c.ran--
}

// untell leaves a death to the next call to tell of, unless there was one since.
func (c *Client) untell(h history) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.between == nil {
		c.between, c.revived = h.between, h.revived
	}
}

// runner takes one call to its end.
type runner struct {
	c       *Client
	call    *call
	limit   time.Duration
	history history
	grace   time.Duration // between the steps of the ladder

	why    *StopReason // why it was told to end; nil = it ended by itself
	out    outcome     // how it ended
	killed bool        // by us
	heir   *revived    // what took its place, with variables; nil = nothing, or a fresh one
	broken error       // the channel ended instead
}

// wait returns when the call has ended and the interpreter is ready for the
// next one, or is broken.
func (r *runner) wait(ctx context.Context) {
	r.await(ctx)
	r.call.externals.close()
	died := r.out.died
	if r.broken == nil && (died != nil && died.Standby || died == nil && r.killed) {
		r.heir, r.broken = r.c.awaitHeir()
	}
}

func (r *runner) await(ctx context.Context) {
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	select {
	case r.out = <-r.call.outcome:
	case <-r.c.broken:
		r.broken = r.c.Err()
	case <-limit.C:
		r.stop(StopReason{Status: sandbox.StatusTimeout, Text: fmt.Sprintf("The time limit of %v was reached.", r.limit)})
	case <-ctx.Done():
		r.stop(StopReason{Status: sandbox.StatusCancelled, Text: "The caller went away."})
	case why := <-r.call.stops:
		r.stop(why)
	}
}

// stop is the ladder: an interrupt, which most code obeys and which keeps all
// variables; a harder one, together with the end of the processes that the
// call has started; the end of the interpreter.
func (r *runner) stop(why StopReason) {
	r.why = &why
	r.call.externals.stop()
	if !why.Kill {
		for _, op := range []string{"interrupt", "escalate"} {
			if r.c.tell(op) == nil && r.within(r.grace) {
				r.sweep()
				return
			}
		}
	}
	r.killed = true
	wait := killWait
	if why.Kill { // without the two seconds of the steps above
		wait += 2 * time.Second
	}
	if err := r.c.control("kill", r.c.patience(wait)); err != nil {
		r.broken = err
	}
	select { // it may have ended by itself just before
	case r.out = <-r.call.outcome:
	default:
	}
}

func (r *runner) within(d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case r.out = <-r.call.outcome:
		return true
	case <-r.c.broken:
		r.broken = r.c.Err()
		return true
	case <-late.C:
		return false
	}
}

// sweep ends what an interrupted call left running: its time is over, also
// for its grandchildren. What earlier calls started stays.
func (r *runner) sweep() {
	if r.broken != nil || r.out.died != nil {
		return // there is nothing left to sweep
	}
	if err := r.c.control("sweep", r.c.patience(sweepWait)); err != nil {
		r.broken = err
	}
}

// patience is how long the supervisor may take where otherwise it has wait.
func (c *Client) patience(wait time.Duration) time.Duration {
	if _, standby := c.Processes(); standby != 0 {
		return max(wait, parkedWait)
	}
	return wait
}
