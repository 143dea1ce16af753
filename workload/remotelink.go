package workload

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// link carries the channel of one interpreter, and its output, over questions
// and answers. Bytes have offsets in both directions: what got lost is sent
// again and never taken twice, so that no request of the kernel's is run twice
// either. A call costs one round trip: the question brings the request, its
// answer the reply with all output before it.
//
// It is the kernel.Client's In; its Out is given to newLink.
type link struct {
	r          *remote
	generation int64
	output     *kernel.Output
	out        *io.PipeWriter // to the kernel.Client
	patience   time.Duration  // without an answer, then the container is lost
	rest       time.Duration  // after an answer, until the next question between calls
	kick       chan struct{}  // holds one token when there is something to do
	cancel     context.CancelFunc
	done       chan struct{}

	wait  time.Duration // how long an answer may take that has nothing to tell; the loop's own
	taken [3]int64      // offsets of the channel, stdout, stderr; likewise

	mu      sync.Mutex
	queue   []byte // to the interpreter, from offset acked on
	acked   int64
	sent    int64
	linger  time.Duration // how long the agent may wait for a reply to go with what it has
	calling bool
	version int64    // of the workspace, as it is known here; -1 = it is not asked for
	files   *changes // what was told of it since; nil = nothing
	silent  error    // what came in place of the last answers; nil = an answer
	killed  bool     // the kernel has killed, beside a death of the interpreter's
}

const (
	linkPart   = 1 << 20                // bytes of the channel in one question
	lingerCall = 50 * time.Millisecond  // for output of a call
	lingerIdle = time.Second            // for what comes between calls
	linkWait   = 20 * time.Second       // see link.wait
	leastWait  = time.Second            // below which a gateway's impatience is a fault
	linkRest   = 250 * time.Millisecond // see link.rest
	// linkPatience is less than the agent's lease, which ends what is in the container.
	linkPatience = 2 * time.Minute
	inFlight     = 2 // questions at a time: one that waits, and one that brings something
)

// newLink starts carrying; Close ends it. The interpreter's frames come out of
// the reader, whose end says why the link ended.
func newLink(r *remote, generation int64, output *kernel.Output) (*link, *io.PipeReader) {
	out, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		r: r, generation: generation, output: output, out: w, patience: linkPatience, rest: linkRest,
		kick: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}), version: -1, wait: min(linkWait, r.client.limit*2/3),
	}
	go l.loop(ctx)
	return l, out
}

// Write takes one frame to the interpreter. It does not wait for it to get there.
func (l *link) Write(frame []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, frame...)
	l.linger = lingerCall
	if len(frame) > 0 && frame[0] == 'C' { // an order, whose answer is no reply
		l.linger = 0
	}
	l.wake()
	return len(frame), nil
}

// Close ends the link, and waits for its goroutines. The interpreter goes on.
func (l *link) Close() error {
	l.cancel()
	l.out.CloseWithError(sandbox.ErrClosed) // the loop may wait for its reader
	<-l.done
	return nil
}

func (l *link) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// call says that a call begins, or ends. While it lasts there is always a question
// under way; version is that of the workspace as it is known here, -1 = what
// changes in it is not asked for.
func (l *link) call(begins bool, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calling, l.version, l.files = begins, version, nil
	l.linger = lingerCall
}

// changed is what was told of the workspace in this call; nil = nothing yet.
func (l *link) changed() *changes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files
}

func (l *link) hears(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = err
}

// giveUp loses the container if it did not answer at the last. It is for an owner
// who has waited for long enough.
func (l *link) giveUp() {
	l.mu.Lock()
	err := l.silent
	l.mu.Unlock()
	if err != nil {
		l.lose(err)
	}
}

// oomKilled reports whether the kernel has killed for want of memory, beside a
// death of the interpreter's, since it was last asked.
func (l *link) oomKilled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.killed
	l.killed = false
	return was
}

// round is one question and what came of it.
type round struct {
	answer talkAnswer
	data   []byte
	took   time.Duration
	err    error
}

func (l *link) loop(ctx context.Context) {
	defer close(l.done)
	rounds := make(chan round, inFlight)
	under, failures, last := 0, 0, time.Now()
	defer func() {
		l.cancel()
		for range under {
			<-rounds
		}
	}()
	next := time.Now() // when the next question without data is due
	for {
		now, later := l.due(under, failures > 0, !time.Now().Before(next))
		if now {
			under++
			q, data := l.question()
			go func() { rounds <- l.ask(ctx, q, data) }()
			continue
		}
		timer := time.NewTimer(max(time.Until(next), 0))
		if !later {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-l.kick:
		case <-timer.C:
		case got := <-rounds:
			under--
			switch err := l.take(got); {
			case ctx.Err() != nil:
			case err == nil:
				failures, last = 0, time.Now()
				l.hears(nil)
				next = l.pause(last)
			case retryable(err) && time.Since(last) < l.patience:
				l.rewind()
				l.hears(err)
				next = time.Now().Add(l.r.client.clock.real(backoff(failures, err)))
				failures++
				if got.took >= leastWait { // a gateway that does not wait for so long: ask for less
					l.wait = max(min(l.wait, got.took/2), leastWait)
				}
			default:
				l.lose(err)
				l.cancel()
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// due reports whether to ask now: at once with what there is to send, or when it
// is time and nobody waits for an answer already; and whether it will be when
// the time has come, with no other cause.
func (l *link) due(under int, failing, time bool) (now, later bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch news := l.sent < l.acked+int64(len(l.queue)); {
	case news && !failing:
		return under < inFlight, false
	case news:
		return time && under < inFlight, under < inFlight
	case failing:
		return time && under == 0, under == 0
	default:
		return under == 0 && (time || l.calling), under == 0
	}
}

// pause is when to ask again after an answer at that time.
func (l *link) pause(at time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calling {
		return at
	}
	return at.Add(l.rest)
}

func (l *link) question() (talkQuestion, []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.queue[l.sent-l.acked:]
	data := append([]byte(nil), rest[:min(len(rest), linkPart)]...)
	linger := l.linger
	if !l.calling {
		linger = max(linger, lingerIdle)
		if len(data) > 0 {
			linger = 0
		}
	}
	if l.taken[0] == 0 { // the interpreter starts: that it has is all there is to wait for
		linger = 0
	}
	q := talkQuestion{
		Generation: l.generation, In: l.sent, Out: l.taken[0], Stdout: l.taken[1], Stderr: l.taken[2],
		WaitMS: l.wait.Milliseconds(), LingerMS: linger.Milliseconds(),
	}
	if l.version >= 0 {
		v := l.version
		q.Version = &v
	}
	l.sent += int64(len(data))
	return q, data
}

func (l *link) ask(ctx context.Context, q talkQuestion, data []byte) round {
	var got round
	begun := time.Now()
	got.data, got.err = l.r.once(ctx, "/v1/talk", q, data, &got.answer)
	got.took = time.Since(begun)
	return got
}

// rewind has all sent again that no answer has confirmed.
func (l *link) rewind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = l.acked
}

// lose ends the link for good.
func (l *link) lose(err error) {
	if _, ok := errors.AsType[*lostError](err); !ok && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, sandbox.ErrClosed) {
		err = &lostError{why: "the container does not answer", err: err}
	}
	if lost, ok := errors.AsType[*lostError](err); ok {
		err = l.r.failed(lost)
	}
	l.out.CloseWithError(err)
}
