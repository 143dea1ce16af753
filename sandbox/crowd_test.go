package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// asleep are a principal's sessions that List calls hibernated.
func asleep(s *sandbox.Sessions, principal string) []string {
	var ids []string
	for _, i := range s.List(principal) {
		if i.Hibernated {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// opens has somebody open n sessions, a second apart.
func opens(t *testing.T, s *sandbox.Sessions, principal string, n int) (ids []string) {
	t.Helper()
	for range n {
		time.Sleep(time.Second)
		_, id := run(t, s, nobody(principal), "")
		ids = append(ids, id)
	}
	synctest.Wait()
	return ids
}

// A quota counts those that are awake, takes no variables, and is the
// principal's own affair.
func TestQuotaHibernates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{}
		s := sleepy(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 2}}}, f)
		_, bobs := run(t, s, bob, "")
		ids := opens(t, s, "ann", 3)
		if got := asleep(s, "ann"); !slices.Equal(got, ids[:1]) || len(s.List("ann")) != 3 {
			t.Errorf("asleep: %q of %q", got, ids)
		}
		if res, _ := run(t, s, nobody("ann"), ids[0]); res.State != sandbox.StateRestored {
			t.Errorf("called again: %s", res.State)
		}
		synctest.Wait()
		if got := asleep(s, "ann"); !slices.Equal(got, ids[1:2]) {
			t.Errorf("the first came back for the second, but asleep are %q of %q", got, ids)
		}
		if n := len(f.Live()); n != 4 || f.saw("hibernate", bobs) {
			t.Errorf("%d are left, bob's asleep: %v", n, f.saw("hibernate", bobs))
		}
	})
}

// A hibernated session waits until another of the quota is idle; a new one is
// told.
func TestQuotaInUseAndHibernated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{Fake: &sandboxtest.Fake{Script: func(ctx context.Context, id string, n int, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "long" {
				time.Sleep(10 * time.Second)
			}
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
		}}}
		s := sleepy(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 1}}}, f)
		ids := opens(t, s, "ann", 2)
		start := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, _, err := s.Run(t.Context(), nobody("ann"), ids[1], sandbox.Request{Code: "long"}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, _, err := s.Run(t.Context(), nobody("ann"), "", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrFull) {
			t.Errorf("a new one: %v", err)
		}
		if res, _ := run(t, s, nobody("ann"), ids[0]); res.State != sandbox.StateRestored || time.Since(start) != 10*time.Second {
			t.Errorf("%s after %v", res.State, time.Since(start))
		}
		calls.Wait()
	})
}

// Beyond what the server holds, awake or asleep, whoever has the most gives.
func TestWhoHasMostIsHibernated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{}
		s := sleepy(t, sandbox.SessionsConfig{MaxSessions: 5, MaxHibernated: 4, Idle: time.Hour}, f)
		_, bobs := run(t, s, bob, "") // the longest idle of all
		ids := opens(t, s, "ann", 8)
		if got := asleep(s, "ann"); !slices.Equal(got, ids[:4]) || f.saw("hibernate", bobs) {
			t.Errorf("asleep: %q of %q, bob's: %v", got, ids, f.saw("hibernate", bobs))
		}
		time.Sleep(2 * time.Hour) // all are asleep, four too many, and bob's is the longest unused
		if got := asleep(s, "ann"); !slices.Equal(got, ids[5:]) {
			t.Errorf("left: %q of %q", got, ids)
		}
		if res, _ := run(t, s, bob, bobs); res.State != sandbox.StateRestored {
			t.Errorf("ann's many hibernated sessions took bob's one: %s", res.State)
		}
	})
}

