package externals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// offered is a server of mcp-go's: echo, and hang, which tells when it is cancelled.
func offered(cancelled chan<- struct{}) *server.MCPServer {
	s := server.NewMCPServer("fake", "1", server.WithToolCapabilities(true))
	yes := true
	add := func(name string, do server.ToolHandlerFunc) {
		s.AddTool(mcp.Tool{Name: name, RawInputSchema: json.RawMessage(`{"type":"object"}`), Annotations: mcp.ToolAnnotation{ReadOnlyHint: &yes}}, do)
	}
	add("echo", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultStructured(map[string]any{"got": r.Params.RawArguments}, "hi"), nil
	})
	add("hang", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		cancelled <- struct{}{}
		return nil, ctx.Err()
	})
	add("huge", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strings.Repeat("x", 1<<20)), nil
	})
	return s
}

func web(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // a stream of events would hold Close up
	return s.URL
}

// Both transports, by their own name or found out.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		handler func(*server.MCPServer) http.Handler
		change  func(*Server)
	}{
		"streamable": {func(s *server.MCPServer) http.Handler { return server.NewStreamableHTTPServer(s) }, func(s *Server) { s.URL += "/mcp" }},
		"sse":        {func(s *server.MCPServer) http.Handler { return server.NewSSEServer(s) }, func(s *Server) { s.URL += "/sse"; s.SSE = true }},
		"found out":  {func(s *server.MCPServer) http.Handler { return server.NewSSEServer(s) }, func(s *Server) { s.URL += "/sse" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cancelled := make(chan struct{}, 1)
			var seen sync.Map
			inner := offered(cancelled)
			handler := way.handler(inner)
			s := Server{Name: "fake", Headers: map[string]string{"Authorization": "Bearer tops3cr3ttoken"}}
			s.URL = web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.Store(r.Method+" "+r.Header.Get("Authorization")+" "+r.Header.Get(DepthHeader), true)
				handler.ServeHTTP(w, r)
			}))
			way.change(&s)
			c := open(t, Config{Servers: []Server{s}, MaxReply: 256 << 10})
			if r := call(t, c, "echo", `{"n":1}`); string(r.Value) != `{"got":{"n":1}}` {
				t.Errorf("echo: %s", r.Value)
			}
			seen.Range(func(key, _ any) bool {
				if !strings.HasSuffix(key.(string), " Bearer tops3cr3ttoken 1") {
					t.Errorf("a request had %q", key)
				}
				return true
			})
			_, err := c.Call(within(t, 200*time.Millisecond), "fake", "hang", nil)
			var e *sandbox.ExternalError
			if !errors.As(err, &e) || e.Fault != sandbox.ExternalLate {
				t.Errorf("hang: %v", err)
			}
			select {
			case <-cancelled:
			case <-time.After(enough):
				t.Error("the server never saw that the call was cancelled")
			}
			faulty(t, c, within(t, enough), "huge", sandbox.ExternalUnavailable, "more than 262144 bytes")
		})
	}
}

// A server of the newer protocol says that its tools have changed when it is asked to.
func TestToolsChangeOverHTTP(t *testing.T) {
	t.Parallel()
	s := offered(nil)
	c := open(t, Config{Servers: []Server{{Name: "fake", URL: web(t, server.NewStreamableHTTPServer(s)), HTTP: true}}})
	call(t, c, "echo", "{}")
	if v := c.upstreams[0].conn.client.ProtocolVersion(); !mcp.IsModernProtocol(v) {
		t.Fatalf("the protocol is %s", v)
	}
	yes := true
	for ctx := within(t, enough); ; { // until the stream is open nobody would hear of it
		s.AddTool(mcp.Tool{Name: "added", RawInputSchema: json.RawMessage(`{"type":"object"}`), Annotations: mcp.ToolAnnotation{ReadOnlyHint: &yes}},
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText(""), nil
			})
		tools, err := c.Tools(ctx, "fake")
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(tools, func(t sandbox.ExternalTool) bool { return t.Name == "added" }) {
			return
		}
		time.Sleep(10 * time.Millisecond) // until the next try
	}
}

