package workload

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"mcp-sandbox/sandbox"
)

// tenant is one account: a client with its token, and what is known of it. It
// lives as long as somebody holds it. It is safe for concurrent use.
type tenant struct {
	key    [sha256.Size]byte
	client *client
	slots  limiter
	held   int // guarded by Workload.mu

	asking   chan struct{} // one token, for what is asked once; guards what follows
	limited  bool          // slots knows the account's limit
	context  bool          // the entitlement was asked for
	entitled bool
}

// hold gives the tenant of a token. Each hold is ended by a drop.
func (w *Workload) hold(token string) (*tenant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, sandbox.ErrClosed
	}
	key := sha256.Sum256([]byte(token))
	t := w.tenants[key]
	if t == nil {
		t = &tenant{key: key, asking: make(chan struct{}, 1), client: &client{
			base: w.base, token: token, http: w.http, log: w.cfg.Logger, clock: w.clock, limit: w.cfg.requestLimit,
		}}
		w.tenants[key] = t
		if w.cfg.CallerToken {
			t.held++ // by its own sweep: what it left behind earlier could not be deleted before
			w.wg.Go(func() {
				defer w.drop(t)
				w.sweepFor(t)
			})
		}
	}
	t.held++
	return t, nil
}

// again is hold for a tenant that is held already.
func (w *Workload) again(t *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.held++
}

// drop ends a hold. With the last one, the token is forgotten.
func (w *Workload) drop(t *tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.held--; t.held == 0 {
		delete(w.tenants, t.key)
	}
}

// slot waits until the account may have one more workload.
func (t *tenant) slot(ctx context.Context) error {
	t.learnLimit(ctx)
	return t.slots.acquire(ctx)
}

// learnLimit asks once how many workloads the account may have. Where that can't
// be learned, the platform's own refusals are waited out.
func (t *tenant) learnLimit(ctx context.Context) {
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return
	}
	if t.limited {
		return
	}
	ctx, cancel := t.client.clock.timeout(ctx, 10*time.Second, errors.New("the account's limits took too long"))
	defer cancel()
	a, err := t.client.account(ctx)
	if err != nil {
		t.client.log.Debug("limits of the account not known", "err", err)
		t.limited = ctx.Err() == nil // it was answered: no second time
		return
	}
	t.limited = true
	t.slots.set(a.MaxWorkloads)
}

// securityEntitlement allows an account to send a security context.
const securityEntitlement = "ENABLE_WORKLOAD_API_SECURITY_CONTEXT"

// securityContext is what to send; nil = none.
func (w *Workload) securityContext(ctx context.Context, t *tenant) *SecurityContext {
	switch w.cfg.Security {
	case SecurityOff:
		return nil
	case SecurityPrefer:
		if !t.mayHaveContext(ctx) {
			return nil
		}
	}
	return w.cfg.SecurityContext.wire()
}

func (t *tenant) mayHaveContext(ctx context.Context) bool {
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return false
	}
	if t.context {
		return t.entitled
	}
	ok, err := t.client.entitled(ctx, securityEntitlement)
	switch {
	case err != nil:
		t.client.log.Warn("containers run without a security context: the account's right to send one is not known", "entitlement", securityEntitlement, "unknown_name", errors.Is(err, errUnknownEntitlement), "err", err)
	case !ok:
		t.client.log.Warn("containers run without a security context: the account may not send one", "entitlement", securityEntitlement)
	}
	t.entitled, t.context = ok, err == nil
	return ok
}
