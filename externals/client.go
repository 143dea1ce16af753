package externals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

var _ sandbox.Externals = (*Client)(nil)

// DepthVariable tells a child how many of our kind it is below.
const DepthVariable = "MCP_SANDBOX_NESTED"

// maxDepth is how many of our kind a call may come through. Below it no external tool
// is called: a server that is its own upstream would go round in circles.
const maxDepth = 1

// Config says which servers there are.
type Config struct {
	Servers      []Server
	Start        Starter       // starts those that are children; required if there are any
	Environ      []string      // of a child, besides what the file gives it; nil = nothing
	Depth        int           // how many of our kind this process is below; 0 = none
	StartTimeout time.Duration // for a connection to be made; 0 = 60 s
	MaxReply     int64         // bytes of one reply; 0 = 16 MiB
	Version      string        // ours, as servers are told; "" = "dev"
	Log          *slog.Logger  // nil = none

	doubt time.Duration // a server whose call is given up after so long is looked after; 0 = 5 s
}

func (c Config) resolve() (Config, error) {
	var errs []error
	names := map[string]bool{}
	for _, s := range c.Servers {
		if s.Command != "" && c.Start == nil {
			errs = append(errs, fmt.Errorf("%s: nothing starts commands", s.Name))
		}
		if names[Flat(s.Name)] {
			errs = append(errs, fmt.Errorf("%s: two servers have this name", s.Name))
		}
		names[Flat(s.Name)] = true
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	if c.MaxReply == 0 {
		c.MaxReply = 16 << 20
	}
	if c.doubt == 0 {
		c.doubt = 5 * time.Second
	}
	if c.StartTimeout < 0 || c.MaxReply < 0 || c.Depth < 0 {
		errs = append(errs, errors.New("a limit is below 0"))
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

// Client is the client of all servers of a file. It is safe for concurrent use.
type Client struct {
	cfg       Config
	upstreams []*upstream
	end       context.CancelFunc
	wg        sync.WaitGroup
}

// New makes a Client that has not connected to anything yet. Close ends it.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("externals: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, end: end}
	for _, s := range cfg.Servers {
		c.upstreams = append(c.upstreams, &upstream{
			server: s, cfg: &c.cfg, secrets: newRedactor(s.secrets), log: cfg.Log.With("server", s.Name),
			life: life, wg: &c.wg, listing: make(chan struct{}, 1),
		})
	}
	return c, nil
}

// Close ends all connections and children, and waits for them.
func (c *Client) Close() error {
	c.end()
	for _, u := range c.upstreams { // from here on none starts another attempt
		u.mu.Lock()
		u.closed = true
		u.mu.Unlock()
	}
	c.wg.Wait()
	return nil
}

// Servers implements sandbox.Externals.
func (c *Client) Servers(context.Context) []sandbox.ExternalServer {
	var all []sandbox.ExternalServer
	for _, u := range c.upstreams {
		s := sandbox.ExternalServer{Name: u.server.Name, Note: u.server.Note}
		list, revision := u.known()
		s.Revision = revision
		if list != nil {
			for _, t := range list.permitted() {
				if shownName.MatchString(t.Name) {
					s.Tools = append(s.Tools, t.Name)
				}
			}
		}
		all = append(all, s)
	}
	return all
}

// shownName are the names that a model is shown unasked: those that the protocol wants,
// in which nobody can be talked into anything.
var shownName = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,64}$`)

// Tools implements sandbox.Externals.
func (c *Client) Tools(ctx context.Context, server string) ([]sandbox.ExternalTool, error) {
	u, err := c.find(ctx, server)
	if err != nil {
		return nil, err
	}
	return u.tools(ctx)
}

// Call implements sandbox.Externals.
func (c *Client) Call(ctx context.Context, server, tool string, arguments json.RawMessage) (sandbox.ExternalResult, error) {
	u, err := c.find(ctx, server)
	if err != nil {
		return sandbox.ExternalResult{}, err
	}
	begin := time.Now()
	result, err := u.call(ctx, tool, arguments)
	c.cfg.Log.Debug("external call", "server", server, "tool", oneLine(tool, 100), "took", time.Since(begin).Round(time.Microsecond), "ok", err == nil && !result.IsError)
	return result, err
}

// Learn begins to connect to all servers whose tools are not known yet, and returns
// when they are, or those that can be by the end of ctx, which may be over already.
func (c *Client) Learn(ctx context.Context) {
	if c.nested(ctx) { // each server of a ring would have the next one learn
		return
	}
	var wg sync.WaitGroup
	for _, u := range c.upstreams {
		if list, _ := u.known(); list == nil {
			wg.Go(func() { _, _ = u.tools(ctx) }) // who calls them learns why they can't be
		}
	}
	wg.Wait()
}

// find is the server of this name, for a call that may call any.
func (c *Client) find(ctx context.Context, server string) (*upstream, error) {
	if c.nested(ctx) {
		return nil, &sandbox.ExternalError{Fault: sandbox.ExternalDenied,
			Text: "this code runs for an external call of another mcp-sandbox, and may not call externals itself: that could go round in circles"}
	}
	var names []string
	for _, u := range c.upstreams {
		if u.server.Name == server {
			return u, nil
		}
		names = append(names, u.server.Name)
	}
	return nil, &sandbox.ExternalError{Fault: sandbox.ExternalUnknown,
		Text: fmt.Sprintf("there is no server %q; there are %s", oneLine(server, 100), strings.Join(names, ", "))}
}

// nested reports whether a call has come through as many of our kind as may be.
func (c *Client) nested(ctx context.Context) bool { return max(c.cfg.Depth, depth(ctx)) >= maxDepth }

type depthKey struct{}

// WithDepth derives the context of a request that has come through n servers of our kind.
func WithDepth(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, depthKey{}, n)
}

func depth(ctx context.Context) int {
	n, _ := ctx.Value(depthKey{}).(int)
	return n
}
