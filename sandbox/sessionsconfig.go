package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"
)

// SessionsConfig says how many sessions there may be, and for how long.
type SessionsConfig struct {
	Sandbox       Sandbox          // opens sessions; required
	Idle          time.Duration    // a session unused for so long is hibernated, or ends where that can't be; 0 = 30 min
	MaxAge        time.Duration    // a session ends this long after its start, once no call runs; 0 = 24 h
	MaxSessions   int              // awake at once; beyond it the longest idle one of who has the most is hibernated, or ends; 0 = 256
	MaxHibernated int              // asleep at once; beyond it the longest unused one of who has the most ends; 0 = 1000
	Keep          bool             // Close saves sessions for the next server; needs a Keeper
	SaveTime      time.Duration    // that Close may take for it; 0 = 20 s
	MaxRunning    int              // calls running at once; 0 = four for each core
	MaxQueue      int              // calls waiting for a place; 0 = 64 × MaxRunning
	Quotas        map[string]Quota // by principal; who is not named has none of their own
	Log           *slog.Logger     // nil = none
}

func (c SessionsConfig) resolve() (SessionsConfig, error) {
	var errs []error
	if c.Sandbox == nil {
		errs = append(errs, errors.New("no sandbox"))
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{{"session-idle", &c.Idle, 30 * time.Minute}, {"session-max-age", &c.MaxAge, 24 * time.Hour}, {"save time", &c.SaveTime, 20 * time.Second}} {
		if *d.v < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", d.name, *d.v))
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	for _, n := range []struct {
		name string
		v    *int
		def  int
	}{{"max-sessions", &c.MaxSessions, 256}, {"max-hibernated", &c.MaxHibernated, 1000}, {"max-running", &c.MaxRunning, 4 * runtime.GOMAXPROCS(0)}} {
		if *n.v < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", n.name, *n.v))
		}
		if *n.v == 0 {
			*n.v = n.def
		}
	}
	if _, ok := c.Sandbox.(Keeper); c.Keep && !ok {
		errs = append(errs, errors.New("no session of this sandbox can be kept for the next server"))
	}
	if c.MaxQueue < 0 {
		errs = append(errs, fmt.Errorf("max-queue: %d is negative", c.MaxQueue))
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = 64 * c.MaxRunning
	}
	if err := checkQuotas(c.Quotas); err != nil {
		errs = append(errs, err)
	}
	c.Quotas = maps.Clone(c.Quotas)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