// Calls that wait for a place shut out their own principal alone.
func TestOneWhoWaitsForPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{Fake: &sandboxtest.Fake{Script: takesASecond}}
		s := sleepy(t, sandbox.SessionsConfig{MaxSessions: 1, MaxRunning: 1, MaxQueue: 2}, f)
		anns, bobs := opens(t, s, "ann", 4), opens(t, s, "bob", 1)
		opens(t, s, "carl", 1)
		var calls sync.WaitGroup
		calls.Go(func() { run(t, s, nobody("carl"), "") })
		synctest.Wait()
		refused := make(chan error, len(anns))
		for _, id := range anns {
			calls.Go(func() {
				if _, _, err := s.Run(t.Context(), nobody("ann"), id, sandbox.Request{Code: "1"}); err != nil {
					refused <- err
				}
			})
		}
		synctest.Wait()
		run(t, s, nobody("bob"), bobs[0])
		calls.Wait()
		close(refused)
		n := 0
		for err := range refused {
			if n++; !errors.Is(err, sandbox.ErrFull) {
				t.Error(err)
			}
		}
		if n != 2 {
			t.Errorf("%d of ann's four were refused", n)
		}
	})
}

// A session that was woken while it was to give up its place leaves one too many
// awake; the next that nobody uses makes up for it.
func TestWokenSessionIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{hibernate: func(ctx context.Context, _ string) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		f.Fake = &sandboxtest.Fake{Script: func(ctx context.Context, _ string, _ int, req sandbox.Request) (sandbox.Result, error) {
			if d, err := time.ParseDuration(req.Code); err == nil {
				time.Sleep(d)
			}
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
		}}
		s := sleepy(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 1}}}, f)
		first := opens(t, s, "ann", 1)[0]
		second := make(chan string, 1)
		go func() {
			_, id, _ := s.Run(context.Background(), nobody("ann"), "", sandbox.Request{Code: "5s"})
			second <- id
		}()
		time.Sleep(500 * time.Millisecond) // the first one is on its way out
		if _, _, err := s.Run(t.Context(), nobody("ann"), first, sandbox.Request{Code: "20s"}); err != nil {
			t.Fatal(err)
		}
		if got := asleep(s, "ann"); !slices.Equal(got, []string{<-second}) {
			t.Errorf("asleep: %q", got)
		}
	})
}

// What is ended while it is hibernated leaves nothing, whichever server saved it.
func TestEndOfHibernatedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		kept := sandbox.Kept{Spec: sandbox.Spec{ID: "kept", Principal: "ann", Created: now}, Used: now}
		f := &sleepers{kept: []sandbox.Kept{kept}}
		s := sleepy(t, sandbox.SessionsConfig{Keep: true, Idle: time.Minute}, f)
		_, own := run(t, s, ann, "")
		time.Sleep(2 * time.Minute)
		if got := asleep(s, "ann"); len(got) != 2 {
			t.Fatalf("asleep: %q", got)
		}
		for _, id := range []string{"kept", own} {
			if _, err := s.Reset(t.Context(), bob, id, true); !errors.Is(err, sandbox.ErrUnknownSession) {
				t.Errorf("bob ends %s: %v", id, err)
			}
			if _, err := s.Reset(t.Context(), nobody("ann"), id, true); err != nil {
				t.Errorf("ann ends %s: %v", id, err)
			}
		}
		if n := len(f.Events(sandboxtest.EventClose)); n != 1 || !f.saw("discard", "kept") || f.count("leave") != 0 {
			t.Errorf("%d closed, %q", n, f.events)
		}
		if left := s.List("ann"); len(left) != 0 {
			t.Errorf("%+v", left)
		}
	})
}

// What can't be saved when a quota needs its place is lost, and says so.
func TestQuotaOfWhatCantBeHibernated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{hibernate: func(context.Context, string) error { return errors.New("too much") }}
		s := sleepy(t, sandbox.SessionsConfig{Quotas: map[string]sandbox.Quota{"ann": {Sessions: 1}}}, f)
		ids := opens(t, s, "ann", 2)
		res, _ := run(t, s, nobody("ann"), ids[0])
		if res.State != sandbox.StateLost || !strings.Contains(fmt.Sprint(res.Notes), "your quota, and its variables could not be saved (too much)") {
			t.Errorf("%s, %q", res.State, res.Notes)
		}
	})
}
