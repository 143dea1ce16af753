package workload

import (
	"context"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// Delays between two looks at a run: the first, doubling up to the last.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// watch follows a run until it is over. The log and the record are looked at side
// by side: each may hang, or tell rubbish, while the other has the answer.
func (w *Workload) watch(ctx context.Context, d *deployment, v *vigil) (sandbox.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()

	news := make(chan func(now time.Time)) // applied here alone
	details := make(chan struct{}, 1)      // the replicas' state would help
	tell := func(f func(time.Time)) {
		select {
		case news <- f:
		case <-ctx.Done():
		}
	}
	looking.Go(func() {
		w.repeat(ctx, func() {
			rows, cut, err := d.t.client.logs(ctx, d.ID)
			tell(func(now time.Time) {
				v.cut = cut && err == nil || v.cut
				v.sawLog(now, rows, err)
			})
		})
	})
	looking.Go(func() {
		w.repeat(ctx, func() {
			r, err := d.t.client.record(ctx, d.ID)
			tell(func(now time.Time) { v.sawRecord(now, r, err) })
		})
	})
	looking.Go(func() {
		for {
			select {
			case <-details:
			case <-ctx.Done():
				return
			}
			s, err := d.t.client.statusDetails(ctx, d.ID, d.ProtonID)
			if err != nil {
				w.cfg.Logger.Debug("status details not known", "id", d.ID, "err", err)
			}
			tell(func(now time.Time) { v.sawDetails(now, s) })
			_ = w.clock.sleep(ctx, firstPoll)
		}
	})
	tick := time.NewTicker(w.clock.real(lastPoll / 4)) // for what is decided by time alone
	defer tick.Stop()
	for {
		select {
		case f := <-news:
			f(w.clock.now())
		case <-tick.C:
		case <-ctx.Done():
			return sandbox.Result{}, context.Cause(ctx)
		}
		if res, err, over := v.end(w.clock.now()); over {
			return res, err
		}
		if v.wantsDetails() {
			select {
			case details <- struct{}{}:
			default: // asked already
			}
		}
	}
}

// repeat does something again and again, at growing intervals, until ctx ends.
func (w *Workload) repeat(ctx context.Context, do func()) {
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		do()
		if w.clock.sleep(ctx, wait) != nil {
			return
		}
	}
}
