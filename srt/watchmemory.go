package srt

import (
	"fmt"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// checkMemory holds the limit of memory where no control group does.
func (w *watchdog) checkMemory(held held) {
	limit := w.policy.Memory + watchAllowance
	used, err := memoryOf(w.cage.kin, limit, held)
	w.near = err == nil && used > limit/2
	if err == nil && used > limit && used < 2*limit {
		// A child between vfork and exec shares all its parent has, and counts twice.
		time.Sleep(20 * time.Millisecond)
		used, err = memoryOf(w.cage.kin, limit, held)
	}
	if err != nil || used <= limit {
		return // an error: it has ended meanwhile
	}
	if w.giveUpStandby(used - limit) {
		return
	}
	w.enforce(ruling{end, fmt.Sprintf("The session went beyond its memory limit of %s.", kernel.Bytes(w.policy.Memory))}, sandbox.StatusOOM)
}

func (w *watchdog) standby() int {
	_, pid := w.client.Processes()
	return pid
}

// giveUpStandby ends the standby if that frees so much, and enough to be worth a checkpoint:
// an eighth of the limit. It reports whether it did.
func (w *watchdog) giveUpStandby(excess int64) bool {
	worker, standby := w.client.Processes()
	if worker == 0 || standby == 0 {
		return false
	}
	own, err := ownMemory(w.cage.kin, standby)
	// In this order: what the two share is the standby's own once the worker is dying, and
	// then it is needed.
	if err != nil || own < max(excess, w.policy.Memory/8) || dying(w.cage.kin, worker) {
		return false
	}
	err = w.client.Discard()
	w.log.Info("a session is short of memory: its checkpoint is given up", "bytes", own, "err", err)
	return err == nil
}
