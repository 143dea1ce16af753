package kernel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"mcp-sandbox/sandbox"
)

// ErrDied is in the error of a Save or a Restore during which the variables
// were lost: the interpreter ended, or was ended since it did not stop.
var ErrDied = errors.New("the interpreter ended meanwhile")

// errRevived is in the error of a Save during which the interpreter ended and its variables
// were not lost.
var errRevived = errors.New("the interpreter ended meanwhile")

// CannotError is the interpreter's own word on why it can't save or restore.
// With the same snapshot it will say so again.
type CannotError string

// Error implements error.
func (e CannotError) Error() string { return string(e) }

// Sink keeps the bytes of a snapshot. It is called from one goroutine at a time.
type Sink interface {
	io.Writer
	Rewind(size int64) error // forget all but the first size bytes
}

// SaveLimits bound a Save.
type SaveLimits struct {
	Bytes   int64         // of the snapshot; required
	Time    time.Duration // required
	Scratch []string      // directories inside that end with the interpreter: what lies there is noted
	Without []Skip        // names to leave out, of the same variables
}

// Snapshot says how to read what Save wrote, and what is not in it.
type Snapshot struct {
	Table json.RawMessage // the interpreter's own, for Restore alone; at most sandbox.MaxValue bytes and some
	Notes []string
}

// saveGrace is how long code that saves may take to obey an interrupt: what is at
// stake are the variables, and nobody's call waits for less.
const saveGrace = 10 * time.Second

// Save writes the variables, name by name, to sink. It takes a turn like a call,
// and may run code of the session's own. The variables stay; after an error what
// sink holds is worthless. The error is ctx's own, wraps ErrDied, is a NameError, or is a
// sentence that says why they can't be saved.
func (c *Client) Save(ctx context.Context, sink Sink, limits SaveLimits) (Snapshot, error) {
	t := &transfer{sink: sink, limit: limits.Bytes, names: &names{doing: "saved"}}
	r := runner{limit: limits.Time, grace: saveGrace}
	p, err := c.transfer(ctx, t, &r, map[string]any{
		"op": "save", "limit": limits.Bytes, "scratch": append([]string{}, limits.Scratch...),
		"without": append([]Skip{}, limits.Without...),
	})
	if err != nil {
		return Snapshot{}, t.names.blame(ctx, &r, err)
	}
	var untold sandbox.Result // whoever reads the snapshot must know of it, too
	if r.history.between != nil {
		r.reportBetween(&untold)
	}
	return Snapshot{Table: p.Output, Notes: append(untold.Notes, p.Notes...)}, nil
}

// transfer is a stream of bytes beside a request.
type transfer struct {
	sink  Sink // nil = none come
	limit int64
	size  int64

	from  io.Reader // nil = none are asked for
	pulls chan struct{}
	names *names // what is saved or loaded

	failed chan error // gets at most one: the server's own fault
}

// transfer makes a request and moves the bytes that belong to it. r has its limits.
func (c *Client) transfer(ctx context.Context, t *transfer, r *runner, fields map[string]any) (*reply, error) {
	if err := c.awaitWorker(ctx); err != nil {
		return nil, err
	}
	id := uuid.NewString()
	fields["id"] = id
	payload, err := marshal(fields)
	if err != nil {
		return nil, err
	}
	t.failed = make(chan error, 1)
	k := c.beginTransfer(id, t)
	done, fed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		c.feed(t, done)
	}()
	r.c, r.call = c, k
	_ = c.send(kindRequest, payload) // a failure breaks the client, which wait sees
	r.wait(ctx)
	c.mu.Lock()
	r.history = k.history
	c.mu.Unlock()
	close(done)
	<-fed
	return t.outcome(ctx, r)
}

