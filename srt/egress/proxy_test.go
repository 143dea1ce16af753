package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is a safety limit alone: no test is decided by it.
const patience = 30 * time.Second

// world is a proxy and the hosts that it finds: names lead to addresses, and these to
// listeners on this machine's loopback.
type world struct {
	*Proxy
	at    string              // where the proxy listens
	names map[string][]string // not changed once the proxy serves
	hosts map[string]string   // likewise: address and port -> listener
	asked atomic.Int64        // times that a name was resolved
	log   *bytes.Buffer
}

func newWorld(t testing.TB, cfg Config, names map[string][]string, hosts map[string]string) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{at: l.Addr().String(), names: names, hosts: hosts, log: &bytes.Buffer{}}
	cfg.Log = slog.New(slog.NewTextHandler(w.log, nil))
	cfg.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		w.asked.Add(1)
		var all []netip.Addr
		for _, a := range w.names[name] {
			all = append(all, netip.MustParseAddr(a))
		}
		if all == nil {
			return nil, errors.New("no such host")
		}
		return all, nil
	}
	cfg.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		at := w.hosts[to.String()]
		if at == "" {
			return nil, fmt.Errorf("nothing at %v", to)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", at)
	}
	w.Proxy = Serve(l, cfg)
	t.Cleanup(func() { w.Close() })
	return w
}

// echo answers every connection with what it says.
func echo(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func (w *world) client(t testing.TB) *http.Client {
	t.Helper()
	proxy := &url.URL{Scheme: "http", Host: w.at}
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// say sends bytes to the proxy and returns the answer up to its end.
func (w *world) say(t testing.TB, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("no end after %q", answer)
	}
	return string(answer)
}

// server is a host that tells what it was asked.
func server(t testing.TB) (plain, secure *httptest.Server) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rw.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %d", r.Method, r.Host, r.RequestURI, len(body)))
		for name := range r.Header {
			rw.Header().Add("X-Fields", name)
		}
		rw.Write(body)
	})
	plain, secure = httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	return plain, secure
}

func TestProxySocks(t *testing.T) {
	at := echo(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org:7", "93.184.216.34:7", "[2606:4700::1]:7"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:7": at, "[2606:4700::1]:7": at})
	v6 := netip.MustParseAddr("2606:4700::1").As16()
	for _, tt := range []struct {
		name, request string
		reply         byte
	}{
		{"name", "\x05\x01\x00\x03\x0bexample.org\x00\x07", 0},
		{"name with a dot", "\x05\x01\x00\x03\x0cExample.org.\x00\x07", 0},
		{"IPv4", "\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x07", 0},
		{"IPv6", "\x05\x01\x00\x04" + string(v6[:]) + "\x00\x07", 0},
		{"another port", "\x05\x01\x00\x03\x0bexample.org\x00\x08", 2},
		{"another name", "\x05\x01\x00\x03\x0bexample.com\x00\x07", 2},
		{"another address", "\x05\x01\x00\x01\x5d\xb8\xd8\x23\x00\x07", 2},
		{"no name", "\x05\x01\x00\x03\x00\x00\x07", 2},
		{"a NUL", "\x05\x01\x00\x03\x0bexample\x00org\x00\x07", 2},
		{"bind", "\x05\x02\x00\x03\x0bexample.org\x00\x07", 7},
		{"UDP", "\x05\x03\x00\x03\x0bexample.org\x00\x07", 7},
		{"kind of address", "\x05\x01\x00\x02\x0bexample.org\x00\x07", 8},
	} {
		c, err := net.Dial("tcp", w.at)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, "\x05\x02\x02\x00"+tt.request+"hello") // all at once
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer[:3]) != "\x05\x00\x05" || answer[3] != tt.reply {
			t.Errorf("%s: %q, %v", tt.name, answer, err)
		}
		if tt.reply == 0 {
			c.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
				t.Errorf("%s: %q, %v", tt.name, got, err)
			}
		}
		c.Close()
	}
	if got := w.say(t, "\x05\x01\x02"); got != "\x05\xff" {
		t.Errorf("with a password alone: %q", got)
	}
	if got := w.say(t, "\x04\x01\x00\x07\x5d\xb8\xd8\x22\x00"); got != "" {
		t.Errorf("SOCKS4: %q", got)
	}
}

