package sandbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

// The end of the server does not wait for ever.
func TestSavingHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{hibernate: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		s := sleepy(t, sandbox.SessionsConfig{Keep: true, SaveTime: time.Second}, f)
		for i := range 50 {
			run(t, s, sandbox.Caller{Principal: "ann", Connection: fmt.Sprint(i)}, "")
		}
		start := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second || f.count("leave") != 50 {
			t.Errorf("took %v, %d left", took, f.count("leave"))
		}
	})
}

// Sessions that take for ever to be saved take neither the time of their own principal's
// others, nor that of a stranger's.
func TestSavingIsFair(t *testing.T) {
	for name, c := range map[string]struct {
		slow, quick map[string]int // sessions of each principal
	}{
		"of one":       {map[string]int{"ann": 30}, map[string]int{"ann": 20}},
		"of a crowd's": {map[string]int{"mallory": 500}, map[string]int{"ann": 20, "bob": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow sync.Map // by id
				f := &sleepers{hibernate: func(ctx context.Context, id string) error {
					if _, ok := slow.Load(id); ok {
						<-ctx.Done()
						time.Sleep(10 * time.Second) // it does not obey at once either
						return ctx.Err()
					}
					time.Sleep(50 * time.Millisecond)
					return ctx.Err()
				}}
				s := sleepy(t, sandbox.SessionsConfig{Keep: true, MaxSessions: 1000}, f)
				for who, n := range c.slow {
					for i := range n {
						_, id := run(t, s, sandbox.Caller{Principal: who, Connection: fmt.Sprint("slow", i)}, "")
						slow.Store(id, true)
					}
				}
				var quick []string
				for who, n := range c.quick {
					for i := range n {
						_, id := run(t, s, sandbox.Caller{Principal: who, Connection: fmt.Sprint("quick", i)}, "")
						quick = append(quick, id)
					}
				}
				// The slow ones were used last: they come first.
				for who, n := range c.slow {
					for i := range n {
						run(t, s, sandbox.Caller{Principal: who, Connection: fmt.Sprint("slow", i)}, "")
					}
				}
				start := time.Now()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > 31*time.Second {
					t.Errorf("took %v", took)
				}
				for _, id := range quick {
					if !f.saw("hibernate", id) || !f.saw("leave", id) {
						t.Errorf("%s was not saved", id)
					}
				}
			})
		})
	}
}

// A session that an earlier server left is not opened beyond its greatest age.
func TestKeptTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old, young = "3f2b8a52-0a0f-4a11-8a6c-0f6f6f0d1c01", "3f2b8a52-0a0f-4a11-8a6c-0f6f6f0d1c02"
		f := &sleepers{kept: []sandbox.Kept{
			{Spec: sandbox.Spec{ID: old, Principal: "ann", Created: time.Now().Add(-25 * time.Hour)}, Used: time.Now().Add(-24 * time.Hour)},
			{Spec: sandbox.Spec{ID: young, Principal: "ann", Created: time.Now().Add(-23 * time.Hour)}, Used: time.Now().Add(-22 * time.Hour)},
		}}
		s := sleepy(t, sandbox.SessionsConfig{Keep: true, MaxAge: 24 * time.Hour}, f)
		ann := sandbox.Caller{Principal: "ann"}
		if res, _, err := s.Run(t.Context(), ann, old, sandbox.Request{Code: "1"}); err == nil || !strings.Contains(err.Error(), "unknown session") {
			t.Errorf("%+v, %v", res, err)
		}
		if res, _ := run(t, s, ann, young); res.State != sandbox.StateRestored {
			t.Errorf("%+v", res)
		}
		synctest.Wait()
		if !f.saw("discard", old) || f.saw("discard", young) {
			t.Errorf("%q", f.events)
		}
	})
}
