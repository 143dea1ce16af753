// Package egress is the one way out of a sandbox with a network by allowlist: a proxy that the
// server runs, on a socket that listens inside the guest's network. It speaks plain HTTP,
// CONNECT and SOCKS5 on one port. It knows nothing of walls, processes or MCP, and all that it
// reads is a hostile guest's.
//
// What it holds: a connection goes to a host that [Rules] allow, at an address that was checked
// and not resolved again; under TLS that is not read, the name that the client asks for must be
// the one that was allowed; of plain HTTP each request is read, and says the allowed host. What
// it can't see is what a host behind TLS makes of a request: an allowed host that passes on to
// others is a way to them.
package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config of a Proxy. Every field but Rules has a useful zero value.
type Config struct {
	Rules Rules
	Log   *slog.Logger // hears of refusals, and at debug level of connections; never of contents; nil = nobody does

	// Resolve tells the addresses of a name; nil = the system's resolver does.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address that has been checked; nil = by TCP.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Own are the addresses of this machine; nil = the system tells.
	Own func() ([]netip.Addr, error)

	Connections int           // at once; more wait; 0 = 256
	Heading     time.Duration // for what a client says first; 0 = 30 s
	Resolving   time.Duration // 0 = 5 s
	Connecting  time.Duration // 0 = 15 s
	Idle        time.Duration // a connection on which nothing moves ends; 0 = 10 min
	Total       time.Duration // and any ends after this; 0 = 1 h
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Resolve == nil {
		c.Resolve = resolve
	}
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	if c.Own == nil {
		c.Own = ownAddresses
	}
	if c.Connections == 0 {
		c.Connections = 256
	}
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{
		{&c.Heading, 30 * time.Second}, {&c.Resolving, 5 * time.Second}, {&c.Connecting, 15 * time.Second},
		{&c.Idle, 10 * time.Minute}, {&c.Total, time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
	}
	return c
}

// Counts are what a proxy has done.
type Counts struct {
	Connections int64 // made to hosts
	Refused     int64 // by the rules, or for what they said
	Out, In     int64 // bytes, from the guest and to it
}

// Proxy serves one guest. Close ends it.
type Proxy struct {
	cfg    Config
	cancel context.CancelFunc
	ctx    context.Context // of all connections: it ends with the proxy
	slots  chan struct{}   // a token for each connection

	made, refused, out, in atomic.Int64

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
	work   sync.WaitGroup
}

// Serve starts to take connections from l, which is the proxy's from now on.
func Serve(l net.Listener, cfg Config) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	cfg = cfg.withDefaults()
	p := &Proxy{cfg: cfg, ctx: ctx, cancel: cancel, slots: make(chan struct{}, cfg.Connections), open: map[net.Conn]struct{}{}}
	p.work.Add(2)
	go func() {
		defer p.work.Done()
		<-ctx.Done()
		l.Close()
	}()
	go func() {
		defer p.work.Done()
		p.accept(l)
	}()
	return p
}

// Counts tells what it has done so far.
func (p *Proxy) Counts() Counts {
	return Counts{Connections: p.made.Load(), Refused: p.refused.Load(), Out: p.out.Load(), In: p.in.Load()}
}

// Close ends all connections and waits for what serves them. Fine twice.
func (p *Proxy) Close() error {
	p.cancel()
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
	if c := p.Counts(); first && c != (Counts{}) {
		p.cfg.Log.Info("network", "connections", c.Connections, "refused", c.Refused, "out", c.Out, "in", c.In)
	}
	return nil
}

// accept takes a connection only when there is a slot for it: the others wait in the guest's
// own kernel memory.
func (p *Proxy) accept(l net.Listener) {
	for {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		conn, err := l.Accept()
		if err != nil {
			<-p.slots
			if errors.Is(err, net.ErrClosed) || p.ctx.Err() != nil {
				return
			}
			p.cfg.Log.Warn("network: accept", "err", err)
			select { // out of descriptors, which others will give back
			case <-time.After(100 * time.Millisecond):
			case <-p.ctx.Done():
				return
			}
			continue
		}
		if !p.enter(conn) {
			conn.Close()
			<-p.slots
			return
		}
		go func() {
			defer p.work.Done()
			defer func() { <-p.slots }()
			defer p.leave(conn)
			p.serve(conn)
		}()
	}
}

// enter takes a connection into the books, so that Close ends it; false = Close has been called.
func (p *Proxy) enter(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[conn] = struct{}{}
	p.work.Add(1)
	return true
}

func (p *Proxy) leave(conn net.Conn) {
	p.mu.Lock()
	delete(p.open, conn)
	p.mu.Unlock()
	conn.Close()
}

// serve finds out what a client speaks by the first byte.
func (p *Proxy) serve(conn net.Conn) {
	end := time.Now().Add(p.cfg.Total)
	c := &client{Conn: conn, proxy: p, end: end}
	c.deadline(p.cfg.Heading)
	first, err := c.peek()
	if err != nil {
		return
	}
	switch {
	case first == socksVersion:
		err = c.socks()
	case 'A' <= first && first <= 'Z':
		err = c.http()
	default:
		err = malformed("This is a proxy for HTTP, CONNECT and SOCKS5.")
	}
	if err != nil {
		p.tell(conn, err)
	}
}

// maxTold bounds the lines in the log that one guest can cause.
const maxTold = 50

// tell counts a refusal, and logs the first ones.
func (p *Proxy) tell(conn net.Conn, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		return // an end of a connection
	}
	if n := p.refused.Add(1); n <= maxTold {
		p.cfg.Log.Info("network: refused", "why", r.Text, "told", n == maxTold)
	}
}

// client is a guest's connection.
type client struct {
	net.Conn
	proxy   *Proxy
	end     time.Time
	pending []byte // read, and not yet consumed
}

// Read implements io.Reader.
func (c *client) Read(b []byte) (int, error) {
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// deadline bounds what follows, also by the end of the whole connection.
func (c *client) deadline(d time.Duration) {
	_ = c.Conn.SetDeadline(earlier(time.Now().Add(d), c.end)) // or the next read tells
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// fill reads once more, behind what is pending, of which there must not be more than limit.
func (c *client) fill(limit int) error {
	if len(c.pending) >= limit {
		return errTooLong
	}
	b := make([]byte, min(4096, limit-len(c.pending)))
	n, err := c.Conn.Read(b)
	c.pending = append(c.pending, b[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

var errTooLong = errors.New("too long")

// peek is the next byte, which stays.
func (c *client) peek() (byte, error) {
	for len(c.pending) == 0 {
		if err := c.fill(4096); err != nil {
			return 0, err
		}
	}
	return c.pending[0], nil
}
