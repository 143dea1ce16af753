package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcp-sandbox/sandbox"
)

// remote is one container whose agent has taken our key. It is safe for
// concurrent use. Its owner ends it by deployment.remove.
type remote struct {
	deployment *deployment
	client     *client
	endpoint   *url.URL // ends with a slash
	seal       seal
	number     atomic.Uint64
	python     string // version
	expires    time.Time

	mu   sync.Mutex
	lost error // why it is of no more use; nil = it is
}

// maxRemoteAnswer bounds an answer of the agent's, in bytes: a mebibyte of the
// channel, the ends of both streams, and what changed among ten thousand files.
const maxRemoteAnswer = 16 << 20

// lostError is the end of a container, or of the way to it: what was in it is gone.
type lostError struct {
	why       string
	err       error // nil = the why is all
	restarted bool  // another start of the same container has been met
}

func (e *lostError) Error() string {
	if e.err == nil {
		return e.why
	}
	return e.why + ": " + e.err.Error()
}

func (e *lostError) Unwrap() error { return e.err }

// agentError is the agent's own word on why it did not do what it was asked.
type agentError struct{ code, text string }

func (e *agentError) Error() string { return "the agent: " + clean(e.code+" "+e.text, 300) }

// invokePath is what the path of every invoke URL begins with.
const invokePath = apiPath + "/endpoints/workloads/"

// invokeURL checks an endpoint that the API tells of: the token goes there.
func invokeURL(base *url.URL, endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the workload's endpoint is no address")
	}
	if !sameOrigin(u, base) {
		return nil, fmt.Errorf("the workload's endpoint is at another origin, %s, where the token does not go", clean(u.Scheme+"://"+u.Host, 200))
	}
	at := path.Clean(u.Path) + "/"
	if !strings.HasPrefix(at, invokePath) && !strings.HasPrefix(at, base.Path+"endpoints/workloads/") || at == invokePath {
		return nil, fmt.Errorf("the workload's endpoint, %s, is no invoke URL", clean(u.Path, 200))
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: at}, nil
}

// failed keeps why the container is of no more use, and returns it. The first
// reason stays.
func (r *remote) failed(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil {
		r.lost = err
	}
	return r.lost
}

func (r *remote) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// askAttempts is how often a question is asked that got no answer.
const askAttempts = 6

// ask puts a question that may be asked again, until there is an answer.
func (r *remote) ask(ctx context.Context, path string, head any, data []byte, out any) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		answer, err := r.once(ctx, path, head, data, out)
		if err == nil || !retryable(err) || attempt+1 >= askAttempts {
			return answer, err
		}
		if r.client.clock.sleep(ctx, backoff(attempt, err)) != nil {
			return nil, err
		}
	}
}

// once puts a question a single time. Its error is a lostError where the
// container can't be the one that was spoken to, an agentError, or an APIError
// that says whether asking again may help.
func (r *remote) once(ctx context.Context, path string, head any, data []byte, out any) ([]byte, error) {
	if err := r.err(); err != nil {
		return nil, err
	}
	number := r.number.Add(1)
	body, err := r.seal.close(path, number, head, data)
	if err != nil {
		return nil, err
	}
	a, err := r.client.exchange(ctx, exchange{
		method: http.MethodPost, at: r.endpoint.JoinPath(path), body: body, max: maxRemoteAnswer,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
	if err != nil {
		return nil, err
	}
	if err := r.judge(path, a); err != nil {
		return nil, err
	}
	told, rest, err := r.seal.open(path, number, a.body)
	if err != nil {
		return nil, r.failed(&lostError{why: "the container gave " + err.Error()})
	}
	var fault struct{ Error, Text string }
	if err := json.Unmarshal(told, &fault); err != nil {
		return nil, r.failed(&lostError{why: "the agent's answer is malformed", err: err})
	}
	if fault.Error == "replayed" { // somebody on the way sent it twice: ask anew
		return nil, &APIError{Op: path, Code: fault.Error, Detail: "a gateway repeated the request", Retryable: true}
	}
	if out != nil {
		if err := json.Unmarshal(told, out); err != nil {
			return nil, r.failed(&lostError{why: "the agent's answer is malformed", err: err})
		}
	}
	if fault.Error != "" {
		return nil, &agentError{fault.Error, fault.Text}
	}
	return rest, nil
}

// judge sorts the statuses: what is not the agent's answer comes from a gateway
// before it, or from an agent that has been started since.
func (r *remote) judge(path string, a answer) error {
	switch {
	case a.status == http.StatusOK && !a.cut:
		return nil
	case a.status == http.StatusConflict:
		return r.failed(&lostError{why: "the container was started again", restarted: true})
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return r.failed(&lostError{why: "the container is gone"})
	case slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, a.status):
		_, detail := errorBody([]byte(r.client.redact(string(a.body))))
		return r.failed(&lostError{why: fmt.Sprintf("the container can't be reached any more (HTTP %d: %s)", a.status, detail)})
	}
	_, detail := errorBody([]byte(r.client.redact(string(a.body[:min(len(a.body), maxDetail)]))))
	return &APIError{Op: "invoke " + path, Status: a.status, Detail: detail, Retryable: retryableStatus(a.status), after: retryAfter(a.header.Get("Retry-After"), time.Now())}
}

// hello gives the agent its key. Nobody but the first can; the same key again is
// the same hello, so that it may be repeated where the answer is lost.
func (r *remote) hello(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		err := r.helloOnce(ctx)
		if err == nil || !retryable(err) || attempt+1 >= askAttempts || r.client.clock.sleep(ctx, backoff(attempt, err)) != nil {
			return err
		}
	}
}

func (r *remote) helloOnce(ctx context.Context) error {
	a, err := r.client.exchange(ctx, exchange{
		method: http.MethodPost, at: r.endpoint.JoinPath("v1/hello"), body: r.seal.key[:], max: maxRemoteAnswer,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
	if err != nil {
		return err
	}
	if a.status == http.StatusConflict {
		return &lostError{why: "somebody else has claimed the container"}
	}
	if err := r.judge("v1/hello", a); err != nil {
		return err
	}
	told, _, err := r.seal.open("/v1/hello", 0, a.body)
	if err != nil {
		return &lostError{why: "the container gave " + err.Error()}
	}
	var head struct{ Protocol, Python string }
	if err := json.Unmarshal(told, &head); err != nil || head.Protocol != "sandboxd/1" {
		return &lostError{why: "the agent speaks another language", err: err}
	}
	r.python = clean(head.Python, 20)
	return nil
}

// limits are those that the interpreter starts with, by their names in Python's
// resource module.
func (w *Workload) limits() map[string]int64 {
	l := w.cfg.Limits
	return map[string]int64{
		"RLIMIT_CORE": 0, "RLIMIT_NOFILE": int64(l.OpenFiles), "RLIMIT_FSIZE": l.Disk,
		// Below the container's own limit, whose end is the end of all in it.
		"RLIMIT_DATA": max(w.cfg.Memory-agentMemory, w.cfg.Memory/2),
	}
}

// agentMemory is what of a container's memory is not the interpreter's, in bytes.
const agentMemory = 64 << 20

// start has the agent start interpreter number generation; the one before is
// ended with all that it has started.
func (r *remote) start(ctx context.Context, generation int64, limits map[string]int64) error {
	_, err := r.ask(ctx, "/v1/start", map[string]any{
		"generation": generation, "limits": limits,
		"options": map[string]any{"checkpoint": sandbox.CheckpointAlways},
	}, nil, nil)
	return err
}
