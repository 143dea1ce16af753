package workload

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	sweepEvery = time.Hour
	sweepLimit = 5 * time.Minute
	// foreignSlack is how long after its time a workload of a server of which
	// nothing is known is left alone: clocks differ.
	foreignSlack = time.Hour
)

// keepClean sweeps at the start and then hourly, until Close.
func (w *Workload) keepClean() {
	for {
		for _, t := range w.holdAll() {
			if w.end.Err() == nil {
				w.sweepFor(t)
			}
			w.drop(t)
		}
		if w.clock.sleep(w.end, sweepEvery) != nil {
			return
		}
	}
}

// holdAll gives all tenants there are, each of them held.
func (w *Workload) holdAll() []*tenant {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*tenant
	for _, t := range w.tenants {
		t.held++
		all = append(all, t)
	}
	return all
}

// sweepFor sweeps with one account, and says so. Close gives it up.
func (w *Workload) sweepFor(t *tenant) {
	ctx, cancel := w.clock.timeout(w.end, sweepLimit, errors.New("the sweep took too long"))
	defer cancel()
	n, err := w.sweep(ctx, t)
	switch {
	case w.end.Err() != nil:
	case err != nil:
		w.cfg.Logger.Warn("not all that earlier servers left could be deleted", "deleted", n, "err", err)
	case n > 0:
		w.cfg.Logger.Info("deleted what earlier servers left", "deleted", n)
	}
}

// sweep deletes the workloads, and then the artifacts, that nobody needs.
func (w *Workload) sweep(ctx context.Context, t *tenant) (deleted int, err error) {
	var errs []error
	for _, c := range []struct{ collection, prefix string }{{"workloads", workloadPrefix}, {"artifacts", artifactPrefix}} {
		found, err := t.client.list(ctx, c.collection, url.Values{"search": {c.prefix}})
		errs = append(errs, err)
		for _, r := range found {
			if ctx.Err() != nil || !w.orphan(r, time.Now()) {
				continue
			}
			id, artifactID := r.ID, r.ArtifactID
			if c.collection == "artifacts" {
				id, artifactID = "", r.ID
			}
			if err := t.client.remove(ctx, id, artifactID); err != nil {
				errs = append(errs, err)
				continue
			}
			deleted++
		}
	}
	return deleted, errors.Join(errs...)
}

// orphan reports whether a workload or artifact is ours and nobody's: of a
// server that has ended, of this one but not in its books, or of any one long
// after its time. All else may be in use.
func (w *Workload) orphan(r record, now time.Time) bool {
	m, ok := readMark(r.Description)
	if !ok || !ourName.MatchString(r.Name) {
		return false
	}
	switch {
	case m.Owner == w.cfg.Instance:
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.live[strings.Replace(r.Name, artifactPrefix, workloadPrefix, 1)]
	case slices.Contains(w.cfg.Dead, m.Owner):
		return true
	}
	return now.After(time.Unix(m.Expires, 0).Add(foreignSlack))
}
