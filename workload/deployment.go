package workload

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// deployment is a workload of ours, from before its creation until it is
// deleted. While it lasts it holds one of the account's places.
type deployment struct {
	record
	w        *Workload
	t        *tenant
	names    names
	doubtful bool // more of its name may turn up

	once sync.Once // for remove
}

const (
	// removeLimit is how long a deletion is tried; the janitor does the rest.
	removeLimit = 90 * time.Second
	// slack is what a workload may live on after its time is up, in its mark.
	slack = 10 * time.Minute
)

// launch creates a workload for t that nobody needs after life. fill gets the
// request without its variables. ctx bounds the wait for a place as well as the
// creation. Where it fails, what may have been created is deleted.
func (w *Workload) launch(ctx context.Context, t *tenant, life time.Duration, fill func(*createRequest)) (*deployment, error) {
	if err := t.slot(ctx); err != nil {
		return nil, err
	}
	d := &deployment{w: w, t: t, names: newNames()}
	w.adopt(d)
	req := w.newCreateRequest(d.names, newMark(w.cfg.Instance, time.Now(), life+slack).String())
	req.container().SecurityContext = w.securityContext(ctx, t)
	fill(&req)
	var err error
	d.record, d.doubtful, err = t.client.create(ctx, req)
	if w.cfg.Security == SecurityPrefer && req.container().SecurityContext != nil && refusesContext(err) {
		w.cfg.Logger.Warn("containers run without a security context: the cluster refused it", "err", err)
		req.container().SecurityContext = nil
		doubtful := d.doubtful // of the first request's attempts
		d.record, d.doubtful, err = t.client.create(ctx, req)
		d.doubtful = d.doubtful || doubtful
	}
	if err != nil {
		d.remove()
		return nil, w.refused(err)
	}
	w.cfg.Logger.Info("workload created", "name", d.Name, "id", d.ID)
	return d, nil
}

// refusesContext reports whether a create failed for its security context.
func refusesContext(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && (e.Status == http.StatusForbidden || e.Status == http.StatusUnprocessableEntity) &&
		strings.Contains(strings.ToLower(e.Detail), "securitycontext")
}

// adopt takes a deployment into the books: the janitor leaves it alone.
func (w *Workload) adopt(d *deployment) {
	w.again(d.t)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[d.names.workload] = true
}

// remove deletes the workload and its artifact, in the background; Workload.Close
// waits for it. It may be called twice.
func (d *deployment) remove() {
	d.once.Do(func() { d.w.wg.Go(d.removeNow) })
}

func (d *deployment) removeNow() {
	w, start := d.w, d.w.clock.now()
	ctx, cancel := w.clock.timeout(context.Background(), w.cfg.removeLimit, errors.New("deleting took too long"))
	defer cancel()
	defer w.drop(d.t)
	var err error
	if d.ID != "" {
		err = d.t.client.remove(ctx, d.ID, "")
	}
	d.t.slots.release()
	if err == nil && d.ID != "" {
		err = d.t.client.remove(ctx, "", d.ArtifactID)
	}
	if d.doubtful || d.ID != "" && d.ArtifactID == "" {
		err = errors.Join(err, d.scour(ctx))
	}
	w.mu.Lock()
	delete(w.live, d.names.workload)
	if err != nil {
		w.left++
	}
	w.mu.Unlock()
	if err != nil {
		w.cfg.Logger.Warn("workload not deleted yet", "name", d.names.workload, "id", d.ID, "err", err)
		return
	}
	if d.ID == "" { // it was refused, or a lost one was looked for
		w.cfg.Logger.Debug("no workload is left", "name", d.names.workload)
		return
	}
	w.cfg.Logger.Info("workload deleted", "name", d.names.workload, "id", d.ID, "took", w.clock.now().Sub(start))
}

// scourWaits are before each look for what a lost request may have created.
func scourWaits() []time.Duration {
	return []time.Duration{0, 2 * time.Second, 8 * time.Second, 20 * time.Second}
}

// scour looks by name for workloads and artifacts, until it has seen for long
// enough that there are none.
func (d *deployment) scour(ctx context.Context) error {
	var errs []error
	for _, wait := range scourWaits() {
		if err := d.w.clock.sleep(ctx, wait); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = nil // what failed may be done now
		for _, c := range []struct{ collection, name string }{{"workloads", d.names.workload}, {"artifacts", d.names.artifact}} {
			found, err := d.t.client.named(ctx, c.collection, c.name)
			errs = append(errs, err)
			for _, r := range found {
				if c.collection == "workloads" {
					errs = append(errs, d.t.client.remove(ctx, r.ID, r.ArtifactID))
				} else {
					errs = append(errs, d.t.client.remove(ctx, "", r.ID))
				}
			}
		}
		if d.ID != "" && !d.doubtful { // only the artifact's id was not known
			return errors.Join(errs...)
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
