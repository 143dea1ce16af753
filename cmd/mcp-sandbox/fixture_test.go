package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// fixture is the server that the official conformance suite wants to meet: its
// tools, prompts and resources behind the product's own transport. What the
// product has no use for, and the suite asks about, is added here around that
// transport: a level for log messages, subscriptions, and questions to the client.
// It is safe for concurrent use.
type fixture struct {
	server *server.MCPServer

	mu     sync.Mutex
	levels map[string]mcp.LoggingLevel // by session
	asked  map[int64]chan message      // questions that wait for an answer
	last   int64                       // the id of the last one
}

// serveFixture serves it as the product is served, until its input ends. It prints
// its address.
func serveFixture() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	log := slog.New(slog.DiscardHandler)
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: &sandboxtest.Fake{}, Log: log})
	if err != nil {
		return fail(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	f := newFixture()
	s := newHTTPServer(httpConfig{
		listener: l, server: f.server, sessions: sessions, self: "conformance", sse: true, idle: time.Hour, drain: time.Second, log: log,
		origins: []string{"http://" + l.Addr().String()}, // the suite wants to be let in from here
	})
	s.http.Handler = f.around(s.http.Handler)
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	fmt.Println(s.cfg.origins[0])
	err = s.serve(ctx)
	end, cancel := context.WithTimeout(context.Background(), webEndLimit)
	defer cancel()
	if err := errors.Join(err, sessions.Close(), s.finish(end)); err != nil {
		return fail(err)
	}
	return exitOK
}

func newFixture() *fixture {
	f := &fixture{levels: map[string]mcp.LoggingLevel{}, asked: map[int64]chan message{}}
	f.server = server.NewMCPServer("mcp-sandbox-conformance", "1.0.0",
		server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true),
		server.WithCompletions(), server.WithLogging(), server.WithElicitation(), server.WithRoots(),
		server.WithCacheHints(1000, mcp.CacheScopePrivate), server.WithMetaPropagator(f),
	)
	f.server.EnableSampling()
	f.addTools()
	f.addInputTools()
	f.addProbes()
	f.addResources()
	f.addPrompts()
	return f
}

// InjectMeta implements tracing.MetaPropagator.
func (f *fixture) InjectMeta(_ context.Context, meta *mcp.Meta) *mcp.Meta { return meta }

// ExtractMeta implements tracing.MetaPropagator: mcp-go calls it ahead of every
// handler, which is where the transport's session becomes one that can do more.
func (f *fixture) ExtractMeta(ctx context.Context, _ *mcp.Meta) context.Context {
	return f.server.WithContext(ctx, &fixtureSession{ClientSession: server.ClientSessionFromContext(ctx), fixture: f})
}

// fixtureSession is a client that can be asked, for the time of one request.
type fixtureSession struct {
	server.ClientSession
	fixture *fixture

	mu     sync.Mutex
	filter mcp.SubscriptionFilter
}

var (
	_ server.SessionWithLogging               = (*fixtureSession)(nil)
	_ server.SessionWithSampling              = (*fixtureSession)(nil)
	_ server.SessionWithElicitation           = (*fixtureSession)(nil)
	_ server.SessionWithResourceSubscriptions = (*fixtureSession)(nil)
	_ server.SessionWithSubscriptionFilter    = (*fixtureSession)(nil)
)

func (s *fixtureSession) SetLogLevel(level mcp.LoggingLevel) {
	s.fixture.mu.Lock()
	defer s.fixture.mu.Unlock()
	s.fixture.levels[s.SessionID()] = level
}

func (s *fixtureSession) GetLogLevel() mcp.LoggingLevel {
	s.fixture.mu.Lock()
	defer s.fixture.mu.Unlock()
	if level, ok := s.fixture.levels[s.SessionID()]; ok {
		return level
	}
	return mcp.LoggingLevelDebug
}

// SetSubscriptionFilter begins a stream of subscriptions, or, without any, ends it.
func (s *fixtureSession) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	s.mu.Lock()
	s.filter = filter
	s.mu.Unlock()
	if filter.IsEmpty() {
		s.fixture.server.UnregisterSession(context.Background(), s.SessionID())
	} else if err := s.fixture.server.RegisterSession(context.Background(), s); err != nil {
		panic(err)
	}
}

