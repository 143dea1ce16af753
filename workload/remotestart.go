package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// draftLife is how long the platform keeps a draft, from its creation on.
	draftLife = 8 * time.Hour
	// draftMargin is how much earlier a session gives its container up: longer
	// than any call.
	draftMargin = 15 * time.Minute

	firstKnock = 250 * time.Millisecond // between two looks for whether the agent is there; doubles
	lastKnock  = 2 * time.Second
)

// errWay is a container that can't start in the way that was tried.
var errWay = errors.New("the image does not start that way")

// newRemote creates a container and claims its agent, within the provisioning
// time. Where it fails, nothing is left.
func (w *Workload) newRemote(ctx context.Context, t *tenant) (*remote, error) {
	late := fmt.Errorf("no container was ready within %v; --workload-provisioning-timeout allows more", w.cfg.Provisioning)
	ctx, cancel := w.clock.timeout(ctx, w.cfg.Provisioning, late)
	defer cancel()
	vars, err := agentVars()
	if err != nil {
		return nil, err
	}
	r, err := w.newRemoteBy(ctx, t, vars, byEntrypoint)
	if errors.Is(err, errWay) {
		w.cfg.Logger.Warn("the agent starts by the image's own program", "because", err)
		r, err = w.newRemoteBy(ctx, t, vars, byRunner)
	}
	return r, err
}

func (w *Workload) newRemoteBy(ctx context.Context, t *tenant, vars []envVar, by way) (_ *remote, err error) {
	begun := time.Now()
	d, err := w.launch(ctx, t, draftLife, func(r *createRequest) { fillAgent(r, vars, by, w.cfg.lease) })
	if err != nil {
		if by == byEntrypoint && refusesEntrypoint(err) {
			err = fmt.Errorf("%w: %w", errWay, err)
		}
		return nil, err
	}
	r := &remote{deployment: d, client: t.client, seal: newSeal(), expires: begun.Add(w.clock.real(draftLife - draftMargin))}
	defer func() {
		if err != nil {
			d.remove()
		}
	}()
	if err := r.await(ctx, by); err != nil {
		return nil, err
	}
	if err := r.hello(ctx); err != nil {
		return nil, err
	}
	w.cfg.Logger.Info("remote session ready", "id", d.ID, "python", r.python, "took", w.clock.now().Sub(begun))
	return r, nil
}

// refusesEntrypoint reports whether a create failed for the program that the
// container was to run.
func refusesEntrypoint(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.Status >= 400 && e.Status < 500 && strings.Contains(strings.ToLower(e.Detail), "entrypoint")
}

// await returns when the agent answers. What the platform says of the container
// meanwhile decides only where nothing better can follow.
func (r *remote) await(ctx context.Context, by way) error {
	var hint error // the platform's last word on what is in the way
	for look, looks := firstKnock, 0; ; looks++ {
		err := r.knock(ctx)
		if err == nil {
			return nil
		}
		if looks%2 == 1 || statusOf(err) == 0 {
			found := r.inspect(ctx, by)
			if errors.Is(found, errHopeless) || errors.Is(found, errWay) {
				return found
			}
			hint = cmp.Or(found, hint)
		}
		if ctx.Err() == nil && !waits(err) {
			return err
		}
		if cause := r.client.clock.sleep(ctx, look); cause != nil {
			if errors.Is(cause, context.Canceled) {
				return cause
			}
			return fmt.Errorf("%w: %w", cause, cmp.Or(hint, err))
		}
		look = min(2*look, lastKnock)
	}
}

// knock asks the agent whether it is there.
func (r *remote) knock(ctx context.Context) error {
	if r.endpoint == nil {
		u, err := invokeURL(r.client.base, r.deployment.Endpoint)
		if err != nil && r.deployment.Endpoint != "" {
			return err
		}
		if err != nil { // the record did not have it yet
			return errNotYet
		}
		r.endpoint = u
	}
	a, err := r.client.exchange(ctx, exchange{method: http.MethodGet, at: r.endpoint.JoinPath("healthz"), max: 4 << 10})
	if err != nil {
		return err
	}
	if a.status == http.StatusOK && string(a.body) == "ok\n" {
		return nil
	}
	_, detail := errorBody([]byte(r.client.redact(string(a.body[:min(len(a.body), maxDetail)]))))
	return &APIError{Op: "GET healthz", Status: a.status, Detail: detail, Retryable: retryableStatus(a.status) || a.status == http.StatusNotFound || a.status == http.StatusOK}
}

var (
	errNotYet   = errors.New("the workload has no endpoint yet")
	errHopeless = errors.New("the container can't start")
)

// waits reports whether what knock met is no more than a container that is not
// there yet: a gateway's 502 to 504, or no record of it so shortly after.
func waits(err error) bool { return errors.Is(err, errNotYet) || retryable(err) }

// inspect asks the platform about a container that does not answer, for what is in
// the way; nil = nothing that it knows. It is errHopeless or errWay where waiting
// longer is in vain: an image that is merely not there at the moment is tried again
// by the platform, often with success.
func (r *remote) inspect(ctx context.Context, by way) error {
	rec, err := r.client.record(ctx, r.deployment.ID)
	if err != nil {
		return nil // just created, or deleted, or not reached: the next look will tell
	}
	if r.deployment.Endpoint == "" {
		r.deployment.Endpoint = rec.Endpoint
	}
	if r.deployment.ArtifactID == "" {
		r.deployment.ArtifactID = rec.ArtifactID
	}
	switch phaseOf(rec.Status) {
	case final:
		return fmt.Errorf("%w: the workload is %s", errHopeless, rec.Status)
	case up:
		return nil
	}
	seen, err := r.client.statusDetails(ctx, r.deployment.ID, rec.ProtonID)
	if err != nil || seen == nil {
		return nil
	}
	what := seen.obstacle()
	switch c := seen.sandbox(); {
	case c != nil && by == byEntrypoint && (c.neverStarted || c.Exited && (c.ExitCode == 126 || c.ExitCode == 127)):
		return fmt.Errorf("%w: %s", errWay, join(c.ExitReason, c.ExitMessage))
	case c != nil && c.Exited && c.Restarts > 2:
		return fmt.Errorf("%w: it ended with code %d, again and again: %s", errHopeless, c.ExitCode, clean(join(c.ExitReason, c.ExitMessage)+" "+rec.LogTail, 500))
	case what == "":
		return nil
	case hopeless(what):
		return fmt.Errorf("%w: %s", errHopeless, what)
	}
	return errors.New(what)
}

// hopeless reports whether an obstacle stays, however long one waits.
func hopeless(what string) bool {
	for _, sign := range []string{"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "manifest unknown", "not found", "no match for platform", "exec format error"} {
		if strings.Contains(what, sign) {
			return true
		}
	}
	return false
}

// ending asks the platform how a container that is lost has ended. oom is the
// memory limit's doing; restarted, that of what ran in it, most likely.
func (r *remote) ending(ctx context.Context) (oom, restarted bool, words string) {
	seen, err := r.client.statusDetails(ctx, r.deployment.ID, "")
	if err != nil {
		return false, false, ""
	}
	c := seen.sandbox()
	if c == nil || !c.Exited {
		return false, false, ""
	}
	words = fmt.Sprintf("it ended with exit code %d", c.ExitCode)
	if c.ExitReason != "" {
		words += ", " + clean(c.ExitReason, 100)
	}
	return c.ExitReason == "OOMKilled", c.ExitReason != "Evicted", words
}
