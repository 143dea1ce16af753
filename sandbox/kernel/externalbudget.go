package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcp-sandbox/sandbox"
)

// errTimeSpent is why calls end whose time together is over.
var errTimeSpent = errors.New("the time of external calls is spent")

// clock adds up the time of calls that run side by side. It is guarded by
// externals.mu.
type clock struct {
	limit  time.Duration
	spent  time.Duration // until since
	since  time.Time
	under  int         // calls under way
	timer  *time.Timer // fires when it is over; nil = nothing has begun
	closed bool
}

// turn counts what has passed, and from now on n calls more; over is called when the
// time is, if nothing turns before.
func (k *clock) turn(n int, over func()) {
	now := time.Now()
	if k.under > 0 {
		k.spent += time.Duration(k.under) * now.Sub(k.since)
	}
	k.since = now
	k.under += n
	switch {
	case k.closed:
	case k.under == 0:
		k.timer.Stop()
	case k.timer == nil:
		k.timer = time.AfterFunc(k.left(), over)
	default:
		k.timer.Reset(k.left())
	}
}

// left is until all of it is spent, rounded up, so that the timer need not fire twice.
func (k *clock) left() time.Duration {
	return max(0, k.limit-k.spent)/time.Duration(k.under) + 1
}

func (k *clock) over() bool { return k.spent >= k.limit }

func (k *clock) stop() {
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

// admit says whether a call may begin, and that it does; leave is then called at its
// end.
func (e *externals) admit(x *external) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return context.Canceled
	}
	if e.clock.over() {
		return e.timeSpent()
	}
	x.begun = time.Now()
	if err := e.overweight(); err != nil {
		return err
	}
	e.clock.turn(1, e.runOut)
	return nil
}

func (e *externals) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clock.turn(-1, e.runOut)
}

// runOut ends what is under way when the time is spent.
func (e *externals) runOut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.turn(0, e.runOut); e.clock.over() && !e.closed {
		e.cancel(errTimeSpent)
	}
}

// timeSpent is the fault of a call for which no time is left.
func (e *externals) timeSpent() error {
	return &sandbox.ExternalError{
		Fault: sandbox.ExternalDenied,
		Text:  fmt.Sprintf("the external tools called have taken %v together, which is all the time that one call of the session has for them", e.limits.Time),
	}
}

// weigh counts the bytes of a result.
func (e *externals) weigh(size int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += int64(size)
	return e.overweight()
}

// overweight is the fault of a call whose bytes are beyond what is allowed. mu is held.
func (e *externals) overweight() error {
	if e.bytes <= e.limits.Bytes {
		return nil
	}
	return &sandbox.ExternalError{
		Fault: sandbox.ExternalDenied,
		Text:  fmt.Sprintf("the arguments and results of the external tools called are more than the %s that one call of the session may move", Bytes(e.limits.Bytes)),
	}
}
