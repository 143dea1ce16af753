package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A web page that its visitor has opened, in a real browser, tries all that a page
// can to run code by a server on the visitor's machine.

// page serves test/clients/hostile.html and takes its report.
type page struct {
	url    string
	report chan map[string]string

	mu     sync.Mutex
	target map[string]any
}

func newPage() *page { return &page{report: make(chan map[string]string, 1)} }

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		http.ServeFile(w, r, "../../test/clients/hostile.html")
	case "/target":
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(p.target)
	case "/report":
		var seen map[string]string
		if json.NewDecoder(r.Body).Decode(&seen) == nil {
			p.report <- seen
		}
	default:
		http.NotFound(w, r)
	}
}

// aim tells the page where to find the server, and what it could not know.
func (p *page) aim(bases []string, connection, endpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = map[string]any{"bases": bases, "connection": connection, "endpoint": endpoint}
}

// visit opens the page in Chromium, and waits for what it reports.
func (p *page) visit(t *testing.T, flags ...string) map[string]string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the browser that is installed is for amd64")
	}
	path := installed(t, "MCP_SANDBOX_TEST_CHROMIUM")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, path, append([]string{
		"--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", // our own page, as any user, on any machine
		"--no-proxy-server", "--disable-background-networking", "--disable-component-update",
		"--remote-debugging-port=0", // it would end at once
		"--user-data-dir=" + dir,
	}, append(flags, p.url)...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "LD_LIBRARY_PATH="+filepath.Dir(path))
	log := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen map[string]string
	select {
	case seen = <-p.report:
	case <-time.After(time.Minute):
	}
	cancel()
	_ = cmd.Wait()
	if seen == nil {
		t.Fatalf("the page reported nothing:\n%s", log)
	}
	return seen
}

// visited is a server that a page attacks.
type visited struct {
	*web
	dir                  string
	connection, endpoint string // somebody else's
}

// startVisited starts one without tokens, with an event stream and a connection
// that are somebody else's.
func startVisited(t *testing.T, p *page, args ...string) visited {
	t.Helper()
	v := visited{dir: t.TempDir()}
	v.web = serveWeb(t, append([]string{"--workspace", v.dir, "--log-level", "info"}, args...)...)
	port := v.url[strings.LastIndex(v.url, ":")+1:]
	_, header, _ := v.do("POST", "/mcp", helloWeb, "")
	events, err := http.Get(v.url + "/sse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { events.Body.Close() })
	line := make([]byte, 200)
	n, err := events.Body.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	_, endpoint, _ := strings.Cut(string(line[:n]), "data: ")
	v.connection, v.endpoint = header.Get("Mcp-Session-Id"), strings.TrimSpace(endpoint)
	p.aim([]string{v.url, "http://localhost:" + port}, v.connection, v.endpoint)
	return v
}

// pwned are the files that code of the page has left.
func (v visited) pwned(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(v.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "pwned") {
			names = append(names, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// untouched checks that the page has run nothing, opened nothing and learned
// nothing.
func (v visited) untouched(t *testing.T, seen map[string]string) {
	t.Helper()
	if len(seen) < 30 {
		t.Errorf("the page has tried but %d things: %v", len(seen), seen)
	}
	for name, outcome := range seen {
		if strings.HasPrefix(outcome, "status 2") || strings.HasPrefix(outcome, "endpoint") || outcome == "open" || outcome == "no answer" {
			t.Errorf("%s: %s", name, outcome)
		}
	}
	if ran := v.pwned(t); len(ran) > 0 {
		t.Errorf("the page has run code: %q", ran)
	}
	if left := v.listed(); len(left) > 0 {
		t.Errorf("sessions after the visit: %v", left)
	}
	if !strings.Contains(v.logged(), "refused: Origin") && !strings.Contains(v.logged(), "refused: Host") {
		t.Errorf("nothing was refused, so nothing was tried:\n%s", v.logged())
	}
}

func TestBrowserPageRunsNothing(t *testing.T) {
	p := newPage()
	s := httptest.NewServer(p)
	defer s.Close()
	p.url = s.URL
	v := startVisited(t, p)
	v.untouched(t, p.visit(t))
	v.stop()
}

// The same page, of an origin that the operator has allowed: it can do what an
// honest one does, and nothing else of it gets through.
func TestBrowserAllowedPage(t *testing.T) {
	p := newPage()
	s := httptest.NewServer(p)
	defer s.Close()
	p.url = s.URL
	v := startVisited(t, p, "--allow-origin", s.URL)
	seen := p.visit(t)
	for _, name := range []string{"/mcp JSON", "/mcp JSON, 2026-07-28", "/message JSON"} {
		if outcome := seen[v.url+" "+name]; outcome != "status 200" && outcome != "status 202" {
			t.Errorf("%s: %s", name, outcome)
		}
	}
	if outcome := seen[v.url+" /sse"]; !strings.HasPrefix(outcome, "endpoint /message?sessionId=") && outcome != "open" {
		t.Errorf("/sse: %s", outcome)
	}
	var ran []string
	for deadline := time.Now().Add(10 * time.Second); len(ran) < 3 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ran = v.pwned(t) // what /message has accepted may still run
	}
	if len(ran) < 3 {
		t.Errorf("what was allowed did not run: %q", ran)
	}
	for _, name := range ran {
		if !strings.Contains(name, "JSON") || strings.Contains(name, "credentials") {
			t.Errorf("this ran too: %s", name)
		}
	}
}

// A name of the page's own that leads to the server once the page is there: to the
// browser both are one origin.
func TestBrowserReboundName(t *testing.T) {
	p := newPage()
	v := startVisited(t, p)
	at, err := url.Parse(v.url)
	if err != nil {
		t.Fatal(err)
	}
	// Another address, the same port: what is not the page's goes on to the server,
	// as if the name led there now.
	l, err := net.Listen("tcp", "127.0.0.2:"+at.Port())
	if err != nil {
		t.Fatal(err)
	}
	on := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at); r.Out.Host = r.In.Host }}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/", "/target", "/report":
			p.ServeHTTP(w, r)
		default:
			on.ServeHTTP(w, r)
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	p.url = fmt.Sprintf("http://rebound.example:%s/", at.Port())
	p.aim([]string{strings.TrimSuffix(p.url, "/"), "http://RebounD.example:" + at.Port()}, v.connection, v.endpoint)
	v.untouched(t, p.visit(t, "--host-resolver-rules=MAP rebound.example 127.0.0.2"))
	v.stop()
}
