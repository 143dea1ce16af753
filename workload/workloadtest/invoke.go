package workloadtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// invoke is the gateway before a workload's container.
func (e *Emulator) invoke(w http.ResponseWriter, r *http.Request) {
	user, ok := e.user(r)
	cluster := e.cfg.Cluster
	switch {
	case !ok:
		refuseToken(w)
		return
	case cluster.NotEntitled || cluster.InvokeDenied:
		answer{status: http.StatusForbidden, body: object{"message": "You do not have access to this workload"}}.write(w)
		return
	case cluster.InvokeBody > 0 && r.ContentLength > cluster.InvokeBody:
		answer{status: http.StatusRequestEntityTooLarge, body: object{"message": "Request entity too large"}}.write(w)
		return
	}
	e.mu.Lock()
	var gateway *http.Transport
	found, _ := e.findHeld(call{r, user})
	status := ""
	if found != nil {
		status = found.status
	}
	if found != nil && found.pod.ready {
		gateway = found.pod.gateway
	}
	e.mu.Unlock()
	switch {
	case found == nil:
		detail(http.StatusNotFound, "Workload not found").write(w)
	case cluster.ErroredBlocks && status == errored:
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
	case gateway == nil:
		http.Error(w, "Bad Gateway", http.StatusBadGateway)
	default:
		e.forward(w, r, user, gateway)
	}
}

// forward hands a request to a container, without what only the gateway is told.
func (e *Emulator) forward(w http.ResponseWriter, r *http.Request, user string, gateway *http.Transport) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if d := e.cfg.Cluster.InvokeTimeout; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, e.clock.scale(d))
		defer cancel()
	}
	stop := context.AfterFunc(e.ctx, cancel)
	defer stop()
	if limit := e.cfg.Cluster.InvokeBody; limit > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
	}
	proxy := &httputil.ReverseProxy{
		Transport:     gateway,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(e.cfg.Log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = inside(r)
			pr.Out.Host = "container"
			pr.Out.Header.Del("Authorization")
			pr.Out.Header.Set("X-DataRobot-User-Id", userID(user))
			pr.Out.Header.Set("X-DataRobot-Authorization-Context", "emulated")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				http.Error(w, "Gateway Timeout", http.StatusGatewayTimeout)
			case errors.As(err, new(*http.MaxBytesError)):
				http.Error(w, "Request entity too large", http.StatusRequestEntityTooLarge)
			default:
				http.Error(w, "Bad Gateway", http.StatusBadGateway)
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// inside is a request's URL as the container sees it.
func inside(r *http.Request) *url.URL {
	path := strings.TrimPrefix(r.URL.EscapedPath(), prefix+"/endpoints/workloads/"+r.PathValue("id"))
	query := r.URL.Query()
	raw := r.URL.RawQuery
	if query.Has("protonId") {
		query.Del("protonId")
		raw = query.Encode()
	}
	u, err := url.Parse("http://container" + path)
	if err != nil {
		u = &url.URL{Scheme: "http", Host: "container", Path: "/"}
	}
	u.RawQuery = raw
	return u
}
