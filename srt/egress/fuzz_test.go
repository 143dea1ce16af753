package egress

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
)

// hellos are real ones.
func hellos(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, cfg := range []*tls.Config{
		{ServerName: "example.org"}, {ServerName: "a.b.example.net"}, {InsecureSkipVerify: true},
		{ServerName: "evil.example", EncryptedClientHelloConfigList: hiding(t, "example.org")},
	} {
		var b bytes.Buffer
		_ = tls.Client(writeOnly{to: &b}, cfg).Handshake() // it gets no answer
		if b.Len() == 0 {
			t.Fatal("no ClientHello")
		}
		all = append(all, b.Bytes())
	}
	return all
}

// hiding is a list of one ECHConfig: what it is for goes by the name of another host.
func hiding(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	contents := []byte{1, 0, 0x20, 0, 32} // an id, X25519, a key of 32 bytes
	contents = append(contents, key.PublicKey().Bytes()...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 32, byte(len(public))) // SHA-256 and AES-128, names of up to 32 bytes
	contents = append(append(contents, public...), 0, 0)
	config := append([]byte{0xfe, 0x0d, 0, byte(len(contents))}, contents...)
	return append([]byte{0, byte(len(config))}, config...)
}

// writeOnly is a connection whose other end says nothing.
type writeOnly struct {
	net.Conn // nil: nothing else is called
	to       *bytes.Buffer
}

func (w writeOnly) Write(b []byte) (int, error) { return w.to.Write(b) }
func (writeOnly) Read([]byte) (int, error)      { return 0, io.EOF }
func (writeOnly) Close() error                  { return nil }

// What a rule becomes is a rule again, the same one, and it is about the host that it names.
func FuzzRules(f *testing.F) {
	for _, s := range []string{"example.org", "*.example.org:443", "[::1]:80", "::1", "10.0.0.1:1", "bücher.example", "127.1", "http://x", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRules([]string{text}, nil)
		if err != nil {
			if !r.Empty() {
				t.Fatal("a fault, and rules")
			}
			return
		}
		again, err := ParseRules(r.Allowed(), nil)
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q is %q, and that %q, %v", text, r, again, err)
		}
		rule := r.allow[0]
		port := max(rule.port, 1)
		name := rule.host.String()
		if rule.below {
			name = "x." + name
		}
		to, err := parseAuthority(name, port)
		if err != nil {
			if len(name) > maxName { // one label more is too long
				return
			}
			t.Fatalf("%q: %v", name, err)
		}
		if _, err := r.judge(to); err != nil {
			t.Fatal(err)
		}
	})
}

// A guest's authority is refused, or one whose canonical form is itself and which Go's own
// resolver and dialer would take for nothing else.
func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"example.org:443", "EXAMPLE.org.:80", "[::ffff:10.0.0.1]:80", "10.1:80", "a@b:80", "[fe80::1%25lo]:1", "x:080", "0x7f.1:80", "::1:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		to, err := parseAuthority(text, 0)
		if err != nil {
			return
		}
		again, err := parseAuthority(to.String(), 0)
		if err != nil || again != to {
			t.Fatalf("%q is %v, and that %v, %v", text, to, again, err)
		}
		host, _, err := net.SplitHostPort(to.String())
		if err != nil || strings.ContainsAny(host, "@/\\%?# \x00") || (to.name == "") == (net.ParseIP(host) == nil) {
			t.Fatalf("%q is %v: %v", text, to, err)
		}
	})
}

// What is passed on of a request is a head, with one Host, that of the connection.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"GET / HTTP/1.1\r\nHost : a\r\n", "GET / HTTP/1.1\r\n Host: a\r\n", "GET / HTTP/1.1\nHost: a\r\n", "GET  / HTTP/1.1\r\n",
		"GET / HTTP/1.1\r\nConnection: host, content-length\r\nX: \x00\r\n", "CONNECT a:1 HTTP/1.0\r\n", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHead(text)
		if err != nil {
			return
		}
		to := target{host{name: "example.org"}, 8080}
		_ = h.checkHost(to, true)
		length, chunked, err := h.body()
		if err != nil || h.target[0] != '/' {
			return
		}
		out := string(h.render(to, h.target))
		if !strings.HasSuffix(out, "\r\n\r\n") || strings.Count(out, "\r\n\r\n") != 1 {
			t.Fatalf("%q", out)
		}
		again, err := parseHead(strings.TrimSuffix(out, "\r\n"))
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if err := again.checkHost(to, true); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if l, c, err := again.body(); err != nil || l != length || c != chunked {
			t.Fatalf("%q: a body of %d, %v became %d, %v, %v", out, length, chunked, l, c, err)
		}
		if strings.Count(out, "\n") != strings.Count(out, "\r\n") || strings.ContainsRune(out, 0) {
			t.Fatalf("%q", out)
		}
	})
}

func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbb"))
	f.Add([]byte("\x05\x02\x02\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		if readGreeting(r) != nil {
			return
		}
		to, err := readSocksRequest(r)
		if err != nil {
			return
		}
		if again, err := parseAuthority(to.String(), 0); err != nil || again != to || to.port == 0 {
			t.Fatalf("%v, and that %v, %v", to, again, err)
		}
	})
}

// Reading a ClientHello takes no more than it says, and what was read is the beginning of
// what came.
func FuzzHello(f *testing.F) {
	for _, h := range hellos(f) {
		f.Add(h)
		f.Add(h[:len(h)/2])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		h, read, err := readHello(r)
		if !bytes.HasPrefix(text, read) || len(text)-r.Len() != len(read) || len(read) > maxHello {
			t.Fatalf("%d bytes read of %d, %d are left", len(read), len(text), r.Len())
		}
		if err != nil && h != (hello{}) {
			t.Fatalf("%+v, and %v", h, err)
		}
	})
}

func TestHello(t *testing.T) {
	for i, want := range []hello{{name: "example.org"}, {name: "a.b.example.net"}, {}, {"example.org", true}} {
		h, read, err := readHello(bytes.NewReader(hellos(t)[i]))
		if err != nil || h != want || len(read) == 0 {
			t.Errorf("%+v, %v; want %+v", h, err, want)
		}
	}
	if _, _, err := readHello(bytes.NewReader(bytes.Repeat([]byte{0x16, 3, 1, 0x40, 0}, 1<<17))); err == nil {
		t.Error("endless nonsense is a ClientHello")
	}
}
