package externals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// probe bounds how long a server is given to say that it speaks the protocol without a
// handshake. One that never heard of it may say nothing at all.
const probe = 5 * time.Second

// link is a transport that tells when it is over.
type link interface {
	transport.Interface
	// lost is closed when the connection has ended, and the function says why
	// from then on; nil = it is made anew for each request.
	lost() (<-chan struct{}, func() error)
	// abandon ends a connection that is of no use any more.
	abandon(reason error)
}

// conn is one connection to a server, from its handshake on.
type conn struct {
	client *client.Client
	link   link
	cancel context.CancelFunc // ends the stream of its notifications
	ended  <-chan struct{}    // closed by cancel
	tells  bool               // it says when its tools change
}

// over reports whether the connection can be used no more.
func (c *conn) over() bool {
	done, _ := c.link.lost()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (c *conn) close() error {
	c.cancel()
	return c.client.Close()
}

// errHandshake marks a server that ended at the first message: some do when that is
// not the handshake of the older protocol.
var errHandshake = errors.New("it ended during the handshake")

// dial connects, within ctx.
func (u *upstream) dial(ctx context.Context) (*conn, error) {
	switch {
	case u.server.Command != "":
		c, err := u.dialPipe(ctx, false)
		if errors.Is(err, errHandshake) && ctx.Err() == nil {
			c, err = u.dialPipe(ctx, true)
		}
		return c, err
	case u.server.SSE:
		return u.dialSSE(ctx)
	}
	guard, err := newGuarded(u.server, u.cfg.Depth, u.cfg.MaxReply)
	if err != nil {
		return nil, err
	}
	l, err := newHTTPLink(u.server, guard)
	if err != nil {
		return nil, err
	}
	c, err := u.shake(ctx, l, false)
	if errors.Is(err, transport.ErrLegacySSEServer) {
		if u.server.HTTP {
			return nil, errors.New("it does not speak streamable HTTP at this address")
		}
		return u.dialSSE(ctx)
	}
	return c, err
}

func (u *upstream) dialSSE(ctx context.Context) (*conn, error) {
	guard, err := newGuarded(u.server, u.cfg.Depth, u.cfg.MaxReply)
	if err != nil {
		return nil, err
	}
	l, err := newSSELink(u.server, guard)
	if err != nil {
		return nil, err
	}
	return u.shake(ctx, l, false)
}

func (u *upstream) dialPipe(ctx context.Context, old bool) (*conn, error) {
	s := u.server
	env := slices.Clone(u.cfg.Environ)
	for name, value := range s.Env {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		env = append(env, name+"="+value)
	}
	env = append(env, fmt.Sprintf("%s=%d", DepthVariable, u.cfg.Depth+1))
	stderr := newScribe(u.log, u.secrets)
	process, err := u.cfg.Start(Command{Path: s.Command, Args: s.Args, Env: env, Dir: s.Dir, Stderr: stderr})
	if err != nil {
		return nil, err
	}
	p := newPipe(process, u.cfg.MaxReply, u.log)
	c, err := u.shake(ctx, p, old)
	if err == nil {
		return c, nil
	}
	if ended := p.ending(); ended != nil && !errors.Is(ended, transport.ErrTransportClosed) {
		err = fmt.Errorf("%w: %w", errHandshake, ended)
	}
	if last := stderr.last(); last != "" && ctx.Err() == nil {
		err = fmt.Errorf("%w; the last that it wrote: %s", err, last)
	}
	return nil, err
}

// shake makes the handshake, and ends the link if there is none.
func (u *upstream) shake(ctx context.Context, l link, old bool) (_ *conn, err error) {
	options := []client.ClientOption{client.WithDiscoverTimeout(probe)}
	if old {
		options = append(options, client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	}
	c := &conn{client: client.NewClient(l, options...), link: l}
	life, cancel := context.WithCancel(u.life)
	c.cancel, c.ended = cancel, life.Done()
	defer func() {
		if err != nil {
			_ = c.close() // the handshake's error says more
		}
	}()
	c.client.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			u.changed()
		}
	})
	started := context.AfterFunc(ctx, cancel) // until then ctx bounds the start of what lives as long as life
	defer started()
	if err := c.client.Start(life); err != nil {
		return nil, orCause(ctx, err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "mcp-sandbox", Version: u.cfg.Version}
	within, capture := withCapture(ctx, false)
	info, err := c.client.Initialize(within, hello)
	if err != nil {
		return nil, orCause(ctx, capture.why(err))
	}
	if info.Capabilities.Tools == nil {
		return nil, errors.New("it offers no tools")
	}
	_, web := l.(*httpLink)
	c.tells = info.Capabilities.Tools.ListChanged && !web
	if info.Capabilities.Tools.ListChanged && mcp.IsModernProtocol(c.client.ProtocolVersion()) {
		u.listen(life, c)
	}
	return c, nil
}

// listen has a server of the newer protocol say when its tools change.
func (u *upstream) listen(ctx context.Context, c *conn) {
	u.wg.Go(func() {
		_ = c.client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) // without it the list is asked for again by and by
	})
}

// orCause is why a start failed: that its time was over, rather than what came of that.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ending says why the connection has ended; nil = it has not.
func (p *pipe) ending() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}
