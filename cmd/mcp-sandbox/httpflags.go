package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// httpFlags say how clients connect over the network.
type httpFlags struct {
	Listen          string        `default:"127.0.0.1:8080" placeholder:"ADDR" help:"With --transport http: address and port (${default}). Any but the loopback's needs --auth-token-file."`
	NoSSE           bool          `name:"no-sse" help:"With --transport http: no /sse and /message, the transport of 2024-11-05."`
	AuthTokenFile   string        `name:"auth-token-file" placeholder:"FILE" type:"path" help:"Bearer tokens, lines of NAME:TOKEN, each followed by sessions=N or running=N for a quota. Whoever has none is refused."`
	TLSCert         string        `name:"tls-cert" placeholder:"FILE" type:"path" help:"Certificate (PEM), for TLS."`
	TLSKey          string        `name:"tls-key" placeholder:"FILE" type:"path" help:"Its key (PEM)."`
	AllowOrigin     []string      `name:"allow-origin" placeholder:"ORIGIN" help:"Origin of web pages that may use the server, such as https://example.com; usually none may. Repeatable."`
	AllowHost       []string      `name:"allow-host" placeholder:"HOST" help:"Name by which the server may be addressed besides its own address; needed behind a proxy on this machine. Repeatable."`
	SharedWorkspace bool          `name:"shared-workspace" help:"With --transport http: all sessions share the directory of --workspace; usually each has its own folder there."`
	DrainTimeout    time.Duration `name:"drain-timeout" default:"10s" help:"With --transport http: after SIGTERM, calls under way may go on for so long (${default})."`
}

func (f httpFlags) check(transport string) error {
	if transport == "stdio" {
		return f.checkUnused()
	}
	var errs []error
	if _, err := f.loopback(); err != nil {
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	}
	if (f.TLSCert == "") != (f.TLSKey == "") {
		errs = append(errs, errors.New("--tls-cert and --tls-key go together"))
	}
	for _, o := range f.AllowOrigin {
		if _, err := parseOrigin(o); err != nil {
			errs = append(errs, fmt.Errorf("--allow-origin: %w", err))
		}
	}
	for _, h := range f.AllowHost {
		if _, err := parseHost(h); err != nil {
			errs = append(errs, fmt.Errorf("--allow-host: %w", err))
		}
	}
	if f.DrainTimeout < 0 {
		errs = append(errs, errors.New("--drain-timeout must not be below 0"))
	}
	return errors.Join(errs...)
}

// checkUnused refuses what would silently not hold over stdio.
func (f httpFlags) checkUnused() error {
	var errs []error
	for _, u := range []struct {
		name string
		used bool
	}{
		{"no-sse", f.NoSSE}, {"auth-token-file", f.AuthTokenFile != ""}, {"tls-cert", f.TLSCert != ""}, {"tls-key", f.TLSKey != ""},
		{"allow-origin", f.AllowOrigin != nil}, {"allow-host", f.AllowHost != nil}, {"shared-workspace", f.SharedWorkspace},
	} {
		if u.used {
			errs = append(errs, fmt.Errorf("--%s needs --transport http", u.name))
		}
	}
	return errors.Join(errs...)
}

// loopback reports whether nobody beyond this machine can connect.
func (f httpFlags) loopback() (bool, error) {
	host, port, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return false, fmt.Errorf("expected ADDRESS:PORT, such as 127.0.0.1:8080, but got %q", f.Listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return false, fmt.Errorf("%q is no port", port)
	}
	if host == "" {
		return false, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback(), nil
	}
	found, err := net.LookupIP(host)
	if err != nil {
		return false, err
	}
	for _, ip := range found {
		if !ip.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

// readTokens gives the tokens, nil if none are asked for, and warns of what
// protects less than it seems to.
func (f httpFlags) readTokens(log *slog.Logger) (tokens, error) {
	local, err := f.loopback()
	if err != nil {
		return nil, err
	}
	if f.AuthTokenFile == "" {
		if !local {
			return nil, fmt.Errorf("whoever reaches %s could run code here: give --auth-token-file, or listen on 127.0.0.1", f.Listen)
		}
		return nil, nil
	}
	all, err := readTokens(f.AuthTokenFile)
	if err != nil {
		return nil, fmt.Errorf("--auth-token-file: %w", err)
	}
	for _, t := range all {
		if t.weak {
			log.Warn("a token is short enough to be guessed", "name", t.name, "least", weakToken)
		}
	}
	if !local && f.TLSCert == "" {
		log.Warn("tokens and code travel unencrypted: give --tls-cert and --tls-key, or put a proxy with TLS before the server", "listen", f.Listen)
	}
	return all, nil
}

// certificate is nil where there is to be no TLS.
func (f httpFlags) certificate() (*tls.Config, error) {
	if f.TLSCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// httpDoor is for whoever may connect over the network.
type httpDoor struct {
	flags   serveFlags
	metrics http.Handler
	tokens  tokens
	tls     *tls.Config
	log     *slog.Logger
}

func newHTTPDoor(f serveFlags, metrics http.Handler, log *slog.Logger) (*httpDoor, error) {
	tokens, err := f.readTokens(log)
	if err != nil {
		return nil, err
	}
	tls, err := f.certificate()
	if err != nil {
		return nil, err
	}
	return &httpDoor{f, metrics, tokens, tls, log}, nil
}

func (d *httpDoor) caller(ctx context.Context) sandbox.Caller { return httpCaller(ctx) }
func (d *httpDoor) quotas() map[string]sandbox.Quota          { return d.tokens.quotas() }

func (d *httpDoor) open(s *server.MCPServer, sessions *sandbox.Sessions) (transport, []any, error) {
	f := d.flags
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen: %w", err)
	}
	cfg := httpConfig{
		listener: l, server: s, sessions: sessions, tokens: d.tokens, self: hostUser(), sse: !f.NoSSE,
		// An idle client that comes back finds its session, hibernated, or is told
		// what became of it, and need not begin anew.
		idle: f.SessionMaxAge + f.SessionIdle, drain: f.DrainTimeout, tls: d.tls, metrics: d.metrics, log: d.log,
		callers: f.WorkloadCallerToken,
	}
	for _, o := range f.AllowOrigin { // checked with the flags
		origin, _ := parseOrigin(o)
		cfg.origins = append(cfg.origins, origin)
	}
	for _, h := range f.AllowHost {
		host, _ := parseHost(h)
		cfg.hosts = append(cfg.hosts, host)
	}
	scheme := "http"
	if d.tls != nil {
		scheme = "https"
	}
	return newHTTPServer(cfg), []any{"transport", "http", "url", scheme + "://" + l.Addr().String() + "/mcp", "sse", cfg.sse, "tokens", len(d.tokens)}, nil
}
