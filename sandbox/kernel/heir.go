package kernel

import (
	"context"
	"fmt"
)

// revived is what became of the variables when a standby took over.
type revived struct {
	after  int // the number of calls whose changes are there,
	before int // of so many that had begun
	notes  []string
}

// arrive: a worker takes requests, a fresh one or one that was a standby.
func (c *Client) arrive(e event) {
	tell, coming := &c.revived, 0
	if c.call != nil { // it has begun for us, and not for the one that died: see takeEvent
		tell, coming = &c.call.history.revived, 1
	}
	untold := *tell
	*tell = nil
	c.fresh = e.Restored == nil && coming == 0
	if e.Restored != nil {
		*tell = &revived{after: *e.Restored, before: c.ran - coming, notes: c.told}
		if untold != nil { // twice, and nobody was told of the first
			(*tell).before, (*tell).notes = untold.before, append(untold.notes, c.told...)
		}
		c.ran = *e.Restored + coming
	} else {
		c.ran = coming
	}
	c.heir, c.told, c.worker = false, nil, e.PID
}

// awaitHeir waits until a standby that takes over is ready, or what stands in for
// it. nil if that is a fresh worker. The supervisor waits for five seconds at most.
func (c *Client) awaitHeir() (*revived, error) {
	ctx, cancel := context.WithTimeout(context.Background(), heirWait+2*c.cfg.Distance)
	defer cancel()
	if err := c.awaitWorker(ctx); err != nil {
		c.fail(fmt.Errorf("no interpreter took over within %v", heirWait))
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	heir := c.revived
	c.revived, c.between = nil, nil // also of one that has died since: this call tells of both
	return heir, nil
}
