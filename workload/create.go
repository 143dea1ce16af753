package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Creating is the one call that must not simply be made again: what was lost
// may be the answer alone, and then there would be two workloads, of which one
// has no owner. So each has a name of its own, by which it is looked for.

const (
	createAttempts = 6
	capWait        = 2 * time.Second // before an account that is full is tried again
)

// errLost is part of the error of a create whose workload may exist: who asked
// must see to it that what has the name is deleted.
var errLost = errors.New("the workload may exist nevertheless")

// create makes a workload. It is asked for again, under the same name, where that
// can't make two. doubtful says that more of that name may turn up than the one
// returned, or, beside an error, that one may.
func (c *client) create(ctx context.Context, in createRequest) (r record, doubtful bool, err error) {
	for attempt := 0; ; attempt++ {
		r, err = c.post(ctx, in)
		switch {
		case err == nil:
			return r, doubtful, nil
		case neverSent(err):
		case overCap(err):
			attempt = min(attempt, createAttempts-2) // ctx bounds the wait for others to end
		case retryable(err), statusOf(err) == http.StatusConflict:
			doubtful = doubtful || retryable(err)
			if found, ok := c.find(ctx, in.Name); ok {
				return found, doubtful, nil
			}
			if !retryable(err) {
				return record{}, doubtful, err
			}
		default:
			return record{}, doubtful, err
		}
		wait := backoff(attempt, err)
		if overCap(err) {
			wait += capWait
		}
		if attempt+1 >= createAttempts || c.clock.sleep(ctx, wait) != nil {
			return record{}, doubtful, lost(err, doubtful)
		}
	}
}

func lost(err error, doubtful bool) error {
	if doubtful {
		return fmt.Errorf("%w (%w)", err, errLost)
	}
	return err
}

// post asks once. An answer without an id is as good as lost.
func (c *client) post(ctx context.Context, in createRequest) (record, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return record{}, fmt.Errorf("create: %w", err)
	}
	var r workloadRecord
	r1 := call{method: http.MethodPost, path: "workloads/", out: &r}
	if err := c.once(ctx, r1, body); err != nil {
		return record{}, err
	}
	if r.ID == "" {
		return record{}, &APIError{Op: "POST workloads/", Status: http.StatusCreated, Code: "body", Detail: "response missing workload id", Retryable: true}
	}
	return r.record, nil
}

// findWaits are before each look for a workload whose creation was not
// confirmed: the platform need not know at once what it has created.
func findWaits() []time.Duration { return []time.Duration{0, 2 * time.Second, 6 * time.Second} }

// find looks for a workload by its name.
func (c *client) find(ctx context.Context, name string) (record, bool) {
	for _, wait := range findWaits() {
		if c.clock.sleep(ctx, wait) != nil {
			return record{}, false
		}
		found, err := c.named(ctx, "workloads", name)
		if err != nil {
			c.log.Debug("workload not found by its name", "name", name, "err", err)
		}
		if len(found) > 0 {
			return found[0], true
		}
	}
	return record{}, false
}
