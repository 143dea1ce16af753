package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/propagation"

	"mcp-sandbox/externals"
	"mcp-sandbox/workload"
)

// maxPerPrincipal bounds the requests that one principal may have under way at once;
// an open event stream is one of them. A call that waits costs a connection and its
// request's body.
const maxPerPrincipal = 1024

// partTime is how long the rest of a body may still come that nobody wants: who is
// sending may not listen before that.
const partTime = time.Second

// guard stands before every route. A web page that a user of this machine has
// opened can send requests here as well as any client: without the checks of
// Host and Origin it could run code.
type guard struct {
	next    http.Handler
	tokens  tokens        // nil = none are asked for
	self    string        // the principal where none are
	hosts   []string      // lower case, that Host may name besides; without a port any will do
	origins []string      // of web pages that may use the server
	body    time.Duration // for a whole body to come
	callers bool          // each brings a DataRobot token
	log     *slog.Logger

	mu       sync.Mutex
	underWay map[string]int // by principal
}

// open are the routes that ask for no token: probes can't have one.
var open = []string{"/healthz", "/readyz"}

// remoteTokenHeader bears a caller's own DataRobot token.
const remoteTokenHeader = "X-DataRobot-Api-Token"

type principalKey struct{}

// principalOf is whose request this is, once the guard has let it pass.
func principalOf(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return name
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.recover(w, r)
	// A body that never comes must not keep the connection; whoever has read it
	// takes the deadline away.
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Now().Add(g.body))
	_ = ctl.SetWriteDeadline(time.Time{}) // an earlier request of the connection may have left one
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if !g.hostAllowed(r) {
		g.log.Info("refused: Host", "host", brief(r.Host), "remote", r.RemoteAddr)
		turnAway(w, http.StatusForbidden, fmt.Sprintf("the host %q is not served here: the operator can allow it by --allow-host", brief(r.Host)))
		return
	}
	origin, ok := g.originAllowed(r)
	if !ok {
		g.log.Info("refused: Origin", "origin", brief(strings.Join(r.Header.Values("Origin"), ", ")), "site", brief(r.Header.Get("Sec-Fetch-Site")), "remote", r.RemoteAddr)
		turnAway(w, http.StatusForbidden, "requests of web pages are refused: the operator can allow an origin by --allow-origin")
		return
	}
	if origin != "" {
		allowOrigin(h, origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			allowPreflight(h)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	if slices.Contains(open, r.URL.Path) {
		g.next.ServeHTTP(w, r)
		return
	}
	who, ok := g.authenticate(w, r)
	if !ok {
		return
	}
	if !g.enter(who) {
		retry(w, http.StatusTooManyRequests, fmt.Sprintf("%s has %d requests under way already", who, maxPerPrincipal))
		return
	}
	defer g.leave(who)
	ctx := context.WithValue(r.Context(), principalKey{}, who)
	if token := r.Header.Get(remoteTokenHeader); g.callers && token != "" {
		ctx = workload.WithToken(ctx, token)
	}
	r.Header.Del(remoteTokenHeader)                        // nobody else has a use for it
	if v := r.Header.Get(externals.DepthHeader); v != "" { // asked by another of our kind; what is malformed counts too
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			n = 1
		}
		ctx = externals.WithDepth(ctx, n)
	}
	if r.Header.Get("Traceparent") != "" { // calls are spans of the caller's trace; what is malformed is ignored
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	g.next.ServeHTTP(w, r.WithContext(ctx))
}

func (g *guard) recover(w http.ResponseWriter, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		g.log.Error("panic in a request", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
		refuse(w, http.StatusInternalServerError, "internal error")
	}
}

// hostAllowed holds off names that somebody else's DNS leads here: what arrives
// over the loopback must be addressed to it, or to a name that was allowed.
// Other addresses are for those who have a token, which no web page has.
func (g *guard) hostAllowed(r *http.Request) bool {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = strings.Trim(r.Host, "[]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	host := strings.ToLower(r.Host)
	if slices.Contains(g.hosts, name) || slices.Contains(g.hosts, host) {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	at := addressOf(local)
	loopback := at.IsLoopback() || !at.IsValid()
	if addr, err := netip.ParseAddr(name); err == nil && (addr.Unmap() == at || loopback && addr.IsLoopback()) {
		return true // no DNS leads to an address
	}
	if loopback {
		return name == "localhost"
	}
	return len(g.hosts) == 0
}

func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

// originAllowed is the one origin that the request names, "" for none. Browsers
// leave Origin out of some requests, such as an image's, but not Sec-Fetch-Site.
func (g *guard) originAllowed(r *http.Request) (string, bool) {
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		site := r.Header.Get("Sec-Fetch-Site")
		return "", site == "" || site == "none" || site == "same-origin"
	case 1:
		origin := strings.ToLower(origins[0])
		return origins[0], slices.Contains(g.origins, origin)
	default:
		return "", false
	}
}

func allowOrigin(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", mcp.HeaderSessionID+", WWW-Authenticate, Retry-After")
	h.Add("Vary", "Origin")
}

func allowPreflight(h http.Header) {
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, Range, Last-Event-ID, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name, Traceparent, Tracestate, "+remoteTokenHeader)
	h.Set("Access-Control-Max-Age", "600")
}

// authenticate says who asks, or answers that nobody known does.
func (g *guard) authenticate(w http.ResponseWriter, r *http.Request) (string, bool) {
	if g.tokens == nil {
		return g.self, true
	}
	challenge := `Bearer realm="mcp-sandbox"`
	given := r.Header.Values("Authorization")
	if len(given) == 1 {
		scheme, secret, _ := strings.Cut(given[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			if who := g.tokens.principal(strings.TrimSpace(secret)); who != "" {
				return who, true
			}
			challenge += `, error="invalid_token"`
		}
	}
	g.log.Info("refused: no valid token", "remote", r.RemoteAddr, "path", brief(r.URL.Path))
	w.Header().Set("WWW-Authenticate", challenge)
	turnAway(w, http.StatusUnauthorized, "a token is needed: send the header Authorization: Bearer TOKEN")
	return "", false
}

func (g *guard) enter(who string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay == nil {
		g.underWay = map[string]int{}
	}
	if g.underWay[who] >= maxPerPrincipal {
		return false
	}
	g.underWay[who]++
	return true
}

func (g *guard) leave(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay[who]--; g.underWay[who] == 0 {
		delete(g.underWay, who)
	}
}

// turnAway refuses a stranger's request and closes its connection: whoever may not
// come in keeps none by being silent, nor by a body that never comes.
func turnAway(w http.ResponseWriter, status int, why string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(partTime))
	w.Header().Set("Connection", "close")
	refuse(w, status, why)
}

// refuse answers a request that is not handled, in words that MCP clients show.
func refuse(w http.ResponseWriter, status int, why string) {
	refuseCall(w, status, nil, codeRefused, why)
}

// codeRefused is for refusals that JSON-RPC has no code for.
const codeRefused = -32000

// refuseCall likewise, of a request whose id is known.
func refuseCall(w http.ResponseWriter, status int, id []byte, code int, why string) {
	refuseAs(w, status, failure(id, code, why))
}

func refuseAs(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// retry refuses what may well be served later.
func retry(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Retry-After", fmt.Sprint(int(retryAfter.Seconds())))
	refuse(w, status, fmt.Sprintf("%s; try again in %v", why, retryAfter))
}

// retryAfter is when a place may well be free again: most calls take less.
const retryAfter = 2 * time.Second

// parseOrigin checks what an operator allows: exactly one origin, no pattern.
func parseOrigin(s string) (string, error) {
	u, err := url.Parse(strings.ToLower(s))
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || strings.Contains(u.Host, "*") || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("expected an origin such as https://example.com, without a path or *, but got %q", s)
	}
	return u.Scheme + "://" + u.Host, nil
}

// parseHost checks what an operator allows in Host: a name, or a name and a port.
func parseHost(s string) (string, error) {
	name, _, err := net.SplitHostPort(s)
	if err != nil {
		name = s
	}
	if name == "" || strings.ContainsAny(name, "/*@ ") || strings.Contains(s, "://") {
		return "", fmt.Errorf("expected a host such as mcp.example.com, or with a port, but got %q", s)
	}
	return strings.ToLower(s), nil
}
