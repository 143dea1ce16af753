package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A web page sends what it can without asking first, and what it can with.
func TestWebPagesAreKeptOut(t *testing.T) {
	s := startWeb(t, "--allow-origin", "https://Good.example", "--allow-origin", "http://localhost:3000")
	c, e := s.legacy(), s.listen()
	type try struct{ method, path, body string }
	tries := []try{
		{"POST", "/mcp", helloWeb},
		{"POST", "/mcp", call(1, "print PWNED")},
		{"GET", "/sse", ""},
		{"POST", e.endpoint, call(1, "print PWNED")},
		{"GET", "/sessions", ""},
		{"DELETE", "/sessions/x", ""},
		{"POST", "/sessions", ""},
		{"GET", "/sessions/x/files/f", ""},
		{"PUT", "/sessions/x/files/f", "PWNED"},
		{"GET", "/healthz", ""},
		{"GET", "/nowhere", ""},
	}
	for _, h := range []header{
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Origin", ""},
		{"Origin", "https://good.example.evil.example"},
		{"Origin", "http://good.example"},
		{"Origin", "https://good.example:8443"},
		{"Origin", "https://good.example/"},
		{"Origin", s.url},
		{"Origin", "https://good.example", "Origin", "http://evil.example"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Host", "evil.example"},
		{"Host", "evil.example:80"},
		{"Host", "localhost.evil.example"},
		{"Host", "127.0.0.1.evil.example"},
		{"Host", "192.0.2.1"},
		{"Host", "good.example", "Origin", "https://good.example"},
	} {
		for _, x := range tries {
			a := s.do(x.method, x.path, append(append(c.headers(both), "Content-Type", "application/json"), h...), x.body)
			if a.status != http.StatusForbidden || a.header.Get("Access-Control-Allow-Origin") != "" || strings.Contains(a.body, "PWNED") {
				t.Errorf("%q: %s %s: %+v", h, x.method, x.path, a)
			}
			if strings.Contains(h[0], "Host") {
				continue
			}
			preflight := s.do("OPTIONS", x.path, append(header{"Access-Control-Request-Method", x.method, "Access-Control-Request-Headers", "content-type"}, h...), "")
			if preflight.status != http.StatusForbidden || preflight.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%q: preflight of %s %s: %+v", h, x.method, x.path, preflight)
			}
		}
	}
	// What needs no preflight is not JSON.
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		for _, path := range []string{"/mcp", e.endpoint} {
			if a := s.do("POST", path, header{"Content-Type", kind, "Mcp-Session-Id", c.id}, call(1, "print PWNED")); a.status != http.StatusUnsupportedMediaType {
				t.Errorf("%s: %+v", kind, a)
			}
		}
	}
	if r := c.run("print 1"); r.State != "new" {
		t.Errorf("somebody was there before: %+v", r)
	}

	for _, origin := range []string{"https://good.example", "http://localhost:3000"} {
		p := s.do("OPTIONS", "/mcp", header{"Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,mcp-session-id"}, "")
		if p.status != http.StatusNoContent || p.header.Get("Access-Control-Allow-Origin") != origin || !strings.Contains(p.header.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("preflight of %s: %+v", origin, p)
		}
		if a := s.do("POST", "/mcp", c.headers(append(both[:4:4], "Origin", origin, "Sec-Fetch-Site", "cross-site")), call(1, "print 2")); !read(t, a).Success || a.header.Get("Access-Control-Allow-Origin") != origin || a.header.Get("Vary") != "Origin" {
			t.Errorf("%s: %+v", origin, a)
		}
	}
	for _, host := range []string{"localhost", "localhost:1", "LOCALHOST", "127.0.0.1", "127.0.0.1:9", "[::1]:80", "127.0.0.2"} {
		if a := s.do("GET", "/healthz", header{"Host", host}, ""); a.status != http.StatusOK {
			t.Errorf("Host %s: %+v", host, a)
		}
	}
}

