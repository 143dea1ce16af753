package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// lingering is how long a client that was refused may go on sending what nobody reads: closed
// at once, its connection would be reset, and the answer lost.
const lingering = 2 * time.Second

// http serves one request: a plain one, or CONNECT.
func (c *client) http() error {
	h, err := c.readHead()
	var refused *Refusal
	switch {
	case errors.As(err, &refused):
		return c.answer(err)
	case err != nil:
		return err
	case h.method == http.MethodConnect:
		return c.connectMethod(h)
	}
	return c.plain(h)
}

// answer tells a client why it is refused, and gives that back.
func (c *client) answer(err error) error {
	r := refusalOf(err)
	c.deadline(lingering)
	if _, e := c.Write(r.response()); e == nil {
		closeWrite(c.Conn)
		_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, 1<<20)) // what it is does not matter
	}
	return r
}

// connectMethod opens a tunnel.
func (c *client) connectMethod(h head) error {
	t, err := parseAuthority(h.target, 0)
	if err == nil {
		err = h.checkHost(t, false)
	}
	if err == nil {
		if n, chunked, e := h.body(); e != nil || n > 0 || chunked {
			err = malformed("CONNECT has no body.")
		}
	}
	if err != nil {
		return c.answer(err)
	}
	up, g, err := c.proxy.connect(c.proxy.ctx, t)
	if err != nil {
		return c.answer(err)
	}
	c.deadline(c.proxy.cfg.Heading)
	if _, err := c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		up.Close()
		return err
	}
	return c.tunnel(up, t, g)
}

// plain passes a request for http:// on.
func (c *client) plain(h head) error {
	const scheme = "http://"
	if len(h.target) < len(scheme) || !strings.EqualFold(h.target[:len(scheme)], scheme) {
		return c.answer(malformed("This is a proxy: it takes CONNECT, and requests for http:// with a whole URL."))
	}
	if h.minor == 0 {
		return c.answer(&Refusal{http.StatusHTTPVersionNotSupported, "This proxy passes on requests of HTTP/1.1."})
	}
	authority, path := h.target[len(scheme):], "/"
	if i := strings.IndexAny(authority, "/?#\\"); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	switch {
	case path[0] == '?':
		path = "/" + path
	case path[0] != '/' || strings.ContainsRune(path, '#'):
		return c.answer(malformed("The request's URL is malformed."))
	}
	t, err := parseAuthority(authority, 80)
	if err == nil {
		err = h.checkHost(t, true)
	}
	if err == nil {
		_, _, err = h.body()
	}
	if err != nil {
		return c.answer(err)
	}
	up, _, err := c.proxy.connect(c.proxy.ctx, t)
	if err != nil {
		return c.answer(err)
	}
	return c.forward(up, h, t, path)
}

// inside passes a plain request on that came through a tunnel to t. What is wrong with it is
// answered as by a proxy.
func (c *client) inside(up net.Conn, t target) error {
	h, err := c.readHead()
	var refused *Refusal
	if err != nil && !errors.As(err, &refused) {
		up.Close()
		return err
	}
	if err == nil && (h.target[0] != '/' || h.minor == 0) {
		err = malformed("Through this tunnel go TLS, and requests of HTTP/1.1 for a path.")
	}
	if err == nil {
		err = h.checkHost(t, true)
	}
	if err == nil {
		_, _, err = h.body()
	}
	if err != nil {
		up.Close()
		return c.answer(err)
	}
	return c.forward(up, h, t, h.target)
}

// forward sends one request to where it was checked to be for, and gives back whatever comes
// from there until its end.
func (c *client) forward(up net.Conn, h head, t target, path string) error {
	f := c.flow(up)
	defer f.release()
	f.tick = time.Second
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = f.pour(c.Conn, up, &c.proxy.in) // an end is an end
		f.hurry()
		up.Close()
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingering))
	}()
	err := f.send(c, h, t, path)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		// The next thing that a client may say is nothing. One that takes an answer to be
		// over, and asks again, must not wait for an answer that never comes.
		_, err = f.read(c, make([]byte, 1))
	}
	if !errors.Is(err, io.EOF) { // it only says that nothing more will come
		f.hurry()
	}
	<-answered
	return nil
}

// send writes a request with its body.
func (f *flow) send(c *client, h head, t target, path string) error {
	length, chunked, err := h.body()
	if err != nil {
		return err
	}
	up := flowWriter{f}
	if _, err := up.Write(h.render(t, path)); err != nil {
		return err
	}
	from := flowReader{f, c}
	if !chunked {
		_, err := io.CopyN(up, from, length)
		return err
	}
	return copyChunked(up, from)
}

// copyChunked passes a chunked body on, to its very end: what was left of it behind the last
// chunk would be taken for a request that follows. Fields that stand there are dropped.
func copyChunked(dst io.Writer, src io.Reader) error {
	from, w := bufio.NewReader(src), httputil.NewChunkedWriter(dst)
	if _, err := io.Copy(w, httputil.NewChunkedReader(from)); err != nil {
		return err
	}
	for read, blank := 0, false; !blank; {
		line, err := from.ReadSlice('\n') // a longer one than the buffer is an error
		if err != nil {
			return err
		}
		if read += len(line); read > maxHead {
			return errTooLong
		}
		blank = len(bytes.TrimRight(line, "\r\n")) == 0
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(dst, "\r\n")
	return err
}