// A name is resolved once, and what was checked is what is connected to.
func TestProxyResolvesOnce(t *testing.T) {
	plain, _ := server(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:80": plain.Listener.Addr().String()})
	w.say(t, "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
	w.say(t, "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
	if n := w.asked.Load(); n != 1 {
		t.Errorf("names were resolved %d times for one allowed request and one that was not", n)
	}
}

// What is refused says why, in the status line too, and names the flag.
func TestProxyRefusal(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org", "inner.example.org", "gone.example.org"}, "denied.example.org")},
		map[string][]string{"inner.example.org": {"93.184.216.34", "10.0.0.1"}, "example.org": {"93.184.216.34"}}, nil)
	for _, tt := range []struct{ host, want string }{
		{"evil.example:443", "403 evil.example:443 is not allowed: this sandbox reaches example.org, inner.example.org, gone.example.org alone. The operator of this server allows more by --allow-domain."},
		{"denied.example.org:443", "403 denied.example.org:443 is denied by the operator"},
		{"inner.example.org:443", "403 inner.example.org:443 leads to an address that is not public"},
		{"gone.example.org:443", "502 gone.example.org:443 is allowed, but its name can't be resolved."},
		{"example.org:443", "502 example.org:443 is allowed, but can't be reached: it does not take the connection."},
	} {
		answer := w.say(t, "CONNECT "+tt.host+" HTTP/1.1\r\nHost: "+tt.host+"\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		if err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		body, _ := io.ReadAll(res.Body)
		if !strings.HasPrefix(res.Status, tt.want) || !strings.Contains(res.Status, strings.TrimSpace(string(body))) || res.Header.Get("Proxy-Status") == "" {
			t.Errorf("%s: %q", tt.host, answer)
		}
	}
	w.Close()
	if log := w.log.String(); !strings.Contains(log, "denied.example.org") || !strings.Contains(log, "refused=5") {
		t.Errorf("%s", log)
	}
}

// A ClientHello may come in as many pieces as it likes.
func TestTunnelHello(t *testing.T) {
	_, secure := server(t)
	at := secure.Listener.Addr().String()
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org", "*.example.net:8443", "93.184.216.34"})},
		map[string][]string{"example.org": {"93.184.216.34"}, "a.example.net": {"93.184.216.34"}},
		map[string]string{"93.184.216.34:443": at, "93.184.216.34:8443": at})
	for _, tt := range []struct {
		authority, name string
		piece           int
		ok              bool
	}{
		{"example.org:443", "example.org", 0, true},
		{"example.org:443", "EXAMPLE.ORG", 1, true},
		{"example.org:8443", "example.org", 100, true},
		{"example.org:443", "evil.example", 0, false},
		{"example.org:443", "", 0, false},
		{"example.org:443", "a.example.net", 1, false},
		{"a.example.net:8443", "a.example.net", 1, true},
		{"a.example.net:8443", "example.org", 0, false},
		{"93.184.216.34:443", "", 0, true},
		{"93.184.216.34:443", "example.org", 0, false},
	} {
		c, err := net.Dial("tcp", w.at)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", tt.authority)
		if line, err := bufio.NewReaderSize(io.LimitReader(c, 39), 39).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Fatalf("%q, %v", line, err)
		}
		over := tls.Client(&pieces{c, tt.piece}, &tls.Config{ServerName: tt.name, InsecureSkipVerify: true})
		if err := over.Handshake(); (err == nil) != tt.ok {
			t.Errorf("%s as %q: %v", tt.authority, tt.name, err)
		}
		c.Close()
	}
}

// pieces writes in small ones.
type pieces struct {
	net.Conn
	size int // 0 = as they come
}

func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		size := len(b)
		if p.size > 0 {
			size = min(size, p.size)
		}
		_, err = p.Conn.Write(b[:size])
		n, b = n+size, b[size:]
	}
	return n, err
}

// Where the server speaks first, and neither side speaks TLS or HTTP.
func TestTunnelRaw(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "220 ready\r\n")
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org:25", "*.example.org"})},
		map[string][]string{"example.org": {"93.184.216.34"}, "a.example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:25": l.Addr().String()})
	const ok = "HTTP/1.1 200 Connection established\r\n\r\n"
	c, err := net.Dial("tcp", w.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, "CONNECT example.org:25 HTTP/1.0\r\n\r\n")
	b := make([]byte, len(ok)+11)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != ok+"220 ready\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	io.WriteString(c, "\x00\xffEHLO")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "\x00\xffEHLO" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, first := range []string{"\x00\xff", "ehlo\r\n", "SSH-2.0\r\n\r\n", "EHLO x HTTP/1.1\r\nHost: evil.example\r\n\r\n"} {
		if got := w.say(t, "CONNECT a.example.org:25 HTTP/1.1\r\n\r\n"+first); strings.Contains(got, "220") {
			t.Errorf("%q under a rule without a port: %q", first, got)
		}
	}
}

// A connection on which nothing moves ends, and so does one that has gone on too long.
func TestProxyTimes(t *testing.T) {
	at := echo(t)
	for _, cfg := range []Config{{Idle: 100 * time.Millisecond}, {Total: 200 * time.Millisecond}, {Heading: 100 * time.Millisecond}} {
		cfg.Rules = rules(t, []string{"example.org:7"})
		w := newWorld(t, cfg, map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:7": at})
		request := "CONNECT example.org:7 HTTP/1.1\r\n\r\nhello"
		if cfg.Heading > 0 {
			request = "CONNECT example"
		}
		w.say(t, request) // fails if there is no end
	}
}

// Close ends what is under way, whatever it waits for.
func TestProxyClose(t *testing.T) {
	at := echo(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org:7", "example.org"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:7": at, "93.184.216.34:443": at, "93.184.216.34:80": at})
	var conns []net.Conn
	for _, text := range []string{"", "CONN", "\x05", "CONNECT example.org:7 HTTP/1.1\r\n\r\n", "CONNECT example.org:443 HTTP/1.1\r\n\r\n", "CONNECT example.org:443 HTTP/1.1\r\n\r\n\x16\x03",
		"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 9\r\n\r\n1"} {
		c, err := net.Dial("tcp", w.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, text)
		conns = append(conns, c)
	}
	for w.Counts().Connections < 2 { // the raw one and the POST are flows
		time.Sleep(time.Millisecond)
	}
	w.Close()
	w.Close()
	for i, c := range conns {
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connection %d is open", i)
		}
	}
	if _, err := net.Dial("tcp", w.at); err == nil {
		t.Error("it still listens")
	}
}

// As many as there may be at once, and as many again, which wait.
func TestProxyMany(t *testing.T) {
	at := echo(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org:7"}), Connections: 100},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:7": at})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			c, err := net.Dial("tcp", w.at)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			text := strings.Repeat(fmt.Sprintf("%08d", i), 8<<10)
			go func() {
				io.WriteString(c, "CONNECT example.org:7 HTTP/1.1\r\n\r\n"+text)
				c.(*net.TCPConn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasSuffix(string(got), text) {
				t.Errorf("%d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	if got := w.Counts(); got.Connections != 200 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}
