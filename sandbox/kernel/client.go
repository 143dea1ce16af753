package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// Config of a Client. Every field but the first two has a useful zero value.
type Config struct {
	In     io.WriteCloser // to the supervisor; required
	Out    io.ReadCloser  // from the supervisor; required
	Output *Output        // the guest's streams; nil = captured elsewhere
	Memory int64          // the session's memory limit in bytes, for texts
	Grace  time.Duration  // between the steps of the ladder that ends a call; 0 = 1 s
	Start  time.Duration  // how long the interpreter may take to start; 0 = 60 s
	// Distance is how long a frame may be under way to the supervisor, or back,
	// beyond what a pipe takes. It is added to each bound of a wait for it. 0 = a pipe.
	Distance time.Duration
	// OOM reports whether the kernel ended a process of this session for want
	// of memory since it was last asked. nil = never.
	OOM func() bool
	// Hints explain what the sandbox does not let code do, by the kind of the error:
	// network, path, package. A kind that is not there is not explained.
	Hints map[string]string
	// Unsaved is the note of a result that lost the variables of earlier calls for want
	// of a checkpoint. "" = none.
	Unsaved string
	// Parked hears that process pid, by the number it has inside, is the standby,
	// or that it is no longer, because it has become the worker. It must return at
	// once. nil = nobody asks.
	Parked func(pid int, yes bool)
}

// Client is the server's end of the talk with one supervisor and the worker it
// keeps. Calls must take turns; Stop and Close may come at any time. A Client
// that is broken stays so: its owner ends the interpreter and starts another.
type Client struct {
	cfg    Config
	broken chan struct{} // closed when the channel is of no more use
	gone   chan struct{} // closed when the reader has ended

	writing sync.Mutex

	mu      sync.Mutex
	err     error         // why it is broken
	ready   chan struct{} // closed while a worker waits for requests
	call    *call         // under way
	between *event
	seq     uint64
	acks    map[uint64]chan struct{}
	fresh   bool     // no call has run in this worker yet
	warm    bool     // it has done what Warm asks for
	sent    int      // requests
	ran     int      // calls that began in it, or before it in those it was restored from
	worker  int      // its number inside; 0 = it is not ready yet, or dead
	standby int      // that of the parked process; 0 = none
	heir    bool     // a standby is taking over
	told    []string // what it says that it could not bring along
	revived *revived // it has taken over, and no result has said so
	cells   uint64   // calls that might call external tools
}

// call is one request under way.
type call struct {
	id      string
	outcome chan outcome // gets exactly one
	stops   chan StopReason
	history history // guarded by Client.mu until the outcome is there

	gallery  gallery   // guarded by the client's mu until the outcome is there
	transfer *transfer // guarded by the client's mu; nil = none belongs to it

	externals *externals // nil = it may call none
}

// outcome is how a call ended: by a reply, or by the worker's death.
type outcome struct {
	reply *reply
	died  *event
}

// StopReason says why a call is ended before its time.
type StopReason struct {
	Status sandbox.Status // what the result will say
	Text   string         // one sentence
	Kill   bool           // at once, without asking the code
}

// NewClient starts reading. Close ends it.
func NewClient(cfg Config) *Client {
	if cfg.Grace == 0 {
		cfg.Grace = time.Second
	}
	if cfg.Start == 0 {
		cfg.Start = 60 * time.Second
	}
	c := &Client{
		cfg: cfg, broken: make(chan struct{}), gone: make(chan struct{}), ready: make(chan struct{}),
		acks: map[uint64]chan struct{}{}, fresh: true,
	}
	go c.read()
	return c
}

// Broken is closed when the interpreter is of no more use; Err says why.
func (c *Client) Broken() <-chan struct{} { return c.broken }

// Err is why the client is broken; nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the talk and waits for its goroutines. Closing the channel makes
// the supervisor kill everything and exit; its owner sees to that it did.
func (c *Client) Close() {
	c.fail(sandbox.ErrClosed)
	<-c.gone
	if c.cfg.Output != nil {
		c.cfg.Output.Close()
	}
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.broken)
	c.cfg.In.Close()
	c.cfg.Out.Close()
}

