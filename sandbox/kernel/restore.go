package kernel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// RestoreRequest says what to restore, and how.
type RestoreRequest struct {
	Table   json.RawMessage // of the Snapshot
	From    io.Reader       // what Save wrote; required
	Limit   time.Duration   // required; what does not obey its interrupt has two seconds more
	Without []Skip          // names to leave out
}

// Skip is a name that is not to be restored.
type Skip struct {
	Index  int    `json:"index"`  // as a NameError told it of the same snapshot, or of the same variables
	Name   string `json:"name"`   // likewise
	Reason string `json:"reason"` // for the notes
}

// Restored says what Restore brought back.
type Restored struct {
	Back  int // names
	Names int // that were saved
	Notes []string
}

// NameError is in the error of a Save, a Restore or a Warm that did not come to its end,
// and tells of the name to blame: the one that was being saved or loaded when the
// interpreter ended, or the one that took longest until the limit was reached.
type NameError struct {
	Index  int           // of the name, for Skip; -1 = it had not come to the first one
	Name   string        // cut to some hundred bytes, as the guest wrote it
	Took   time.Duration // so far
	Late   bool          // the limit was reached; else the interpreter ended
	Killed bool          // it ended by SIGKILL, which may have been anybody's
	Err    error

	doing string // saved or loaded
}

// Error implements error.
func (e *NameError) Error() string {
	if e.Index < 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("while %s was being %s, %v", e.Name, e.doing, e.Err)
}

// Unwrap returns what happened, without the name.
func (e *NameError) Unwrap() error { return e.Err }

// Restore reads into a fresh interpreter what Save wrote. After an error the
// interpreter may hold a part of the variables: it is for nothing but to be ended.
// The error is ctx's own, a NameError, a CannotError, or the server's own fault.
func (c *Client) Restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	t := &transfer{from: req.From, pulls: make(chan struct{}, 4), names: &names{doing: "loaded"}}
	r := runner{limit: req.Limit, grace: c.cfg.Grace}
	p, err := c.transfer(ctx, t, &r, map[string]any{
		"op": "restore", "table": req.Table, "without": append([]Skip{}, req.Without...),
	})
	if err != nil {
		return Restored{}, t.names.blame(ctx, &r, err)
	}
	var n struct{ Back, Names int }
	if err := json.Unmarshal(p.Output, &n); err != nil {
		return Restored{}, fmt.Errorf("%w: count: %w", errFrame, err)
	}
	return Restored{Back: n.Back, Names: n.Names, Notes: p.Notes}, nil
}

// names follows those that an interpreter says it is about to save or to load.
type names struct {
	doing string // saved or loaded

	mu      sync.Mutex
	now     *oneName // being saved or loaded
	longest *oneName // of those before
}

type oneName struct {
	index int
	name  string
	begun time.Time
	took  time.Duration
}

// begin takes a frame of kindName.
func (l *names) begin(payload []byte) error {
	if len(payload) < 4 {
		return fmt.Errorf("%w: a name of %d bytes", errFrame, len(payload))
	}
	index := binary.BigEndian.Uint32(payload)
	if index > 1<<30 {
		return fmt.Errorf("%w: name %d", errFrame, index)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.now = &oneName{index: int(index), name: strings.ToValidUTF8(string(payload[4:]), "\ufffd"), begun: time.Now()}
	return nil
}

// end closes the account of the name that was being saved or loaded. mu is held.
func (l *names) end() {
	if l.now == nil {
		return
	}
	l.now.took = time.Since(l.now.begun)
	if l.longest == nil || l.now.took > l.longest.took {
		l.longest = l.now
	}
}

// blame makes the error of an interpreter that came to no end one that names who is to
// blame; others stay.
func (l *names) blame(ctx context.Context, r *runner, err error) error {
	late := r.why != nil && r.why.Status == sandbox.StatusTimeout
	if ctx.Err() != nil || !late && !errors.Is(err, ErrDied) && !errors.Is(err, errRevived) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	e := &NameError{doing: l.doing, Index: -1, Late: late, Killed: r.out.died != nil && r.out.died.Signal != nil && *r.out.died.Signal == 9, Err: err}
	culprit := l.now
	if late {
		culprit = l.longest
	}
	if culprit != nil {
		e.Index, e.Name, e.Took = culprit.index, culprit.name, culprit.took
	}
	return e
}
