package workloadtest

import (
	"context"
	"time"
)

// clock runs faster than the platform's by speed: all waiting of the emulator
// goes through it. What o'clock it is, it does not change: a client that
// compares a record's time with its own must find it true.
type clock struct{ speed float64 }

// scale is how long d of the platform takes here.
func (c clock) scale(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.speed)
}

// sleep waits for d of the platform, or for ctx, whose error it returns.
func (c clock) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(c.scale(d))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stamp is a record's time as the platform writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// rowStamp is a log row's: Python's str(datetime).
func rowStamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000-07:00") }
