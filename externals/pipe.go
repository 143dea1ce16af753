package externals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

var _ transport.Interface = (*pipe)(nil)

const (
	leave   = 500 * time.Millisecond // a child has this long to end by itself after its input has
	settle  = 3 * time.Second        // and this long to be seen to end after a stream of its has
	answers = 64                     // answers to the server's own requests that wait to be written
)

// pipe is the stdio transport. mcp-go's own has no limit for a line, waits without
// end for a child that does not read, and lets a reply that is no JSON wait for the
// caller's time limit.
type pipe struct {
	process Process
	lines   *lines
	log     *slog.Logger

	out  chan []byte   // lines for the child
	back chan []byte   // answers to its requests
	done chan struct{} // closed when the connection has ended; err says why
	err  error
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex
	pending map[string]chan *transport.JSONRPCResponse // by id as JSON
	refused map[string]error                           // replies that can't be had, likewise
	notify  func(mcp.JSONRPCNotification)
}

// newPipe owns the process, and ends it in Close.
func newPipe(process Process, maxReply int64, log *slog.Logger) *pipe {
	return &pipe{
		process: process, lines: newLines(process.Stdout(), maxReply), log: log,
		out: make(chan []byte), back: make(chan []byte, answers), done: make(chan struct{}),
		pending: map[string]chan *transport.JSONRPCResponse{}, refused: map[string]error{},
	}
}

// Start begins to read and to write.
func (p *pipe) Start(context.Context) error {
	p.wg.Go(p.write)
	p.wg.Go(p.read)
	return nil
}

// end says why the connection is over, once.
func (p *pipe) end(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
	})
}

func (p *pipe) lost() (<-chan struct{}, func() error) {
	return p.done, func() error { return p.err }
}

func (p *pipe) abandon(reason error) { p.end(reason) }

// Close ends the child: in order, if it takes the end of its input for that.
func (p *pipe) Close() error {
	p.end(transport.ErrTransportClosed)
	_ = p.process.Stdin().Close() // what is not written is lost anyway
	gone := make(chan struct{})
	go func() {
		_ = p.process.Wait() // how it ends does not matter
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(leave):
	}
	p.process.Kill()
	<-gone
	_ = p.process.Stdout().Close()
	p.wg.Wait()
	return nil
}

func (p *pipe) write() {
	for {
		var line []byte
		select {
		case line = <-p.out:
		case line = <-p.back:
		case <-p.done:
			return
		}
		if _, err := p.process.Stdin().Write(line); err != nil {
			p.end(p.ended(fmt.Errorf("it does not read any more: %w", err)))
			return
		}
	}
}

func (p *pipe) read() {
	for {
		line, err := p.lines.next()
		var large *tooLarge
		switch {
		case errors.As(err, &large):
			p.refuse(large.id, large)
		case errors.Is(err, errEndless):
			p.end(err)
			return
		case err != nil:
			p.end(p.ended(errors.New("it has closed its output")))
			return
		default:
			if err := p.take(line); err != nil {
				p.end(err)
				return
			}
		}
	}
}

// ended says how the child came to close one of its streams: it has ended, or else
// what the stream's own fault is.
func (p *pipe) ended(otherwise error) error {
	gone := make(chan error, 1)
	p.wg.Go(func() { gone <- p.process.Wait() })
	select {
	case err := <-gone:
		if err != nil {
			return fmt.Errorf("it has ended: %w", err)
		}
		return errors.New("it has ended")
	case <-time.After(settle):
		return otherwise
	case <-p.done:
		return p.err
	}
}

// take reads one message. An error ends the connection: what claims to be a message
// and can't be read is a reply that somebody waits for. Other lines are a careless
// server's log.
func (p *pipe) take(line []byte) error {
	if line[0] != '{' {
		p.log.Debug("a line of no message", "bytes", len(line))
		return nil
	}
	var m struct {
		ID     json.RawMessage          `json:"id"`
		Method string                   `json:"method"`
		Result json.RawMessage          `json:"result"`
		Error  *mcp.JSONRPCErrorDetails `json:"error"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		if bytes.Contains(line, []byte(`"jsonrpc"`)) {
			return errors.New("it sent a message that is not JSON-RPC")
		}
		p.log.Debug("a line of no message", "bytes", len(line))
		return nil
	}
	switch {
	case m.Method != "" && len(m.ID) > 0:
		p.answer(m.ID, m.Method)
	case m.Method != "":
		p.notified(m.Method)
	case len(m.ID) > 0:
		p.deliver(string(m.ID), &transport.JSONRPCResponse{JSONRPC: mcp.JSONRPC_VERSION, Result: m.Result, Error: m.Error})
	}
	return nil
}

// notified passes a notification on by its name: what it holds is of no use to us.
func (p *pipe) notified(method string) {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil {
		notify(mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: method}})
	}
}

// answer answers a request of the server's: we are there, and offer nothing. A server
// that asks and does not read gets no answers.
func (p *pipe) answer(id json.RawMessage, method string) {
	reply := map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": id}
	if method == string(mcp.MethodPing) {
		reply["result"] = struct{}{}
	} else {
		reply["error"] = map[string]any{"code": mcp.METHOD_NOT_FOUND, "message": "this client offers no " + oneLine(method, 100)}
	}
	line, err := json.Marshal(reply)
	if err != nil {
		return
	}
	select {
	case p.back <- append(line, '\n'):
	default:
	}
}

func (p *pipe) deliver(id string, reply *transport.JSONRPCResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting, ok := p.pending[id]; ok {
		delete(p.pending, id)
		waiting <- reply // there is room: it is asked for once
	}
}

// refuse ends the wait for a reply that is not kept.
func (p *pipe) refuse(id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting, ok := p.pending[id]; ok {
		delete(p.pending, id)
		p.refused[id] = err
		close(waiting)
	}
}

// SendRequest writes a request and waits for its reply.
func (p *pipe) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	key, err := json.Marshal(request.ID)
	if err != nil {
		return nil, err
	}
	id, waiting := string(key), make(chan *transport.JSONRPCResponse, 1)
	p.mu.Lock()
	p.pending[id] = waiting
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pending, id)
		delete(p.refused, id) // who asked may be gone when it comes
		p.mu.Unlock()
	}()
	if err := p.send(ctx, line); err != nil {
		return nil, err
	}
	select {
	case reply := <-waiting:
		return p.received(ctx, id, reply)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		select {
		case reply := <-waiting: // it came just before the end
			return p.received(ctx, id, reply)
		default:
			failed(ctx, p.err)
			return nil, p.err
		}
	}
}

func (p *pipe) received(ctx context.Context, id string, reply *transport.JSONRPCResponse) (*transport.JSONRPCResponse, error) {
	if reply == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		err := p.refused[id]
		delete(p.refused, id)
		failed(ctx, err)
		return nil, err
	}
	return captured(ctx, reply), nil
}

func (p *pipe) send(ctx context.Context, line []byte) error {
	select {
	case p.out <- append(line, '\n'):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done:
		failed(ctx, p.err)
		return p.err
	}
}

// SendNotification writes a notification.
func (p *pipe) SendNotification(ctx context.Context, notification mcp.JSONRPCNotification) error {
	line, err := json.Marshal(notification)
	if err != nil {
		return err
	}
	return p.send(ctx, line)
}

// SetNotificationHandler says who is told of the server's notifications.
func (p *pipe) SetNotificationHandler(handler func(mcp.JSONRPCNotification)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify = handler
}

// GetSessionId is "": there are none.
func (p *pipe) GetSessionId() string { return "" }
