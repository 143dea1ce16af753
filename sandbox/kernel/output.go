package kernel

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"mcp-sandbox/sandbox"
)

// Output drains a guest's two streams for as long as it lives, whether or not
// a call is under way: a guest never waits for a reader. It is safe for
// concurrent use.
type Output struct {
	pumps []*pump // none where output is fed

	mu       sync.Mutex // held while a piece is stored and shown
	captures [2]*capture
	progress func(sandbox.Stream, []byte)
	begun    bool            // a call's window is open
	closed   *sandbox.Result // what a call whose window was open at Close had written
}

// NewOutput drains the reading ends of the pipes that are the guest's
// descriptors 1 and 2, which it owns from now on, and keeps limit bytes of each
// for every call.
func NewOutput(stdout, stderr *os.File, limit int) *Output {
	o := &Output{captures: [2]*capture{newCapture(limit), newCapture(limit)}}
	for i, f := range []*os.File{stdout, stderr} {
		o.pumps = append(o.pumps, newPump(f, func(p []byte) { o.store(i, p) }))
	}
	return o
}

// Keep says where streams go that are longer than what a result holds; it may be
// called at any time, and holds from the next call's output on.
func (o *Output) Keep(begin func(sandbox.Stream) Overflow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, c := range o.captures {
		c.spill = func() Overflow { return begin(sandbox.Stream(i + 1)) }
	}
}

// NewFedOutput is NewOutput for a guest whose pipes are elsewhere: what comes of
// them is given to [Output.Feed], and what was written before a reply must be
// given before that reply.
func NewFedOutput(limit int) *Output {
	return &Output{captures: [2]*capture{newCapture(limit), newCapture(limit)}}
}

// Feed takes the next piece of a stream. missing bytes before it were dropped on
// the way: never among the first or the last of a call that are kept.
func (o *Output) Feed(stream sandbox.Stream, missing int64, piece []byte) {
	o.mu.Lock()
	o.captures[stream-1].n += missing
	o.mu.Unlock()
	o.store(int(stream-1), piece)
}

func (o *Output) store(i int, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.captures[i].write(p)
	if o.progress != nil {
		o.progress(sandbox.Stream(i+1), p)
	}
}

// Begin opens a call's window and returns the bytes that came since the last
// one: they belong to what runs in the background, and are shown with this call.
// progress, unless it is nil, hears of every piece until End.
func (o *Output) Begin(progress func(sandbox.Stream, []byte)) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress, o.begun = progress, true
	return o.captures[0].n + o.captures[1].n
}

// End closes a call's window after all that the guest wrote before its reply
// has been read, and puts the text into res.
func (o *Output) End(res *sandbox.Result) {
	for _, p := range o.pumps {
		p.sync()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress, o.begun = nil, false
	if o.closed != nil {
		res.Stdout, res.Stderr, res.Truncated = o.closed.Stdout, o.closed.Stderr, o.closed.Truncated
		o.closed = nil
		return
	}
	o.take(res)
}

// take empties both captures into res. mu is held.
func (o *Output) take(res *sandbox.Result) {
	res.Stdout, res.Truncated.Stdout = o.captures[0].take()
	res.Stderr, res.Truncated.Stderr = o.captures[1].take()
}

// Close stops reading and waits for the readers. What no call has
// taken is given up, but for that of a call under way, which its End still gets.
func (o *Output) Close() {
	for _, p := range o.pumps {
		p.close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var left sandbox.Result
	o.take(&left) // ends an overflow that is under way
	if o.begun && o.closed == nil {
		o.closed = &left
	}
}

const pumpBuffer = 64 << 10 // a pipe's ordinary capacity

// pump reads one pipe to its end.
type pump struct {
	f      *os.File
	write  func([]byte)
	synced chan struct{}
	done   chan struct{}
}

func newPump(f *os.File, write func([]byte)) *pump {
	p := &pump{f: f, write: write, synced: make(chan struct{}), done: make(chan struct{})}
	go p.loop()
	return p
}

func (p *pump) loop() {
	defer close(p.done)
	buf := make([]byte, pumpBuffer)
	for {
		n, err := p.f.Read(buf)
		if n > 0 {
			p.write(buf[:n])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.drain(buf)
			p.synced <- struct{}{}
		case err != nil:
			return
		}
	}
}

// sync returns when all that was in the pipe at its call has been read. An
// expired deadline is how the reader, asleep in the kernel, gets to hear of it.
func (p *pump) sync() {
	if p.f.SetReadDeadline(time.Unix(1, 0)) != nil {
		return // closed: there is nothing more to come
	}
	select {
	case <-p.synced:
	case <-p.done:
	}
}

// drain reads what is there without waiting for more. It stops after as much
// as a pipe can hold, since a guest's background process may write forever.
func (p *pump) drain(buf []byte) {
	if p.f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	conn, err := p.f.SyscallConn()
	if err != nil {
		return
	}
	for left := maxPipe; left > 0; {
		n := 0
		err := conn.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buf)
			return true // never wait
		})
		if err != nil || n <= 0 {
			return
		}
		p.write(buf[:n])
		left -= n
	}
}

const maxPipe = 1 << 20 // the most a pipe holds without privileges

func (p *pump) close() {
	p.f.Close()
	// A reader that has been told to sync waits for nobody: take its word.
	for {
		select {
		case <-p.synced:
		case <-p.done:
			return
		}
	}
}
