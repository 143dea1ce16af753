package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// nobody is a caller without a connection: each of its calls has a session of
// its own, unless it names one.
func nobody(principal string) sandbox.Caller { return sandbox.Caller{Principal: principal} }

func takesASecond(ctx context.Context, _ string, _ int, _ sandbox.Request) (sandbox.Result, error) {
	select {
	case <-time.After(time.Second):
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNew}, nil
	case <-ctx.Done():
		return sandbox.Result{Status: sandbox.StatusCancelled, State: sandbox.StateNew}, ctx.Err()
	}
}

// A quota of sessions ends the principal's own, and nobody else's.
func TestQuotaOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := books(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 2}}}, nil)
		_, bobs := run(t, s, bob, "")
		var ids []string
		for range 3 {
			time.Sleep(time.Second)
			_, id := run(t, s, nobody("ann"), "")
			ids = append(ids, id)
		}
		synctest.Wait()
		closed := fake.Events(sandboxtest.EventClose)
		if len(closed) != 1 || closed[0].Session != ids[0] {
			t.Errorf("ann's third of two sessions ended %+v, want %s", closed, ids[0])
		}
		if res, _ := run(t, s, bob, bobs); res.State != sandbox.StateKept {
			t.Errorf("bob's session: %s", res.State)
		}
		if _, _, err := s.Run(t.Context(), nobody("ann"), ids[0], sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("the ended one: %v", err)
		}
	})
}

func TestQuotaOfSessionsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 1}}}, takesASecond)
		var wg sync.WaitGroup
		wg.Go(func() { run(t, s, nobody("ann"), "") })
		synctest.Wait()
		_, _, err := s.Run(t.Context(), nobody("ann"), "", sandbox.Request{Code: "1"})
		if !errors.Is(err, sandbox.ErrFull) || !strings.Contains(err.Error(), "all 1 sessions") || !strings.Contains(err.Error(), "try again") {
			t.Errorf("a second session, the first in use: %v", err)
		}
		wg.Wait()
	})
}

// Beyond what the server holds, whoever has the most gives.
func TestRoomIsMadeByWhoHasMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := books(t, sandbox.SessionsConfig{MaxSessions: 5}, nil)
		_, bobs := run(t, s, bob, "") // the longest idle of all
		for range 10 {
			time.Sleep(time.Second)
			run(t, s, nobody("ann"), "")
		}
		if res, _ := run(t, s, bob, bobs); res.State != sandbox.StateKept {
			t.Errorf("ann's many sessions took bob's one: %s", res.State)
		}
		synctest.Wait()
		if n := len(fake.Events(sandboxtest.EventClose)); n != 6 {
			t.Errorf("%d sessions were ended for eleven in five places", n)
		}
		if n := len(s.List("ann")); n != 4 {
			t.Errorf("ann has %d sessions", n)
		}
	})
}

func TestQuotaOfRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 4, Quotas: map[string]sandbox.Quota{"ann": {Running: 2}}}, takesASecond)
		start := time.Now()
		var wg sync.WaitGroup
		ends := make(chan time.Duration, 6)
		for range 6 {
			wg.Go(func() {
				run(t, s, nobody("ann"), "")
				ends <- time.Since(start)
			})
		}
		synctest.Wait()
		run(t, s, bob, "") // there are places, though ann waits
		if took := time.Since(start); took != time.Second {
			t.Errorf("bob's call took %v beside ann's", took)
		}
		wg.Wait()
		close(ends)
		at := map[time.Duration]int{}
		for d := range ends {
			at[d]++
		}
		if at[time.Second] != 2 || at[2*time.Second] != 2 || at[3*time.Second] != 2 {
			t.Errorf("ann's six calls, two at once, ended at %v", at)
		}
	})
}

// One principal keeps a hundred calls queued; another's single call waits for at
// most two of them, also when the queue is full.
func TestOneWhoFillsTheQueueShutsOutItselfAlone(t *testing.T) {
	for _, room := range []int{100, 1000} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 1, MaxQueue: room}, takesASecond)
				var wg sync.WaitGroup
				refused := make(chan error, 200)
				for range 101 {
					wg.Go(func() {
						if _, _, err := s.Run(t.Context(), nobody("ann"), "", sandbox.Request{Code: "1"}); err != nil {
							refused <- err
						}
					})
				}
				synctest.Wait()
				start := time.Now()
				run(t, s, bob, "")
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("bob's one call waited %v behind ann's hundred of a second each", took)
				}
				wg.Wait()
				close(refused)
				var n int
				for err := range refused {
					n++
					if !errors.Is(err, sandbox.ErrFull) {
						t.Error(err)
					}
				}
				if want := map[int]int{100: 1, 1000: 0}[room]; n != want {
					t.Errorf("%d of ann's calls were refused, want %d", n, want)
				}
			})
		})
	}
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := books(t, sandbox.SessionsConfig{}, nil)
		_, first := run(t, s, ann, "")
		time.Sleep(time.Minute)
		_, second := run(t, s, ann, sandbox.NewSession)
		run(t, s, bob, "")
		all := s.List("ann")
		if len(all) != 2 || all[0].ID != first || !all[0].Own || all[1].ID != second || all[1].Own || all[0].Calls != 0 {
			t.Errorf("%+v", all)
		}
		if d := all[1].Created.Sub(all[0].Created); d != time.Minute {
			t.Errorf("created %v apart", d)
		}
		if none := s.List("carl"); none == nil || len(none) != 0 {
			t.Errorf("carl's: %v", none)
		}
	})
}

func TestQuotasAreChecked(t *testing.T) {
	_, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: &sandboxtest.Fake{}, Quotas: map[string]sandbox.Quota{"ann": {Sessions: -1}}})
	if err == nil || !strings.Contains(err.Error(), "ann") {
		t.Errorf("a negative quota: %v", err)
	}
}