// legacy speaks streamable HTTP of the older protocol, with sessions.
type legacy struct {
	t         *testing.T
	session   atomic.Int64
	cancelled chan string
	broken    atomic.Bool // answers with half a message
}

func (l *legacy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m fakeMessage
	_ = json.Unmarshal(body, &m)
	session := fmt.Sprint(l.session.Load())
	if m.Method != "initialize" && m.Method != "server/discover" && r.Header.Get("Mcp-Session-Id") != session {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", session)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}}`, m.ID)
	case "tools/list":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s,%s]}}`, m.ID, fakeTool("echo", true), fakeTool("hang", true))
	case "tools/call":
		switch {
		case l.broken.Swap(false):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"con`, m.ID)
		case m.Params.Name == "hang":
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"got":%s}}}`, m.ID, m.Params.Arguments)
		}
	case "notifications/cancelled":
		l.cancelled <- string(m.Params.RequestID)
		w.WriteHeader(http.StatusAccepted)
	case "server/discover":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func TestOlderHTTP(t *testing.T) {
	t.Parallel()
	l := &legacy{t: t, cancelled: make(chan string, 1)}
	c := open(t, Config{Servers: []Server{{Name: "fake", URL: web(t, l)}}})
	call(t, c, "echo", "{}")
	l.session.Add(1) // it has been started anew
	if r := call(t, c, "echo", `{"n":2}`); string(r.Value) != `{"got":{"n":2}}` {
		t.Errorf("in a new session: %s", r.Value)
	}
	l.broken.Store(true)
	_, err := c.Call(within(t, enough), "fake", "echo", nil)
	var e *sandbox.ExternalError
	if !errors.As(err, &e) || e.Fault != sandbox.ExternalUnavailable {
		t.Errorf("malformed: %v", err)
	}
	faulty(t, c, within(t, 200*time.Millisecond), "hang", sandbox.ExternalLate, "in its time")
	select {
	case <-l.cancelled:
	case <-time.After(enough):
		t.Error("the server was not told that the call is cancelled")
	}
}

// Headers of the file go to its origin alone, and no error shows them.
// Why there is no connection is told without the address.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, sse := range []bool{false, true} {
		c := open(t, Config{Servers: []Server{{Name: "fake", URL: "http://" + l.Addr().String() + "/mcp", SSE: sse}}})
		_, err = c.Call(within(t, enough), "fake", "echo", nil)
		if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "127.0.0.1") {
			t.Error(err)
		}
	}
}

func TestHeadersStay(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	elsewhere := web(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r.Header.Get("X-Api-Key")) }))
	var mode atomic.Value
	here := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch mode.Load() {
		case "redirect":
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		case "gone":
			http.Error(w, "key "+r.Header.Get("X-Api-Key")+" is unknown", http.StatusInternalServerError)
		}
	}))
	file := fmt.Sprintf(`{"mcpServers":{"fake":{"type":"http","url":"%s/mcp?token=${KEY}","headers":{"X-Api-Key":"${KEY}"}}}}`, here)
	servers, err := Parse([]byte(file), "/", func(string) (string, bool) { return "k3y-k3y-k3y", true })
	if err != nil {
		t.Fatal(err)
	}
	for m, says := range map[string]string{"redirect": "another address", "gone": "key [redacted] is unknown"} {
		mode.Store(m)
		c := open(t, Config{Servers: servers})
		_, err := c.Call(within(t, enough), "fake", "echo", nil)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "k3y") {
			t.Errorf("%s: %v", m, err)
		}
	}
	if got.Load() != nil {
		t.Errorf("another server got %q", got.Load())
	}
	down := httptest.NewServer(nil)
	down.Close()
	servers[0].URL = strings.Replace(servers[0].URL, here, down.URL, 1)
	c := open(t, Config{Servers: servers})
	if _, err := c.Call(within(t, enough), "fake", "echo", nil); err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "k3y") {
		t.Errorf("down: %v", err)
	}
}