// read takes frames until the channel ends or something malformed comes.
func (c *Client) read() {
	defer close(c.gone)
	r := bufio.NewReaderSize(c.cfg.Out, 16<<10)
	for {
		kind, payload, err := readFrame(r)
		if err == nil {
			err = c.take(kind, payload)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) take(kind byte, payload []byte) error {
	switch kind {
	case kindSupervisor:
		e, err := decodeEvent(payload)
		if err != nil {
			return err
		}
		_, before := c.Processes()
		c.takeEvent(e)
		if c.cfg.Parked != nil && e.PID > 0 && (e.Event == "checkpoint" && e.PID != before || e.Restored != nil) {
			c.cfg.Parked(e.PID, e.Event == "checkpoint")
		}
		return nil
	case kindWorker:
		r, err := decodeReply(payload)
		if err != nil {
			return err
		}
		return c.takeReply(r)
	case kindDisplay, kindShown:
		return c.takeDisplay(kind, payload)
	case kindData, kindRewind, kindPull, kindName:
		return c.takeTransfer(kind, payload)
	case kindExternal:
		return c.takeExternal(payload)
	}
	return fmt.Errorf("%w: unknown kind %q", errFrame, kind)
}

func (c *Client) takeEvent(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Event {
	case "worker":
		c.arrive(e)
		select {
		case <-c.ready: // a second one without a death between: the same to us
		default:
			close(c.ready)
		}
	case "died":
		select {
		case <-c.ready:
			c.ready = make(chan struct{})
		default: // it died before it was ready: who waits, waits for the next one
		}
		switch {
		case c.call != nil && e.Requests != nil && *e.Requests < c.sent:
			c.call.history.between = &e // the call had not reached it, and the next one runs it
		case c.call != nil:
			c.call.outcome <- outcome{died: &e}
			c.call = nil
		case !e.Asked && !c.fresh && !c.heir:
			c.between = &e
		}
		c.heir, c.told, c.worker, c.standby, c.warm = e.Standby, nil, 0, 0, false
	case "checkpoint":
		c.standby = e.PID
	case "discarded":
		c.standby = 0
	case "done":
		if ack := c.acks[e.Seq]; ack != nil {
			close(ack)
			delete(c.acks, e.Seq)
		}
	}
}

// Processes are the numbers that the worker and the parked process have inside;
// 0 for one that is not there.
func (c *Client) Processes() (worker, standby int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worker, c.standby
}

// Discard gives the standby up, for the memory that it takes: if the worker
// ends before the next checkpoint, the variables are lost. It is asked where memory
// is short, and the supervisor may be late like all else: after an error the standby
// may still be given up, and the client goes on.
func (c *Client) Discard() error {
	return c.ask("discard", sweepWait, func(error) {})
}

// takeReply accepts an answer to what was asked, and nothing else: a reply that
// nobody waits for was made up by user code.
func (c *Client) takeReply(r reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Event == "restored" && c.heir && c.told == nil {
		c.told = append([]string{}, r.Notes...)
		return nil
	}
	if r.Event == "restored" || c.call == nil || c.call.id != r.ID {
		return fmt.Errorf("%w: an answer that nobody asked for", errFrame)
	}
	c.call.outcome <- outcome{reply: &r}
	c.call = nil
	return nil
}

// awaitWorker waits until a worker takes requests. The start has a bound of its
// own, apart from the code's time.
func (c *Client) awaitWorker(ctx context.Context) error {
	late := time.NewTimer(c.cfg.Start)
	defer late.Stop()
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-c.broken:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		err := fmt.Errorf("no interpreter within %v", c.cfg.Start)
		c.fail(err)
		return err
	}
}

// sendWait bounds the writing of a frame. A supervisor that doesn't read for so
// long is broken: it queues what it can't pass on.
const sendWait = 5 * time.Second

// send writes one frame.
func (c *Client) send(kind byte, payload []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if w, ok := c.cfg.In.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = w.SetWriteDeadline(time.Now().Add(sendWait)) // a channel without deadlines has its owner's
	}
	if err := WriteFrame(c.cfg.In, kind, payload); err != nil {
		c.fail(err)
		return err
	}
	return nil
}

// tell asks the supervisor for something and does not wait for it.
func (c *Client) tell(op string) error {
	payload, err := json.Marshal(map[string]any{"op": op})
	if err != nil {
		return err
	}
	return c.send(kindControl, payload)
}

// ErrLate is in the error of what the supervisor was asked for and did not do in time.
var ErrLate = errors.New("the supervisor did not do")

// control asks the supervisor for something and waits until it is done. One that
// is late is broken.
func (c *Client) control(op string, wait time.Duration) error {
	return c.ask(op, wait+2*c.cfg.Distance, c.fail)
}

// ask is control, with what to do if the supervisor is late.
func (c *Client) ask(op string, wait time.Duration, late func(error)) error {
	ack := make(chan struct{})
	c.mu.Lock()
	c.seq++
	seq := c.seq
	c.acks[seq] = ack
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.acks, seq) // what comes later is nobody's
	}()
	over := make(chan error, 1)
	timer := time.AfterFunc(wait, func() { // also while it is being written
		err := fmt.Errorf("%w %q within %v", ErrLate, op, wait)
		late(err)
		over <- err
	})
	defer timer.Stop()
	payload, err := json.Marshal(map[string]any{"op": op, "seq": seq})
	if err == nil {
		err = c.send(kindControl, payload)
	}
	if err != nil {
		return err
	}
	select {
	case <-ack:
		return nil
	case <-c.broken:
		select {
		case <-ack: // its last word
			return nil
		default:
			return c.Err()
		}
	case err := <-over:
		return err
	}
}

// Stop ends the call under way for a reason of the owner's. It reports false if
// there is none.
func (c *Client) Stop(why StopReason) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call == nil {
		return false
	}
	select {
	case c.call.stops <- why:
	default: // one reason is enough
	}
	return true
}

// Stray is what the guest wrote to its stderr outside any call: the last words
// of an interpreter that never got to answer.
func (c *Client) Stray() string {
	if c.cfg.Output == nil {
		return ""
	}
	var res sandbox.Result
	c.cfg.Output.End(&res)
	return res.Stderr
}