// outcome tells how a transfer ended.
func (t *transfer) outcome(ctx context.Context, r *runner) (*reply, error) {
	switch {
	case errors.Is(r.broken, sandbox.ErrClosed):
		return nil, sandbox.ErrClosed
	case r.broken != nil:
		return nil, fmt.Errorf("%w: its channel to the server broke (%w)", ErrDied, r.broken)
	case t.sink != nil && r.heir != nil && r.out.died != nil:
		r.heir.before-- // by what was no call
		r.c.untell(history{between: r.out.died, revived: r.heir})
		return nil, fmt.Errorf("%w (%s), and was restored", errRevived, describe(r.out.died))
	case r.killed:
		return nil, fmt.Errorf("%w: it did not stop when it was interrupted", ErrDied)
	case r.out.died != nil:
		return nil, fmt.Errorf("%w: %s", ErrDied, describe(r.out.died))
	}
	if t.sink != nil {
		r.c.restore(r.history) // as before what was no call
		if died := r.history.between; died != nil && r.history.revived == nil {
			return nil, fmt.Errorf("%w: %s", ErrDied, describe(died)) // what was saved is a fresh one's
		}
	}
	select {
	case err := <-t.failed:
		return nil, err
	default:
	}
	switch p := r.out.reply; {
	case p.Event == "refused":
		return nil, CannotError("the interpreter refused: " + p.Error)
	case p.Status == "ok": // also where it was finished just before it was to stop
		return p, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.why != nil && r.why.Status == sandbox.StatusTimeout:
		return nil, fmt.Errorf("it takes longer than %v", r.limit)
	case r.why != nil:
		return nil, errors.New(r.why.Text)
	default:
		return nil, CannotError(p.Error)
	}
}

func (c *Client) beginTransfer(id string, t *transfer) *call {
	k := c.begin(id, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	k.transfer = t
	return k
}

// fail ends a transfer for a fault of ours.
func (t *transfer) fail(c *Client, err error) {
	select {
	case t.failed <- err:
		c.Stop(StopReason{Status: sandbox.StatusInfra, Text: err.Error()})
	default:
	}
}

// takeTransfer accepts what belongs to the transfer under way, and nothing else.
func (c *Client) takeTransfer(kind byte, payload []byte) error {
	c.mu.Lock()
	var t *transfer
	if c.call != nil {
		t = c.call.transfer
	}
	c.mu.Unlock()
	switch {
	case t != nil && t.sink != nil && kind == kindData:
		t.size += int64(len(payload))
		if t.size > t.limit {
			return fmt.Errorf("%w: a snapshot of more than %d bytes", errFrame, t.limit)
		}
		if _, err := t.sink.Write(payload); err != nil {
			t.fail(c, err)
		}
		return nil
	case t != nil && t.sink != nil && kind == kindRewind && len(payload) == 8:
		size := binary.BigEndian.Uint64(payload)
		if size > uint64(t.size) {
			return fmt.Errorf("%w: a snapshot of %d bytes can't be cut to %d", errFrame, t.size, size)
		}
		t.size = int64(size)
		if err := t.sink.Rewind(t.size); err != nil {
			t.fail(c, err)
		}
		return nil
	case t != nil && t.names != nil && kind == kindName:
		return t.names.begin(payload)
	case t != nil && t.from != nil && kind == kindPull && len(payload) == 0:
		select {
		case t.pulls <- struct{}{}:
			return nil
		default:
			return fmt.Errorf("%w: more asked for than it takes", errFrame)
		}
	}
	return fmt.Errorf("%w: a part of a snapshot that nobody asked for", errFrame)
}

// pullBatch is how many pieces one pull asks for.
const pullBatch = 16

// feed sends what is pulled, until done. An empty piece says that there is no more.
func (c *Client) feed(t *transfer, done <-chan struct{}) {
	piece := make([]byte, maxData)
	for ended := t.from == nil; !ended; {
		select {
		case <-t.pulls:
		case <-done:
			return
		}
		for i := 0; i < pullBatch && !ended; i++ {
			n, err := io.ReadFull(t.from, piece)
			if n > 0 && c.send(kindData, piece[:n]) != nil {
				return
			}
			switch {
			case err == nil:
				continue
			case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
				t.fail(c, err)
			}
			ended = true
			_ = c.send(kindData, nil) // a failure breaks the client
		}
	}
}
