package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// sleepers is a Fake whose sessions can be hibernated, and kept.
type sleepers struct {
	*sandboxtest.Fake
	hibernate func(ctx context.Context, id string) error // nil = at once
	kept      []sandbox.Kept

	mu     sync.Mutex
	events []string // "hibernate id", "shed id", "leave id", "discard id"
}

func (f *sleepers) record(event, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event+" "+id)
}

func (f *sleepers) count(event string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, e := range f.events {
		if strings.HasPrefix(e, event+" ") {
			n++
		}
	}
	return n
}

func (f *sleepers) saw(event, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.events, event+" "+id)
}

func (f *sleepers) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	s, err := f.Fake.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	kept := slices.ContainsFunc(f.kept, func(k sandbox.Kept) bool { return k.ID == spec.ID })
	return &sleeper{Session: s, f: f, id: spec.ID, asleep: kept}, nil
}

func (f *sleepers) Kept() []sandbox.Kept { return f.kept }

func (f *sleepers) Discard(id string) error {
	f.record("discard", id)
	return nil
}

type sleeper struct {
	sandbox.Session
	f      *sleepers
	id     string
	asleep bool
	lost   string
}

func (s *sleeper) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := s.Session.Run(ctx, req)
	switch {
	case s.lost != "":
		res.State, res.Notes = sandbox.StateLost, []string{s.lost}
	case s.asleep:
		res.State = sandbox.StateRestored
	}
	s.asleep, s.lost = false, ""
	return res, err
}

func (s *sleeper) Hibernate(ctx context.Context) error {
	if s.asleep {
		return nil
	}
	if s.f.hibernate != nil {
		if err := s.f.hibernate(ctx, s.id); err != nil {
			return err
		}
	}
	s.f.record("hibernate", s.id)
	s.asleep = true
	return nil
}

func (s *sleeper) Shed(why string) error {
	s.f.record("shed", s.id)
	s.lost = why
	return nil
}

func (s *sleeper) Leave() error {
	s.f.record("leave", s.id)
	return s.Close()
}

// sleepy makes Sessions over f, and ends them with the test.
func sleepy(t *testing.T, cfg sandbox.SessionsConfig, f *sleepers) *sandbox.Sessions {
	t.Helper()
	if f.Fake == nil {
		f.Fake = &sandboxtest.Fake{}
	}
	cfg.Sandbox = f
	return opened(t, cfg)
}

func TestIdleSessionsAreHibernated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Minute, MaxAge: time.Hour}, f)
		_, id := run(t, s, ann, "")
		time.Sleep(2 * time.Minute)
		if !f.saw("hibernate", id) {
			t.Fatal("idle, and awake")
		}
		res, again := run(t, s, ann, "")
		if again != id || res.State != sandbox.StateRestored {
			t.Errorf("after hibernation: %s, %s", again, res.State)
		}
		if res, _ := run(t, s, ann, id); res.State != sandbox.StateKept {
			t.Errorf("the second call after hibernation: %s", res.State)
		}
		time.Sleep(10 * time.Minute)
		if n := f.count("hibernate"); n != 2 {
			t.Errorf("hibernated %d times", n)
		}
		if got, want := s.Stats(), (sandbox.Stats{Hibernated: 1, Hibernations: 2}); got != want {
			t.Errorf("%+v", got)
		}
		if _, _, err := s.Run(t.Context(), bob, id, sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("another's session: %v", err)
		}
		time.Sleep(time.Hour)
		if _, _, err := s.Run(t.Context(), ann, id, sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("beyond its age: %v", err)
		}
		if n := len(f.Live()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

// Each call sets the idle clock back.
func TestCallsKeepASessionAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Minute, MaxAge: 24 * time.Hour}, f)
		_, id := run(t, s, ann, "")
		for range 20 {
			time.Sleep(50 * time.Second)
			if res, _ := run(t, s, ann, id); res.State != sandbox.StateKept {
				t.Fatalf("it was %s", res.State)
			}
		}
		if f.saw("hibernate", id) {
			t.Error("hibernated between calls that came in time")
		}
	})
}

// A call that comes meanwhile does not wait for a hibernation, and loses nothing.
func TestCallDuringHibernation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given atomic.Bool
		f := &sleepers{hibernate: func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				given.Store(true)
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		}}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Minute, MaxAge: 10 * time.Hour}, f)
		_, id := run(t, s, ann, "")
		time.Sleep(90 * time.Second)
		if res, again := run(t, s, ann, ""); again != id || res.State != sandbox.StateKept || !given.Load() {
			t.Errorf("%s, %s, given up: %v", again, res.State, given.Load())
		}
	})
}

// Two that came to share a place don't keep it once one of them is idle.
func TestRoomIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{hibernate: func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		}}
		f.Fake = &sandboxtest.Fake{Script: func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
			time.Sleep(100 * time.Millisecond)
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Hour, MaxAge: 10 * time.Hour, MaxSessions: 1}, f)
		run(t, s, ann, "")
		var both sync.WaitGroup
		both.Go(func() { run(t, s, bob, "") }) // has ann's hibernated
		time.Sleep(10 * time.Millisecond)
		both.Go(func() { run(t, s, ann, "") }) // who comes back meanwhile
		both.Wait()
		time.Sleep(5 * time.Second)
		if n := f.count("hibernate"); n != 1 {
			t.Errorf("%d of 2 sessions are hibernated, where one may be awake", n)
		}
	})
}

func TestWhatCantBeHibernatedStaysAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		f := &sleepers{hibernate: func(context.Context, string) error {
			tries.Add(1)
			return errors.New("too much")
		}}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Minute, MaxAge: time.Hour, MaxSessions: 1}, f)
		_, id := run(t, s, ann, "")
		time.Sleep(10 * time.Minute)
		if tries.Load() != 1 {
			t.Errorf("tried %d times with nothing changed", tries.Load())
		}
		if res, again := run(t, s, ann, ""); again != id || res.State != sandbox.StateKept {
			t.Errorf("%s, %s", again, res.State)
		}
		run(t, s, bob, "") // needs the room
		synctest.Wait()
		if !f.saw("shed", id) {
			t.Fatalf("%q", f.events)
		}
		if res, again := run(t, s, ann, ""); again != id || res.State != sandbox.StateLost || !strings.Contains(res.Notes[0], "too much") {
			t.Errorf("%s, %s, %q", again, res.State, res.Notes)
		}
	})
}

func TestRoomForThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{hibernate: func(ctx context.Context, _ string) error {
			select {
			case <-time.After(100 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		most, awake := 0, map[string]bool{}
		f.Fake = &sandboxtest.Fake{Script: func(_ context.Context, id string, _ int, _ sandbox.Request) (sandbox.Result, error) {
			f.mu.Lock()
			awake[id] = true
			for _, e := range f.events {
				if id, ok := strings.CutPrefix(e, "hibernate "); ok {
					delete(awake, id)
				}
			}
			f.events = nil
			most = max(most, len(awake))
			f.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
		}}
		s := sleepy(t, sandbox.SessionsConfig{MaxSessions: 20, MaxRunning: 4, MaxQueue: 1000}, f)
		var ids []string
		for i := range 200 {
			_, id := run(t, s, sandbox.Caller{Principal: "ann", Connection: fmt.Sprint(i)}, "")
			ids = append(ids, id)
		}
		var calls sync.WaitGroup
		for i := range 400 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				if res, id := run(t, s, ann, ids[i%200]); id != ids[i%200] || res.State == sandbox.StateLost {
					t.Errorf("%s, %s", id, res.State)
				}
			})
		}
		calls.Wait()
		t.Logf("at most %d were awake", most)
		if most > 60 {
			t.Errorf("%d sessions were awake at once, 20 were to be", most)
		}
	})
}

func TestHibernatedSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sleepers{}
		s := sleepy(t, sandbox.SessionsConfig{Idle: time.Minute, MaxHibernated: 2}, f)
		for i := range 3 {
			run(t, s, sandbox.Caller{Principal: "ann", Connection: fmt.Sprint(i)}, "")
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if n := len(f.Live()); n != 2 {
			t.Errorf("%d are left of 3", n)
		}
		if res, _ := run(t, s, sandbox.Caller{Principal: "ann", Connection: "0"}, ""); res.State != sandbox.StateLost || !strings.Contains(res.Notes[0], "hibernated") {
			t.Errorf("%s, %q", res.State, res.Notes)
		}
	})
}

func TestSessionsOutliveTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &sleepers{
			kept: []sandbox.Kept{
				{Spec: sandbox.Spec{ID: "hers", Principal: "ann", Created: now.Add(-time.Hour)}, Used: now},
				{Spec: sandbox.Spec{ID: "untouched", Principal: "ann", Created: now.Add(-time.Hour)}, Used: now},
				{Spec: sandbox.Spec{ID: "old", Principal: "ann", Created: now.Add(-100 * time.Hour)}, Used: now},
				{Spec: sandbox.Spec{ID: "closed", Principal: "ann", Created: now}, Used: now},
				{Spec: sandbox.Spec{ID: "reset", Principal: "ann", Created: now}, Used: now},
			},
			Fake: &sandboxtest.Fake{Script: func(ctx context.Context, id string, _ int, req sandbox.Request) (sandbox.Result, error) {
				if req.Code == "hang" {
					<-ctx.Done()
					return sandbox.Result{Status: sandbox.StatusCancelled, State: sandbox.StateKept}, ctx.Err()
				}
				return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, nil
			}},
		}
		s := sleepy(t, sandbox.SessionsConfig{Keep: true, MaxAge: 24 * time.Hour}, f)
		time.Sleep(8 * time.Minute)
		if !f.saw("discard", "old") {
			t.Errorf("kept beyond its age: %q", f.events)
		}
		if _, _, err := s.Run(t.Context(), bob, "hers", sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnknownSession) {
			t.Errorf("another's: %v", err)
		}
		if res, id := run(t, s, ann, "hers"); id != "hers" || res.State != sandbox.StateRestored {
			t.Errorf("%s, %s", id, res.State)
		}
		if _, err := s.Reset(t.Context(), ann, "closed", true); err != nil || !f.saw("discard", "closed") {
			t.Errorf("%v, %q", err, f.events)
		}
		if _, err := s.Reset(t.Context(), ann, "reset", false); err != nil || len(f.Events(sandboxtest.EventReset)) != 1 {
			t.Errorf("%v, %v", err, f.Events())
		}
		_, own := run(t, s, ann, "")
		ended := make(chan error, 1)
		go func() {
			_, _, err := s.Run(context.Background(), ann, "hers", sandbox.Request{Code: "hang"})
			ended <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("the running call got %v", err)
		}
		for _, want := range []string{"hibernate hers", "leave hers", "hibernate " + own, "leave " + own} {
			if !slices.Contains(f.events, want) {
				t.Errorf("no %s in %q", want, f.events)
			}
		}
		if f.saw("leave", "untouched") || f.saw("discard", "untouched") || f.saw("discard", "hers") {
			t.Errorf("%q", f.events)
		}
	})
}
