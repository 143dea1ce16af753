package externals

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DepthHeader tells a server over HTTP how many of our kind a call has come through.
const DepthHeader = "Mcp-Sandbox-Depth"

// guarded is the HTTP of one server. The file's headers go to its origin alone, and
// bodies are capped as they are read.
type guarded struct {
	base    *http.Transport
	origin  *url.URL
	headers map[string]string
	depth   int
	max     int64 // bytes of a body, or of an event
}

func newGuarded(s Server, depth int, maxReply int64) (*guarded, error) {
	origin, err := url.Parse(s.URL)
	if err != nil {
		return nil, errors.New("its url can't be read") // which may hold a secret
	}
	return &guarded{
		base: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 15 * time.Second,
			IdleConnTimeout:     90 * time.Second,
			MaxIdleConnsPerHost: 32, // as many as call at once in a few cells
			ForceAttemptHTTP2:   true,
		},
		origin: origin, headers: s.Headers, depth: depth, max: maxReply,
	}, nil
}

// RoundTrip sends a request, which after a redirect may be for anywhere.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != g.origin.Scheme || r.URL.Host != g.origin.Host {
		err := errors.New("it refers to another address, which would get its headers: give that address as its url")
		failed(r.Context(), err)
		return nil, err
	}
	r = r.Clone(r.Context())
	for name, value := range g.headers {
		r.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			r.Host = value
		}
	}
	r.Header.Set(DepthHeader, strconv.Itoa(g.depth+1))
	if r.Method == http.MethodDelete { // the end of a session, for which nobody waits long
		ctx, cancel := context.WithTimeout(r.Context(), leave)
		defer cancel() // its answer holds nothing
		r = r.WithContext(ctx)
	}
	answer, err := g.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	answer.Body = &cappedBody{ReadCloser: answer.Body, ctx: r.Context(), max: g.max, events: kind == "text/event-stream"}
	return answer, nil
}

// cappedBody fails beyond max bytes: of the whole, or, of a stream of events, since the
// last blank line.
type cappedBody struct {
	io.ReadCloser
	ctx    context.Context // of the request
	max    int64
	events bool

	n     int64
	blank bool // nothing since the last line break
}

func (b *cappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.events {
		b.n += int64(n)
	}
	for i := 0; b.events && i < n; i++ {
		b.n++
		switch p[i] {
		case '\n':
			if b.blank {
				b.n = 0
			}
			b.blank = true
		case '\r':
		default:
			b.blank = false
		}
	}
	if b.n > b.max {
		err = &tooLarge{size: b.n, max: b.max}
		failed(b.ctx, err)
		return 0, err
	}
	return n, err
}