func TestAllowHost(t *testing.T) {
	s := startWeb(t, "--allow-host", "MCP.example", "--allow-host", "other.example:8443")
	for host, status := range map[string]int{
		"mcp.example": 200, "mcp.example:443": 200, "Mcp.Example.": 200, "localhost": 200, "other.example:8443": 200,
		"other.example": 403, "other.example:1": 403, "x.mcp.example": 403, "example": 403,
	} {
		if a := s.do("GET", "/healthz", header{"Host", host}, ""); a.status != status {
			t.Errorf("Host %s: %+v", host, a)
		}
	}
}

// Beyond the loopback it is the token that counts, and names are many.
func TestHostBeyondLoopback(t *testing.T) {
	at := func(addr, host string, hosts ...string) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		return (&guard{hosts: hosts}).hostAllowed(r)
	}
	for _, test := range []struct {
		addr, host string
		hosts      []string
		want       bool
	}{
		{"192.0.2.1:80", "mcp.example", nil, true},
		{"192.0.2.1:80", "198.51.100.7:8080", nil, true}, // a published port
		{"192.0.2.1:80", "192.0.2.1", []string{"mcp.example"}, true},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1", []string{"mcp.example"}, true},
		{"192.0.2.1:80", "mcp.example", []string{"mcp.example"}, true},
		{"192.0.2.1:80", "evil.example", []string{"mcp.example"}, false},
		{"192.0.2.1:80", "localhost", []string{"mcp.example"}, false},
		{"127.0.0.1:80", "mcp.example", nil, false},
		{"[::1]:80", "[::1]", nil, true},
		{"[::1]:80", "", nil, false},
	} {
		if got := at(test.addr, test.host, test.hosts...); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bearer(secret string) header { return header{"Authorization", "Bearer " + secret} }

func TestTokens(t *testing.T) {
	const anns, bobs = "the-token-of-ann-0123", "the-token-of-bob-4567=="
	s := startWeb(t, "--auth-token-file", tokenFile(t, "# two\n\nann:"+anns+" sessions=2\n bob:"+bobs+"\n"))
	for name, h := range map[string]header{
		"none":            nil,
		"empty":           {"Authorization", ""},
		"another scheme":  {"Authorization", "Basic " + anns},
		"no scheme":       {"Authorization", anns},
		"a wrong one":     bearer("the-token-of-ann-0124"),
		"a beginning":     bearer(anns[:10]),
		"more":            bearer(anns + "x"),
		"a name":          bearer("ann"),
		"name and token":  bearer("ann:" + anns),
		"two":             append(bearer(anns), bearer(bobs)...),
		"an empty bearer": bearer(""),
	} {
		for path, method := range map[string]string{"/mcp": "POST", "/sse": "GET", "/message?sessionId=x": "POST", "/sessions": "GET", "/sessions/x": "DELETE", "/sessions/x/files/f": "PUT", "/sessions/x/files/": "GET", "/nowhere": "GET"} {
			a := s.do(method, path, append(both[:4:4], h...), "")
			if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), `Bearer realm="mcp-sandbox"`) {
				t.Errorf("%s: %s: %+v", name, path, a)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := s.do("GET", path, nil, ""); a.status != http.StatusOK {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if strings.Contains(s.stderr.String(), "the-token") {
		t.Errorf("a token was logged")
	}

	ann, bob := s.legacy(bearer(anns)...), s.legacy("Authorization", "bearer  "+bobs)
	mine := ann.run("print 1")
	theirs := bob.run("print 2")
	if !mine.Success || !theirs.Success || mine.SessionID == theirs.SessionID {
		t.Errorf("%+v, %+v", mine, theirs)
	}
	// Every way to another's session ends in the same words.
	unknown := s.modern(map[string]any{"code": "print 1", "session_id": "11111111-1111-4111-8111-111111111111"}, bearer(bobs)...)
	foreign := s.modern(map[string]any{"code": "print 1", "session_id": mine.SessionID}, bearer(bobs)...)
	if foreign.Success || foreign.Error != unknown.Error || !strings.Contains(foreign.Error, "unknown session") {
		t.Errorf("bob in ann's session: %+v; in none: %+v", foreign, unknown)
	}
	stolen := &legacy{s, ann.id, bearer(bobs)}
	if a := s.do("POST", "/mcp", stolen.headers(both), call(1, "print 3")); a.status != 404 {
		t.Errorf("ann's connection with bob's token: %+v", a)
	}
	if a := s.do("DELETE", "/mcp", stolen.headers(nil), ""); a.status != 404 {
		t.Errorf("its end: %+v", a)
	}
	events := s.listen(bearer(anns)...)
	if a := s.do("POST", events.endpoint, append(asJSON[:2:2], bearer(bobs)...), call(1, "print 3")); a.status != 404 {
		t.Errorf("ann's event stream with bob's token: %+v", a)
	}

	list := func(secret string) (ids []string) {
		var got struct{ Sessions []map[string]any }
		if err := json.Unmarshal([]byte(s.do("GET", "/sessions", bearer(secret), "").body), &got); err != nil {
			t.Fatal(err)
		}
		for _, x := range got.Sessions {
			ids = append(ids, x["session_id"].(string))
		}
		return ids
	}
	if got := list(anns); len(got) != 1 || got[0] != mine.SessionID {
		t.Errorf("ann's sessions: %v", got)
	}
	for _, id := range []string{mine.SessionID, "x", "new", "11111111-1111-4111-8111-111111111111"} {
		if a := s.do("DELETE", "/sessions/"+id, bearer(bobs), ""); a.status != 404 || !strings.Contains(a.body, `"unknown session"`) {
			t.Errorf("bob closes %s: %+v", id, a)
		}
	}
	if r := ann.run("print 4"); r.State != "kept" {
		t.Errorf("ann's session: %+v", r)
	}
	if a := s.do("DELETE", "/sessions/"+theirs.SessionID, bearer(bobs), ""); a.status != 204 {
		t.Errorf("bob closes his own: %+v", a)
	}
	if got := list(bobs); len(got) != 0 {
		t.Errorf("bob's sessions: %v", got)
	}

	// The quota in the file holds.
	for range 4 {
		s.modern(map[string]any{"code": "print 5"}, bearer(anns)...)
	}
	if got := list(anns); len(got) != 2 {
		t.Errorf("ann, who may have two sessions, has %v", got)
	}
}

func TestTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	s := startWeb(t, "--tls-cert", cert, "--tls-key", key)
	plain := *s
	s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatal(s.url)
	}
	c := s.legacy()
	if r := c.run("print 1"); !r.Success {
		t.Errorf("%+v", r)
	}
	stop, rest := c.begin(2, "hang")
	stop()
	<-rest
	s.stderr.await(t, "fake: interrupted") // HTTP/2 tells of a client's going in its own way
	s.client.CloseIdleConnections()

	plain.url = strings.Replace(s.url, "https", "http", 1)
	plain.client = http.DefaultClient
	if a := plain.do("GET", "/healthz", nil, ""); a.status != 400 {
		t.Errorf("without TLS: %+v", a)
	}
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}}}
	if res, err := old.Get(s.url + "/healthz"); err == nil {
		res.Body.Close()
		t.Error("TLS 1.1 was accepted")
	}
}

// certificate is one of our own for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return cert, key, pool
}

func FuzzTokenLine(f *testing.F) {
	for _, l := range []string{"ann:secret sessions=1", "ann:se cret", ":x", "a:b running=", fmt.Sprint("a:", strings.Repeat("x", 100))} {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, l string) {
		if strings.TrimSpace(l) == "" {
			return
		}
		got, err := parseToken(strings.TrimSpace(l))
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(strings.TrimSpace(l), ":")
		secret := strings.Fields(rest)[0]
		if who := (tokens{got}).principal(secret); who != got.name || got.quota.Sessions < 0 || got.quota.Running < 0 {
			t.Errorf("%q: %q", l, who)
		}
	})
}
