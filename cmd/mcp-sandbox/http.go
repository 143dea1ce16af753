package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

const (
	headerTime = 10 * time.Second // for a request's header, and a TLS handshake
	idleTime   = 2 * time.Minute  // between the requests of a connection
	maxHeader  = 64 << 10         // bytes of a request's header

	// maxSockets is how many connections may be open at once; each idle one costs
	// some 20 KB. Further ones are told to come back, and so are those of one address
	// beyond what it leaves to others.
	maxSockets = 4096
)

// httpConfig says what an httpServer serves.
type httpConfig struct {
	listener net.Listener      // required; closed by serve
	server   *server.MCPServer // required
	sessions *sandbox.Sessions // required
	tokens   tokens            // nil = none are asked for
	self     string            // the principal where none are
	hosts    []string          // that Host may name besides the address
	origins  []string          // of web pages that may use the server
	callers  bool              // each brings a DataRobot token
	sse      bool              // the transport of 2024-11-05 besides
	idle     time.Duration     // after which a connection is forgotten
	body     time.Duration     // for a whole body to come; 0 = a minute
	drain    time.Duration     // how long calls under way may go on at the end
	tls      *tls.Config       // nil = none
	metrics  http.Handler      // of /metrics; nil = there is no such route
	log      *slog.Logger      // required
}

// httpServer serves MCP over HTTP, all revisions on one endpoint.
type httpServer struct {
	cfg      httpConfig
	http     *http.Server
	mcp      *streamable
	answers  *budget       // memory for those that are not read yet
	draining chan struct{} // closed when no new call is to come

	work   sync.WaitGroup // the sweeper of connections
	cancel context.CancelFunc
}

func newHTTPServer(cfg httpConfig) *httpServer {
	ctx, cancel := context.WithCancel(context.Background())
	s := &httpServer{cfg: cfg, answers: newBudget(maxAnswers), draining: make(chan struct{}), cancel: cancel}
	bodies := newBudget(maxBodies)
	s.mcp = &streamable{
		server: cfg.server, sessions: cfg.sessions, bodies: bodies, answers: s.answers, log: cfg.log,
		connections: &connections{server: cfg.server, gone: cfg.sessions.Disconnect, log: cfg.log, byID: map[string]*connection{}},
	}
	s.work.Go(func() { s.mcp.connections.sweep(ctx, cfg.idle) })
	s.http = &http.Server{
		Handler: &guard{
			next: s.routes(bodies), tokens: cfg.tokens, self: cfg.self, hosts: cfg.hosts, origins: cfg.origins, callers: cfg.callers,
			body: cmp.Or(cfg.body, bodyTime), log: cfg.log,
		},
		TLSConfig:         cfg.tls,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * passes the guard too
		ErrorLog:                     slog.NewLogLogger(cfg.log.Handler(), slog.LevelDebug),
	}
	return s
}

// routes are all there is; the guard stands before them.
func (s *httpServer) routes(bodies *budget) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/mcp", "/mcp/{$}"} { // people write both
		mux.HandleFunc("POST "+path, s.mcp.post)
		mux.HandleFunc("DELETE "+path, s.mcp.end)
		mux.HandleFunc(path, s.mcp.notAllowed)
	}
	if s.cfg.sse {
		t := &sse{
			server: s.cfg.server, sessions: s.cfg.sessions, bodies: bodies, answers: s.answers, draining: s.draining, log: s.cfg.log,
			byID: map[string]*sseClient{},
		}
		mux.HandleFunc("GET /sse", t.listen)
		mux.HandleFunc("POST /message", t.message)
	}
	mux.HandleFunc("GET /sessions", s.listSessions)
	mux.HandleFunc("POST /sessions", s.beginSession)
	mux.HandleFunc("DELETE /sessions/{id}", s.closeSession)
	mux.HandleFunc("GET /sessions/{id}/files/{path...}", s.getFile)
	mux.HandleFunc("PUT /sessions/{id}/files/{path...}", s.putFile)
	if s.cfg.metrics != nil {
		mux.Handle("GET /metrics", s.cfg.metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// ready tells who sends requests whether new ones are wanted.
func (s *httpServer) ready(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.draining:
		retry(w, http.StatusServiceUnavailable, "the server is ending")
	default:
		_, _ = io.WriteString(w, "ready\n")
	}
}

// listSessions tells a principal of their own sessions.
func (s *httpServer) listSessions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"sessions": s.cfg.sessions.List(principalOf(r.Context()))})
}

// closeSession ends one of a principal's own sessions.
func (s *httpServer) closeSession(w http.ResponseWriter, r *http.Request) {
	who := sandbox.Caller{Principal: principalOf(r.Context())}
	id := r.PathValue("id")
	if id == sandbox.NewSession {
		id = "none" // there is no such session; the name stands for one to come
	}
	_, err := s.cfg.sessions.Reset(context.WithoutCancel(r.Context()), who, id, true)
	switch {
	case errors.Is(err, sandbox.ErrUnknownSession):
		refuse(w, http.StatusNotFound, sandbox.ErrUnknownSession.Error())
	case err != nil:
		s.cfg.log.Error("a session could not be closed", "err", err)
		refuse(w, http.StatusInternalServerError, "the session could not be closed in order")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// serve answers requests until ctx ends, and then lets those under way go on for
// at most the time to drain. What is left after it ends with the sessions.
func (s *httpServer) serve(ctx context.Context) error {
	l := &socketLimit{Listener: s.cfg.listener, places: newBudget(maxSockets), plain: s.cfg.tls == nil}
	failed := make(chan error, 1)
	go func() {
		if s.cfg.tls != nil {
			failed <- s.http.ServeTLS(l, "", "")
		} else {
			failed <- s.http.Serve(l)
		}
	}()
	select {
	case err := <-failed:
		close(s.draining)
		return err
	case <-ctx.Done():
	}
	s.cfg.log.Info("ending: no new calls", "drain", s.cfg.drain)
	close(s.draining)
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.drain)
	defer cancel()
	if err := s.http.Shutdown(bound); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// finish waits, once the sessions are closed, until the requests under way are
// answered. What has not ended with ctx is cut off.
func (s *httpServer) finish(ctx context.Context) error {
	s.cancel()
	s.work.Wait()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}
