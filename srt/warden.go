package srt

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// verbWarden makes be-child the first process of a wall for commands.
const verbWarden = "warden"

// warden is the server's end of the talk with PID 1 of a wall for commands.
// Lines take turns; close may come at any time. A warden that is broken stays
// so: its owner raises another.
type warden struct {
	cage   *cage
	in     *os.File // to it
	out    io.ReadCloser
	output *kernel.Output
	memory int64 // limit of all commands together, for texts

	scratch []*disk // places of which nobody else holds the limits

	broken chan struct{} // closed when the channel is of no more use
	gone   chan struct{} // closed when the reader has ended

	mu   sync.Mutex
	err  error // why it is broken
	call *line // under way
	seq  uint64

	closing sync.Once
	closed  error
}

// line is one command line under way.
type line struct {
	id     uint64
	line   *allowlist.Pipeline
	report chan lineReport        // gets at most one
	stops  chan kernel.StopReason // reasons of the owner's to end it
}

const (
	stopGrace  = time.Second     // for a report after a stop; then the wall is ended from outside
	wardenSend = 5 * time.Second // for the writing of a frame
)

// newWarden begins the talk to what runs in c, and owns all it is given.
func newWarden(c *cage, in, out *os.File, output *kernel.Output, config wardenConfig, p Policy) (*warden, error) {
	w := &warden{
		cage: c, in: in, out: out, output: output, memory: p.Memory, scratch: p.scratchDisks(c.kin),
		broken: make(chan struct{}), gone: make(chan struct{}),
	}
	go w.read()
	if err := w.send(frameConfig, config); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// read takes reports until the channel ends or something malformed comes.
func (w *warden) read() {
	defer close(w.gone)
	r := bufio.NewReader(w.out)
	for {
		kind, payload, err := kernel.ReadFrame(r, wardenBound)
		if err == nil {
			err = w.take(kind, payload)
		}
		if err != nil {
			w.fail(err)
			return
		}
	}
}

func (w *warden) take(kind byte, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind != frameReport || w.call == nil {
		return fmt.Errorf("%w: %q that nobody asked for", errWarden, kind)
	}
	report, err := decodeReport(payload, w.call.id, w.call.line)
	if err != nil {
		return err
	}
	w.call.report <- report
	w.call = nil
	return nil
}

func (w *warden) send(kind byte, what any) error {
	payload, err := json.Marshal(what)
	if err == nil {
		_ = w.in.SetWriteDeadline(time.Now().Add(wardenSend)) // it reads at once, or is broken
		err = kernel.WriteFrame(w.in, kind, payload)
	}
	if err != nil {
		w.fail(err)
	}
	return err
}

func (w *warden) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	close(w.broken)
	w.in.Close() // with it the warden ends, and everything behind the wall
	w.out.Close()
}

// reason is why w is broken; nil while it is not.
func (w *warden) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// close kills everything behind the wall and waits until it is gone.
func (w *warden) close() error {
	w.closing.Do(func() {
		w.fail(sandbox.ErrClosed) // first, so that a line under way hears of the close and not of a death
		<-w.gone
		w.closed = errors.Join(w.cage.Kill(), w.cage.Close())
		w.output.Close()
	})
	return w.closed
}

// stop ends the line under way for a reason of the owner's.
func (w *warden) stop(why kernel.StopReason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.call == nil {
		return
	}
	select {
	case w.call.stops <- why:
	default: // one reason is enough
	}
}

// ending is how a line ended: by a report, or because the channel broke.
type ending struct {
	report *lineReport
	why    *kernel.StopReason // why it was told to end; nil = it ended by itself
	broken error
}

// run runs one line. It returns when every process of it is dead; where the
// warden was lost with it, the wall has been ended and w is broken.
func (w *warden) run(ctx context.Context, req sandbox.CommandRequest) (sandbox.Result, error) {
	w.cage.oomKilled() // what was killed before is not this line's
	l := w.begin(req.Pipeline)
	w.output.Begin(req.Progress)
	sent := time.Now()
	_ = w.send(frameRun, lineRequest{ID: l.id, Line: l.line}) // a failure breaks w, which await sees
	end := w.await(ctx, l, req.Timeout)
	res := sandbox.Result{Code: req.Command, State: sandbox.StateNone, Duration: time.Since(sent)}
	if end.broken != nil && !errors.Is(end.broken, sandbox.ErrClosed) {
		if err := w.cage.Kill(); err != nil { // all that can still write is dead after it
			return sandbox.Result{}, infra(err)
		}
	}
	w.output.End(&res)
	if errors.Is(end.broken, sandbox.ErrClosed) { // with what the line had written
		res.Status, res.ExitCode = sandbox.StatusCancelled, sandbox.StatusCancelled.ExitCode()
		return res, sandbox.ErrClosed
	}
	if end.report != nil && end.report.Unclean != "" {
		// It would stay, and count as memory, for as long as this wall does.
		w.fail(fmt.Errorf("what a command left can't be removed: %s", end.report.Unclean))
	}
	if refused := end.refusedWhole(); refused != nil {
		return sandbox.Result{}, refused
	}
	end.tell(&res, w, l.line)
	if res.Status == sandbox.StatusCancelled {
		return res, ctx.Err()
	}
	return res, nil
}

// begin registers a line, so that a report on it is accepted.
func (w *warden) begin(p *allowlist.Pipeline) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	w.call = &line{id: w.seq, line: p, report: make(chan lineReport, 1), stops: make(chan kernel.StopReason, 1)}
	return w.call
}

func (w *warden) await(ctx context.Context, l *line, limit time.Duration) (end ending) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-l.report:
		end.report = &r
	case <-w.broken:
		end.broken = w.reason()
	case <-late.C:
		end.why = &kernel.StopReason{Status: sandbox.StatusTimeout, Text: fmt.Sprintf("The time limit of %v was reached, and the commands were ended.", limit)}
	case <-ctx.Done():
		end.why = &kernel.StopReason{Status: sandbox.StatusCancelled, Text: "The caller went away, and the commands were ended."}
	case why := <-l.stops:
		end.why = &why
	}
	if l.over(&end) || end.broken != nil {
		return end
	}
	_ = w.send(frameStop, lineStop{l.id}) // a failure breaks w
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case r := <-l.report:
		end.report = &r
	case <-w.broken:
		end.broken = w.reason()
	case <-grace.C:
		end.broken = fmt.Errorf("the warden did not stop the commands within %v", stopGrace)
		w.fail(end.broken)
	}
	l.over(&end)
	return end
}

// over reports whether l has a report, which goes before whatever else came at the
// same moment. A stop that found the line ended is not how it ended.
func (l *line) over(e *ending) bool {
	if e.report == nil {
		select {
		case r := <-l.report:
			e.report = &r
		default:
			return false
		}
	}
	if !e.report.Stopped {
		e.why = nil
	}
	e.broken = nil
	return true
}
