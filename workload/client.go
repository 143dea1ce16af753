package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// client speaks to the API with one token. It is safe for concurrent use, and
// holds nothing that must be closed.
type client struct {
	base  *url.URL // ends with a slash; no token goes to another scheme or host
	token string
	http  *http.Client
	log   *slog.Logger
	clock clock
	limit time.Duration // of one request, its answer's body included

	mu    sync.Mutex
	pause time.Time // until then the gateway wants to be left alone; guarded by mu
}

// call is one request. What is sent is encoded once, for all attempts.
type call struct {
	method   string
	path     string // below base, escaped, with its slash
	query    url.Values
	in       any   // sent as JSON; nil = no body
	out      any   // decoded from JSON; nil = the body is not looked at
	max      int64 // bytes of the answer; 0 = maxAnswer
	attempts int   // 0 = 1
}

const (
	maxAnswer = 8 << 20
	maxHops   = 3
	maxPause  = time.Minute // that Retry-After may ask for
	firstWait = 250 * time.Millisecond
	lastWait  = 8 * time.Second
)

// do makes a call, again while that may help, attempts are left and ctx lasts.
func (c *client) do(ctx context.Context, r call) error {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
	}
	for attempt := 0; ; attempt++ {
		err := c.once(ctx, r, body)
		if err == nil || !retryable(err) || attempt+1 >= r.attempts || ctx.Err() != nil {
			return err
		}
		if c.clock.sleep(ctx, backoff(attempt, err)) != nil {
			return err
		}
	}
}

// backoff is how long to wait after the attempt of this number, from 0: a
// random part of what doubles each time, or what the answer asked for.
func backoff(attempt int, err error) time.Duration {
	wait := rand.N(min(firstWait<<min(attempt, 10), lastWait)) + time.Millisecond
	if e, ok := errors.AsType[*APIError](err); ok {
		wait = max(wait, e.after)
	}
	return wait
}

// once makes a call a single time.
func (c *client) once(ctx context.Context, r call, body []byte) error {
	if err := c.waitPause(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	start := c.clock.now()
	at := c.base.JoinPath(r.path)
	at.RawQuery = r.query.Encode()
	limit := r.max
	if limit == 0 {
		limit = maxAnswer
	}
	a, err := c.exchange(ctx, exchange{method: r.method, at: at, body: body, max: limit})
	if err == nil {
		err = c.judge(r, a)
	}
	c.log.Debug("workload api", "method", r.method, "path", r.path, "status", a.status, "took", c.clock.now().Sub(start), "err", err)
	return err
}

// exchange is one request on the wire, and answer what came back.
type exchange struct {
	method string
	at     *url.URL // of base's origin
	header http.Header
	body   []byte
	max    int64 // bytes of the answer
}

type answer struct {
	status int
	header http.Header
	body   []byte
	cut    bool // there was more than max
}

// exchange sends one request with the token, and follows the redirects that
// keep all of it: to the same origin, with the same method and body. An error
// means that there is no whole answer; it is an APIError, or ctx's.
func (c *client) exchange(ctx context.Context, e exchange) (answer, error) {
	op := e.method + " " + e.at.Path
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	for hop := 0; ; hop++ {
		if !sameOrigin(e.at, c.base) {
			return answer{}, &APIError{Op: op, Code: "origin", Detail: "the API points to another origin, " + clean(e.at.Scheme+"://"+e.at.Host, 200) + ", where the token does not go"}
		}
		a, err := c.send(ctx, e)
		if err != nil {
			return a, c.unanswered(op, err)
		}
		if a.status < 300 || a.status > 399 || a.status == http.StatusNotModified {
			return a, nil
		}
		to, err := c.follow(e, a)
		if err == nil && hop >= maxHops {
			err = fmt.Errorf("more than %d redirects", maxHops)
		}
		if err != nil {
			return a, &APIError{Op: op, Status: a.status, Code: "redirect", Detail: err.Error()}
		}
		e.at = to
	}
}

func (c *client) send(ctx context.Context, e exchange) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, e.method, e.at.String(), bytes.NewReader(e.body))
	if err != nil {
		return answer{}, err
	}
	for name, values := range e.header {
		req.Header[name] = values
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, e.max+1))
	a := answer{status: res.StatusCode, header: res.Header, body: body}
	if int64(len(body)) > e.max {
		a.body, a.cut = body[:e.max], true
	}
	return a, err
}

// unanswered makes the error of a request that got no whole answer.
func (c *client) unanswered(op string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text repeats the address
	}
	return &APIError{Op: op, Code: "transport", Detail: clean(c.redact(err.Error()), maxDetail), Retryable: true, cause: err}
}

// follow is where a redirect leads, if the whole request may go there.
func (c *client) follow(e exchange, a answer) (*url.URL, error) {
	switch a.status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if e.method != http.MethodGet {
			return nil, errors.New("a redirect that would make another request of this one")
		}
	default:
		return nil, errors.New("an answer that leads nowhere")
	}
	to, err := e.at.Parse(a.header.Get("Location"))
	if err != nil || a.header.Get("Location") == "" {
		return nil, errors.New("a redirect without a usable address")
	}
	if !sameOrigin(to, c.base) {
		return nil, errors.New("a redirect to another origin, " + clean(to.Scheme+"://"+to.Host, 200) + ", where the token does not go")
	}
	return to, nil
}

// judge turns an answer into what was asked for, or an APIError.
func (c *client) judge(r call, a answer) error {
	e := &APIError{Op: r.method + " " + r.path, Status: a.status}
	if a.status >= 400 {
		e.Code, e.Detail = errorBody([]byte(c.redact(string(a.body))))
		e.Retryable = retryableStatus(a.status)
		e.after = retryAfter(a.header.Get("Retry-After"), time.Now())
		if e.Retryable && e.after > 0 {
			c.hold(e.after)
		}
		return e
	}
	if r.out == nil || a.status == http.StatusNoContent {
		return nil
	}
	if a.cut {
		e.Code, e.Detail = "size", fmt.Sprintf("the answer is longer than %d bytes", len(a.body))
		return e
	}
	if err := json.Unmarshal(a.body, r.out); err != nil {
		_, detail := errorBody([]byte(c.redact(string(a.body[:min(len(a.body), maxDetail)]))))
		e.Code, e.Detail, e.Retryable = "body", "not what the API answers: "+detail, true
		return e
	}
	return nil
}

// redact takes the token out of a text of the other side's.
func (c *client) redact(s string) string {
	return strings.ReplaceAll(s, c.token, "[token]")
}

// hold keeps all requests back for d: the gateway counts those of a token.
func (c *client) hold(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := c.clock.now().Add(d); until.After(c.pause) {
		c.pause = until
	}
}

func (c *client) waitPause(ctx context.Context) error {
	c.mu.Lock()
	wait := c.pause.Sub(c.clock.now())
	c.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return c.clock.sleep(ctx, wait)
}

// retryAfter reads the header: seconds, or a date. It is bounded.
func retryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
		d = time.Duration(min(n, int(maxPause/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return max(0, min(d, maxPause))
}

func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(hostPort(a), hostPort(b)) && a.User == nil
}

// hostPort is the host with the port that is meant where none is written.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return u.Hostname() + ":" + port
}
