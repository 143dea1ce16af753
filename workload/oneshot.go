package workload

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// oneShot is a session that remembers nothing: each call has a container of its
// own. It is safe for concurrent use; calls take turns.
type oneShot struct {
	w *Workload
	t *tenant

	turn   chan struct{} // holds one token while a call is under way
	end    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
}

var _ sandbox.Session = (*oneShot)(nil)

func newOneShot(w *Workload, t *tenant) *oneShot {
	end, cancel := context.WithCancelCause(context.Background())
	return &oneShot{w: w, t: t, turn: make(chan struct{}, 1), end: end, cancel: cancel}
}

// MaxEnv is how many bytes of code, and of inputs as JSON, fit into an
// environment variable of a container, of which the kernel takes 128 KiB each.
const MaxEnv = 98_286

// Run implements sandbox.Session.
func (s *oneShot) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	vars, nonce, err := s.w.variables(req)
	if err != nil {
		return sandbox.Result{}, err
	}
	if err := s.w.sameCaller(ctx, s.t); err != nil {
		return sandbox.Result{}, err
	}
	ctx, stop := s.join(ctx)
	defer stop()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return sandbox.Result{}, context.Cause(ctx)
	}
	if s.end.Err() != nil {
		return sandbox.Result{}, sandbox.ErrClosed
	}
	start := s.w.clock.now()
	res, err := s.run(ctx, limitOf(req), vars, nonce)
	if ctx.Err() != nil && res.Status == "" {
		err = context.Cause(ctx)
		if !errors.Is(err, sandbox.ErrClosed) {
			res.Status, res.ExitCode, res.Error = sandbox.StatusCancelled, sandbox.StatusCancelled.ExitCode(), "The caller went away; the container is deleted."
		}
	}
	if res.Status != "" {
		res.State, res.Backend, res.Code = sandbox.StateNone, "workload", req.Code
		res.Provisioning = max(0, s.w.clock.now().Sub(start)-res.Duration)
	}
	return res, err
}

func limitOf(req sandbox.Request) time.Duration {
	if req.Timeout == 0 {
		return sandbox.DefaultTimeout
	}
	return req.Timeout
}

// join makes a call's context end with the session.
func (s *oneShot) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.end, func() { cancel(context.Cause(s.end)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Reset implements sandbox.Session: there is nothing to forget.
func (s *oneShot) Reset(context.Context) error {
	if s.end.Err() != nil {
		return sandbox.ErrClosed
	}
	return nil
}

// Close implements sandbox.Session. The container of a call that was under way is
// deleted in the background; Workload.Close waits for that.
func (s *oneShot) Close() error {
	s.once.Do(func() {
		s.cancel(sandbox.ErrClosed)
		s.turn <- struct{}{} // the call has returned
		<-s.turn
		s.w.drop(s.t)
	})
	return nil
}

// variables are what the container is given for a request: the published
// runner's own, and what our program finds besides.
func (w *Workload) variables(req sandbox.Request) (vars []envVar, nonce string, err error) {
	if err := req.Check(); err != nil {
		return nil, "", err
	}
	if req.Externals != nil {
		return nil, "", fmt.Errorf("where each call has a container of its own, its code can't call external tools: %w", errors.ErrUnsupported)
	}
	packed, err := compress([]byte(req.Code))
	if err != nil {
		return nil, "", errInfra(false, err)
	}
	switch {
	case w.cfg.Bare && len(req.Code) > MaxEnv:
		return nil, "", sandbox.Invalid("code is %d bytes; at most %d are allowed where each call has a container of its own", len(req.Code), MaxEnv)
	case len(packed) > MaxEnv:
		return nil, "", sandbox.Invalid("code is %d bytes, and %d compressed; at most %d compressed are allowed where each call has a container of its own: pass data in inputs", len(req.Code), len(packed), MaxEnv)
	}
	inputs, err := encodeInputs(req.Inputs)
	if err != nil {
		return nil, "", err
	}
	nonce = newNonce()
	code, timeout := req.Code, limitOf(req)
	if !w.cfg.Bare {
		vars = append(vars, envVar{"DRX_CODE_ZB64", encode64(packed)})
		if code, err = onceProgram(settings{Nonce: nonce, Timeout: timeout.Seconds(), Output: w.cfg.Limits.Output}); err != nil {
			return nil, "", errInfra(false, err)
		}
	}
	return append(vars,
		envVar{"DR_SANDBOX_CODE_B64", encode64([]byte(code))},
		envVar{"DR_SANDBOX_INPUTS_B64", encode64(inputs)},
		envVar{"DR_SANDBOX_TIMEOUT_SECS", strconv.Itoa(max(1, int(timeout/time.Second)))},
	), nonce, nil
}

func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// encodeInputs is {} for none, which is what the runner would take it for.
func encodeInputs(inputs map[string]any) ([]byte, error) {
	if inputs == nil {
		inputs = map[string]any{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(inputs); err != nil {
		return nil, sandbox.Invalid("inputs can't be given as JSON: %v", err)
	}
	encoded := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(encoded) > MaxEnv {
		return nil, sandbox.Invalid("inputs are %d bytes as JSON; at most %d are allowed where each call has a container of its own", len(encoded), MaxEnv)
	}
	return encoded, nil
}

func newNonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// run is one container from its creation to its deletion, which goes on after run
// has returned.
func (s *oneShot) run(ctx context.Context, timeout time.Duration, vars []envVar, nonce string) (sandbox.Result, error) {
	w := s.w
	v := &vigil{nonce: nonce, timeout: timeout, codeTime: w.clock.of(timeout + grace), provisioning: w.cfg.Provisioning, memory: w.cfg.Memory, keep: w.cfg.Limits.Output, began: w.clock.now()}
	starting, cancel := w.clock.timeout(ctx, w.cfg.Provisioning, errors.New("the platform did not accept the workload in time"))
	d, err := w.launch(starting, s.t, w.cfg.Provisioning+timeout+grace+lateLog, func(r *createRequest) {
		r.container().EnvironmentVars = vars
	})
	late := context.Cause(starting) // if it was
	cancel()
	if err != nil {
		if ctx.Err() == nil && late != nil {
			err = fmt.Errorf("%w: %w", late, err)
		}
		return sandbox.Result{}, refusal(err)
	}
	defer d.remove()
	return w.watch(ctx, d, v)
}

// refusal is a workload that was not created, which is the platform's doing:
// what could be wrong with the request itself was looked at before; but a caller's
// own token is the caller's.
func refusal(err error) error {
	if _, known := errors.AsType[*sandbox.Error](err); known {
		return err
	}
	return errInfra(false, err)
}
