package workload

import (
	"context"
	"time"
)

// clock tells the time and waits. Its zero value is the real one; a test's runs
// faster, so that the platform's minutes take it seconds. It is a value, and
// safe for concurrent use.
type clock struct {
	speed float64   // how much faster than the world; 0 = 1
	start time.Time // what both agree on; used where speed is set
}

func newClock(speed float64) clock { return clock{speed: speed, start: time.Now()} }

func (c clock) now() time.Time {
	if c.speed == 0 {
		return time.Now()
	}
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.speed))
}

// real is how long d takes in the world.
func (c clock) real(d time.Duration) time.Duration {
	if c.speed == 0 || d <= 0 {
		return d
	}
	return max(time.Duration(float64(d)/c.speed), 1)
}

// of is how much time passes by this clock while d does in the world.
func (c clock) of(d time.Duration) time.Duration {
	if c.speed == 0 {
		return d
	}
	return time.Duration(float64(d) * c.speed)
}

// sleep waits for d, or until ctx ends, whose cause it then returns.
func (c clock) sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := time.NewTimer(c.real(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// timeout is ctx with an end after d, whose cause is why.
func (c clock) timeout(ctx context.Context, d time.Duration, why error) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.real(d), why)
}
