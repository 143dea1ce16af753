package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

const tlsHandshake = 0x16 // the first byte of a TLS connection

// alert is TLS's own word for a refusal: fatal, access_denied.
var alert = []byte{0x15, 3, 1, 0, 2, 2, 49}

// tunnel connects a client with t, and takes up over. Under a rule that names no port, what
// goes through is TLS or HTTP, and for t itself; see [Rules].
func (c *client) tunnel(up net.Conn, t target, g grant) error {
	defer up.Close()
	if g.raw {
		return c.raw(up, t)
	}
	c.deadline(c.proxy.cfg.Heading)
	first, err := c.peek()
	switch {
	case err != nil:
		return err
	case first == tlsHandshake:
		if err := c.checkHello(t); err != nil {
			_, _ = c.Write(alert) // the error is what counts
			return err
		}
		f := c.flow(up)
		defer f.release()
		if err := c.flush(f); err != nil {
			return err
		}
		f.both()
		return nil
	case 'A' <= first && first <= 'Z':
		return c.inside(up, t)
	}
	return refuse("%v was allowed for TLS and HTTP; another protocol needs a rule that names the port.", t)
}

// raw passes on whatever both say, in whatever order; but TLS must be for t.
func (c *client) raw(up net.Conn, t target) error {
	f := c.flow(up)
	defer f.release()
	var down sync.WaitGroup
	down.Go(f.down)
	defer down.Wait()
	defer f.close()
	b := make([]byte, 1)
	for len(c.pending) == 0 {
		n, err := f.read(c.Conn, b)
		if errors.Is(err, io.EOF) { // a client that only listens
			closeWrite(up)
			down.Wait()
			return nil
		}
		if err != nil {
			return err
		}
		c.pending = append(c.pending, b[:n]...)
	}
	if c.pending[0] == tlsHandshake {
		c.deadline(c.proxy.cfg.Heading)
		if err := c.checkHello(t); err != nil {
			return err
		}
	}
	if err := c.flush(f); err != nil {
		return err
	}
	if err := f.pour(up, c.Conn, &c.proxy.out); err != nil {
		return nil // an end of a connection
	}
	down.Wait()
	return nil
}

// flush sends on what was read to be looked at.
func (c *client) flush(f *flow) error {
	_, err := flowWriter{f}.Write(c.pending)
	c.pending = nil
	return err
}

// checkHello reads a ClientHello, which stays pending, and refuses one that asks for another
// host than t, or hides whom it asks for.
func (c *client) checkHello(t target) error {
	hello, read, err := readHello(c)
	c.pending = append(read, c.pending...)
	if err != nil {
		return err
	}
	if hello.hidden {
		return refuse("The TLS client of the connection to %v encrypts the name of the host (ECH), which can't be checked so.", t)
	}
	if t.name == "" && hello.name == "" {
		return nil
	}
	if named, err := parseHost(hello.name); err != nil || named != t.host {
		return refuse("The TLS client of the connection to %v asks for another host, or for none.", t)
	}
	return nil
}

// hello is what a ClientHello says of the host.
type hello struct {
	name   string
	hidden bool // there is another one, encrypted
}

// maxHello bounds a ClientHello, which post-quantum keys have made long.
const maxHello = 64 << 10

// readHello lets crypto/tls read a ClientHello: it knows how one may be cut into records, and
// is fuzzed by others. read is all that has been consumed.
func readHello(r io.Reader) (h hello, read []byte, err error) {
	const encryptedClientHello = 0xfe0d // RFC 9849
	seen := false
	conn := &helloConn{from: r}
	err = tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, h.name = true, info.ServerName
		for _, id := range info.Extensions {
			h.hidden = h.hidden || id == encryptedClientHello
		}
		return nil, errSeen
	}}).Handshake()
	if seen {
		return h, conn.read, nil
	}
	if conn.err != nil {
		return h, conn.read, conn.err
	}
	return h, conn.read, malformed("What looks like TLS is no ClientHello: %v.", err)
}

var errSeen = errors.New("seen")

// helloConn remembers what was read, and says nothing.
type helloConn struct {
	net.Conn // nil: nothing else is called
	from     io.Reader
	read     []byte
	err      error // of from
}

// Read implements net.Conn.
func (c *helloConn) Read(b []byte) (int, error) {
	left := maxHello - len(c.read)
	if left <= 0 {
		return 0, errTooLong
	}
	n, err := c.from.Read(b[:min(len(b), left)])
	c.read = append(c.read, b[:n]...)
	c.err = err
	return n, err
}

// Write implements net.Conn.
func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }
