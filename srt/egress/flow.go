package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// flow is what runs between a client and a host. It ends where nothing has moved for the idle
// time in either direction, and in any case at its end.
type flow struct {
	proxy  *Proxy
	client net.Conn
	up     net.Conn
	end    time.Time
	tick   time.Duration // between two looks at whether it is idle
	idle   atomic.Int64  // nanoseconds
	moved  atomic.Int64  // when something last did, by the monotonic clock of begun
	begun  time.Time
	unhook func() bool
}

// flow begins one; its connection to the host ends with the proxy at the latest.
func (c *client) flow(up net.Conn) *flow {
	p := c.proxy
	f := &flow{proxy: p, client: c.Conn, up: up, end: c.end, tick: p.cfg.Idle / 4, begun: time.Now()}
	f.idle.Store(int64(p.cfg.Idle))
	_ = c.Conn.SetDeadline(time.Time{}) // each step sets its own
	f.unhook = context.AfterFunc(p.ctx, func() { up.Close() })
	p.made.Add(1)
	return f
}

// release gives the connection to the host up.
func (f *flow) release() {
	f.unhook()
	f.up.Close()
}

// hurry lets the flow end as soon as nothing moves.
func (f *flow) hurry() { f.idle.Store(int64(time.Second)) }

func (f *flow) progress() { f.moved.Store(int64(time.Since(f.begun))) }

// stale reports whether the flow is to end.
func (f *flow) stale() bool {
	still := int64(time.Since(f.begun)) - f.moved.Load()
	return still >= f.idle.Load() || !time.Now().Before(f.end)
}

// errStale ends what stands still.
var errStale = errors.New("nothing has moved for too long")

// read reads once, however long that takes while the flow is not stale. conn is one of the
// flow's, or a client over one.
func (f *flow) read(conn net.Conn, b []byte) (int, error) {
	for {
		if err := conn.SetReadDeadline(earlier(time.Now().Add(f.tick), f.end)); err != nil {
			return 0, err
		}
		n, err := conn.Read(b)
		if n > 0 {
			f.progress()
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if f.stale() {
			return 0, errStale
		}
	}
}

// write writes all of b; a reader that takes nothing for the idle time ends it.
func (f *flow) write(conn net.Conn, b []byte) (int, error) {
	if err := conn.SetWriteDeadline(earlier(time.Now().Add(f.proxy.cfg.Idle), f.end)); err != nil {
		return 0, err
	}
	n, err := conn.Write(b)
	f.progress()
	return n, err
}

const (
	// small is the buffer of a connection on which little moves: there may be many.
	small = 16 << 10
	// bulk is how much the kernel moves at a time (splice) where much does. What it holds for
	// us meanwhile counts for nobody, so it is bounded.
	bulk = 1 << 20
	// bulkWait is how long the kernel may wait for that to fill up, with two descriptors of
	// ours.
	bulkWait = 200 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { return new([small]byte) }}

// pour passes on all that src says, and its end.
func (f *flow) pour(dst, src net.Conn, count *atomic.Int64) error {
	b := buffers.Get().(*[small]byte)
	defer buffers.Put(b)
	for {
		n, err := f.read(src, b[:])
		if n > 0 {
			count.Add(int64(n))
			_, err = f.write(dst, b[:n])
		}
		if err == nil && n == small {
			err = f.pourBulk(dst, src, count)
		}
		switch {
		case errors.Is(err, io.EOF):
			closeWrite(dst)
			return nil
		case err != nil:
			return err
		}
	}
}

// pourBulk passes on as long as much comes; io.EOF is the end.
func (f *flow) pourBulk(dst, src net.Conn, count *atomic.Int64) error {
	for {
		now := time.Now()
		stall := earlier(now.Add(f.proxy.cfg.Idle), f.end)
		if err := errors.Join(src.SetReadDeadline(earlier(now.Add(bulkWait), f.end)), dst.SetWriteDeadline(stall)); err != nil {
			return err
		}
		n, err := io.Copy(dst, &io.LimitedReader{R: src, N: bulk})
		count.Add(n)
		if n > 0 {
			f.progress()
		}
		switch {
		case err == nil && n < bulk:
			return io.EOF
		case err == nil:
			continue
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(stall):
			return nil // src pauses; a dst that stalls would have taken longer
		}
		return err
	}
}

// both passes on in both directions until both have ended, or one has failed.
func (f *flow) both() {
	var down sync.WaitGroup
	down.Go(f.down)
	if err := f.pour(f.up, f.client, &f.proxy.out); err != nil {
		f.close()
	}
	down.Wait()
	f.close()
}

// down passes on what the host says.
func (f *flow) down() {
	if err := f.pour(f.client, f.up, &f.proxy.in); err != nil {
		f.close()
	}
}

func (f *flow) close() {
	f.up.Close()
	f.client.Close()
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it may have gone
	}
}

// flowReader and flowWriter are a request's way.
type flowReader struct {
	*flow
	from net.Conn
}

// Read implements io.Reader.
func (r flowReader) Read(b []byte) (int, error) { return r.read(r.from, b) }

type flowWriter struct{ *flow }

// Write implements io.Writer.
func (w flowWriter) Write(b []byte) (int, error) {
	n, err := w.write(w.up, b)
	w.proxy.out.Add(int64(n))
	return n, err
}
