package tools

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

const (
	progressPace   = 100 * time.Millisecond // output is gathered for so long
	progressAlive  = 5 * time.Second        // a silent call shows that it lives
	progressSettle = 3 * time.Millisecond   // lead of the last notification over the result
	progressPiece  = 2 << 10                // bytes of output shown at a time; the result has the rest
)

// progress tells a client that asked for it what a running call prints, and
// that it is alive: many clients give up on a silent call after 60 s. Nothing
// is only there: the result has it all again.
//
// It owns one goroutine, which stop waits for. A call that is over within the
// first pace sends nothing.
type progress struct {
	send func(elapsed float64, message string) // nil = nobody asked
	end  chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	pending []byte
	cut     bool      // pending has lost its beginning
	sent    time.Time // when the last notification went out
}

// newProgress starts telling the client of req, if it sent a token.
func newProgress(ctx context.Context, req mcp.CallToolRequest) *progress {
	s := server.ServerFromContext(ctx)
	if s == nil || req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return &progress{}
	}
	token := req.Params.Meta.ProgressToken
	return startProgress(func(elapsed float64, message string) {
		// A client that does not read misses progress and nothing else.
		_ = s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
			"progressToken": token, "progress": elapsed, "message": message,
		})
	})
}

func startProgress(send func(float64, string)) *progress {
	p := &progress{send: send, end: make(chan struct{})}
	p.done.Go(p.loop)
	return p
}

// sink is what a request's Progress is to be; nil if nobody asked.
func (p *progress) sink() func(sandbox.Stream, []byte) {
	if p.send == nil {
		return nil
	}
	return func(_ sandbox.Stream, piece []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pending = append(p.pending, piece[max(0, len(piece)-progressPiece):]...)
		if extra := len(p.pending) - progressPiece; extra > 0 || len(piece) > progressPiece {
			p.pending = append(p.pending[:0], p.pending[max(0, extra):]...)
			p.cut = true
		}
	}
}

func (p *progress) loop() {
	start := time.Now()
	last := start
	tick := time.NewTicker(progressPace)
	defer tick.Stop()
	for {
		select {
		case <-p.end:
			return
		case now := <-tick.C:
			message := p.take()
			if message == "" {
				if now.Sub(last) < progressAlive {
					continue
				}
				message = fmt.Sprintf("%.0f s elapsed", now.Sub(start).Seconds())
			}
			last = now
			p.send(now.Sub(start).Seconds(), message)
			p.mu.Lock()
			p.sent = time.Now()
			p.mu.Unlock()
		}
	}
}

// take is the output to show now: whole lines if there are any.
func (p *progress) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.pending)
	for i := n - 1; i >= 0; i-- {
		if p.pending[i] == '\n' {
			n = i + 1
			break
		}
	}
	if n == len(p.pending) {
		n -= sandbox.Unfinished(p.pending)
	}
	message := sandbox.ValidUTF8(p.pending[:n])
	if p.cut {
		message = "…" + message
	}
	p.pending, p.cut = append(p.pending[:0], p.pending[n:]...), false
	return message
}

// stop ends the telling. Transports other than ours may write a notification
// after the result that it belongs before, unless it has a head start.
func (p *progress) stop() {
	if p.send == nil {
		return
	}
	close(p.end)
	p.done.Wait()
	if wait := progressSettle - time.Since(p.sent); !p.sent.IsZero() && wait > 0 {
		time.Sleep(wait)
	}
}