func (s *fixtureSession) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter, !s.filter.IsEmpty()
}

func (s *fixtureSession) SubscribeToResource(string)         {}
func (s *fixtureSession) UnsubscribeFromResource(string)     {}
func (s *fixtureSession) IsSubscribedToResource(string) bool { return false }
func (s *fixtureSession) SubscribedResources() []string      { return nil }

func (s *fixtureSession) RequestSampling(ctx context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	answer, err := s.ask(ctx, mcp.MethodSamplingCreateMessage, r.CreateMessageParams)
	if err != nil {
		return nil, err
	}
	var result struct {
		mcp.CreateMessageResult
		Content mcp.TextContent `json:"content"` // the suite answers with nothing else
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return nil, err
	}
	result.CreateMessageResult.Content = result.Content
	return &result.CreateMessageResult, nil
}

func (s *fixtureSession) RequestElicitation(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	answer, err := s.ask(ctx, mcp.MethodElicitationCreate, r.Params)
	if err != nil {
		return nil, err
	}
	var result mcp.ElicitationResult
	return &result, json.Unmarshal(answer, &result)
}

// questionField is a parameter by which a notification is known as a question:
// the product asks its clients nothing, so its sessions carry notifications alone.
// outgoing makes a request of it on its way out.
const questionField = "conformance-question"

// ask sends a question on the stream of the call that has it, and waits.
func (s *fixtureSession) ask(ctx context.Context, method mcp.MCPMethod, params any) (json.RawMessage, error) {
	b, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, err
	}
	f, answer := s.fixture, make(chan message, 1)
	f.mu.Lock()
	f.last++
	id := f.last
	f.asked[id] = answer
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.asked, id)
	}()
	fields[questionField] = id
	s.NotificationChannel() <- mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: string(method), Params: mcp.NotificationParams{AdditionalFields: fields},
	}}
	select {
	case m := <-answer:
		if m.Error != nil {
			return nil, errors.New(string(m.Error))
		}
		return m.Result, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// around is the product's handler with ears for answers, and with a voice for
// questions. It hands on whatever it looks at.
func (f *fixture) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var m message
			if json.Unmarshal(body, &m) == nil && m.response() {
				f.answered(m)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(&outgoing{ResponseWriter: w}, r)
	})
}

func (f *fixture) answered(m message) {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if answer := f.asked[id]; answer != nil {
		delete(f.asked, id)
		answer <- m
	}
}

// outgoing is a response in which questions are requests, and notifications of a
// stream of subscriptions name that stream.
type outgoing struct {
	http.ResponseWriter
	stream any // the id of the request for subscriptions; nil = none
}

// Unwrap is for http.ResponseController.
func (w *outgoing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var eventData = regexp.MustCompile(`(?m)^data: (\{.*\})$`)

func (w *outgoing) Write(b []byte) (int, error) {
	changed := eventData.ReplaceAllFunc(b, func(line []byte) []byte { return append([]byte("data: "), w.change(line[len("data: "):])...) })
	if _, err := w.ResponseWriter.Write(changed); err != nil {
		return 0, err
	}
	return len(b), nil
}

// change gives a message as it is to be sent.
func (w *outgoing) change(text []byte) []byte {
	var m map[string]any
	if json.Unmarshal(text, &m) != nil {
		return text
	}
	params, _ := m["params"].(map[string]any)
	meta, _ := params["_meta"].(map[string]any)
	switch id, question := params[questionField]; {
	case question:
		m["id"] = id
		delete(params, questionField)
	case m["method"] == mcp.MethodNotificationSubscriptionsAcknowledged:
		w.stream = meta[mcp.MetaKeySubscriptionID]
		return text
	case w.stream != nil && m["method"] != nil:
		m["params"] = map[string]any{"_meta": map[string]any{mcp.MetaKeySubscriptionID: w.stream}}
	default:
		return text
	}
	b, err := json.Marshal(m)
	if err != nil {
		return text
	}
	return b
}
