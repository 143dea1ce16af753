package externals

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

var (
	_ transport.HTTPConnection         = (*httpLink)(nil)
	_ transport.BidirectionalInterface = (*httpLink)(nil)
	_ transport.HTTPConnection         = (*sseLink)(nil)
)

// tellTime bounds how long a server is told that a request is cancelled.
const tellTime = 2 * time.Second

// teller tells servers that requests are cancelled, which mcp-go leaves out over HTTP.
type teller struct {
	mu      sync.Mutex
	closed  bool                         // nobody is told any more
	telling map[*context.CancelFunc]bool // of those that are being told
	wg      sync.WaitGroup
}

// stop waits for those that are being told, for a moment.
func (t *teller) stop() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	defer time.AfterFunc(leave, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for cancel := range t.telling {
			(*cancel)()
		}
	}).Stop()
	t.wg.Wait()
}

func (t *teller) cancelled(ctx context.Context, request transport.JSONRPCRequest, send func(context.Context, mcp.JSONRPCNotification) error) {
	if request.Method == string(mcp.MethodInitialize) || request.Method == string(mcp.MethodServerDiscover) {
		return
	}
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: string(mcp.MethodNotificationCancelled),
		Params: mcp.NotificationParams{AdditionalFields: map[string]any{"requestId": request.ID, "reason": "cancelled"}},
	}}
	ctx = context.WithoutCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	if t.telling == nil {
		t.telling = map[*context.CancelFunc]bool{}
	}
	t.telling[&cancel] = true
	t.wg.Go(func() {
		_ = send(ctx, n) // a server that can't be told will find out
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.telling, &cancel)
		cancel()
	})
}

// httpLink is streamable HTTP.
type httpLink struct {
	*transport.StreamableHTTP
	guard *guarded
	teller
	version atomic.Value // string
}

func newHTTPLink(s Server, g *guarded) (*httpLink, error) {
	t, err := transport.NewStreamableHTTP(s.URL,
		transport.WithHTTPBasicClient(&http.Client{Transport: g}), transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	return &httpLink{StreamableHTTP: t, guard: g}, nil
}

// SetProtocolVersion notes which rules hold.
func (l *httpLink) SetProtocolVersion(version string) {
	l.version.Store(version)
	l.StreamableHTTP.SetProtocolVersion(version)
}

// SendRequest sends a request. To a server of the older protocol the end of the
// connection says nothing: it is told.
func (l *httpLink) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	reply, err := l.StreamableHTTP.SendRequest(ctx, request)
	if err != nil {
		if version, _ := l.version.Load().(string); ctx.Err() != nil && !mcp.IsModernProtocol(version) {
			l.cancelled(ctx, request, l.SendNotification)
		}
		return nil, err
	}
	return captured(ctx, reply), nil
}

// Close ends the session.
func (l *httpLink) Close() error {
	l.stop()
	err := l.StreamableHTTP.Close()
	l.guard.base.CloseIdleConnections()
	return err
}

func (l *httpLink) lost() (<-chan struct{}, func() error) { return nil, nil }
func (l *httpLink) abandon(error)                         {}

// sseLink is HTTP+SSE.
type sseLink struct {
	*transport.SSE
	guard *guarded
	teller
	life context.Context // ends with the stream, whose end is its cause
	end  context.CancelCauseFunc
}

func newSSELink(s Server, g *guarded) (*sseLink, error) {
	t, err := transport.NewSSE(s.URL, transport.WithHTTPClient(&http.Client{Transport: g}),
		transport.WithSSELogger(slog.New(slog.DiscardHandler)), transport.WithResponseTimeout(24*time.Hour)) // each request has its own
	if err != nil {
		return nil, err
	}
	l := &sseLink{SSE: t, guard: g}
	l.life, l.end = context.WithCancelCause(context.Background())
	t.SetConnectionLostHandler(func(err error) {
		var large *tooLarge
		if !errors.As(err, &large) {
			err = errors.New("it has ended the stream of its answers")
		}
		l.end(err)
	})
	return l, nil
}

// SendRequest sends a request under an id that no request of the server's own has:
// mcp-go would take that for the answer. It fails when the stream ends, which mcp-go
// would not notice.
func (l *sseLink) SendRequest(ctx context.Context, request transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if n, ok := request.ID.Value().(int64); ok {
		request.ID = mcp.NewRequestId("mcp-sandbox-" + strconv.FormatInt(n, 10))
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx)) // mcp-go has a timer of its own for a deadline, which may be first
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	defer context.AfterFunc(l.life, cancel)()
	reply, err := l.SSE.SendRequest(within, request)
	switch {
	case err == nil:
		return captured(ctx, reply), nil
	case ctx.Err() != nil:
		l.cancelled(ctx, request, l.SendNotification)
	case l.life.Err() != nil:
		err = context.Cause(l.life)
	}
	return nil, err
}

// Close ends the stream.
func (l *sseLink) Close() error {
	l.stop()
	err := l.SSE.Close()
	l.end(transport.ErrTransportClosed)
	l.guard.base.CloseIdleConnections()
	return err
}

func (l *sseLink) lost() (<-chan struct{}, func() error) {
	return l.life.Done(), func() error { return context.Cause(l.life) }
}

func (l *sseLink) abandon(reason error) { l.end(reason) }
