package sandbox_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// refusedOf sends a call to each of ann's sessions at once ("" = a fresh one), then has
// bob send one; it returns the ids of ann's that were refused, once all are answered.
func refusedOf(t *testing.T, s *sandbox.Sessions, ids []string) (refused []string) {
	t.Helper()
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, id := range ids {
		calls.Go(func() {
			_, id, err := s.Run(t.Context(), nobody("ann"), id, sandbox.Request{Code: "1"})
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if refused = append(refused, id); !errors.Is(err, sandbox.ErrFull) {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	start := time.Now()
	run(t, s, nobody("bob"), "")
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("bob's one call waited %v behind ann's of a second each", took)
	}
	calls.Wait()
	return refused
}

// One principal whose calls wait in as many sessions as there may be shuts out
// itself alone: another gets the place of one that has not begun.
func TestOneWhoFillsTheSessionsShutsOutItselfAlone(t *testing.T) {
	cfg := sandbox.SessionsConfig{MaxSessions: 4, MaxRunning: 1}
	t.Run("fresh", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, fake := books(t, cfg, takesASecond)
			if got := refusedOf(t, s, make([]string, 4)); len(got) != 1 || got[0] != "" {
				t.Errorf("refused: %q; want one, of a session that is no more", got)
			}
			if n := len(s.List("ann")); n != 3 || len(fake.Live()) != 4 {
				t.Errorf("ann has %d sessions, all together %d", n, len(fake.Live()))
			}
		})
	})
	t.Run("with variables", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &sleepers{Fake: &sandboxtest.Fake{Script: takesASecond}}
			s := sleepy(t, cfg, f)
			got := refusedOf(t, s, opens(t, s, "ann", 4))
			if len(got) != 1 {
				t.Fatalf("refused: %q", got)
			}
			synctest.Wait()
			if n := len(asleep(s, "ann")) + len(asleep(s, "bob")); n != 1 {
				t.Errorf("%d are hibernated for the one too many", n)
			}
			if res, _ := run(t, s, nobody("ann"), got[0]); res.State == sandbox.StateLost || res.State == sandbox.StateNew {
				t.Errorf("the refused call cost the variables: %s", res.State)
			}
		})
	})
	t.Run("all begun", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := books(t, sandbox.SessionsConfig{MaxSessions: 2, MaxRunning: 2}, takesASecond)
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() { run(t, s, nobody("ann"), "") })
			}
			synctest.Wait()
			if _, _, err := s.Run(t.Context(), bob, "", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrFull) {
				t.Errorf("a call that has begun gave way: %v", err)
			}
			calls.Wait()
		})
	})
}

// A connection that was to hear of lost variables still does, where its call had to give way.
func TestPushedOutCallStillHearsOfItsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{MaxSessions: 4, MaxRunning: 1}, takesASecond)
		run(t, s, ann, "")
		ids := opens(t, s, "ann", 4) // the last took the place of the connection's own
		if _, err := s.Reset(t.Context(), nobody("ann"), ids[3], true); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for _, id := range ids[:3] {
			calls.Go(func() { run(t, s, nobody("ann"), id) })
		}
		synctest.Wait()
		calls.Go(func() {
			if _, _, err := s.Run(t.Context(), ann, "", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrFull) {
				t.Error(err)
			}
		})
		synctest.Wait()
		run(t, s, bob, "")
		calls.Wait()
		if res, _ := run(t, s, ann, ""); res.State != sandbox.StateLost {
			t.Errorf("the variables are gone, and the first result says %s", res.State)
		}
	})
}
