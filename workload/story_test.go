package workload

import (
	"errors"
	"slices"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// story plays what a run looks like from outside to a vigil, with the times that
// it has on the platform, and no waiting.
type story struct {
	timeout time.Duration // of the code; 0 = 30 s
	events  []event
	loop    time.Duration // how long the story goes on; 0 = 10 min
}

type event struct {
	at time.Duration
	do func(v *vigil, now time.Time)
}

// told is how a story ended.
type told struct {
	res sandbox.Result
	err error
	at  time.Duration // 0 = it did not
}

const (
	runnerLine = "sandbox process limit (RLIMIT_NPROC) set to 4096"
	ourNonce   = "0123456789abcdef01234567"
)

func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// says is a line of the container that becomes visible at a time.
func says(at float64, message string) event { return rowAt(at, row{Level: "INFO", Message: message}) }

func rowAt(at float64, r row) event {
	return event{sec(at), func(v *vigil, now time.Time) {
		if r.Time.IsZero() {
			r.Time = now
		}
		v.sawLog(now, append([]row{r}, v.rows...), nil)
	}}
}

// platformSays is a line of the platform's own.
func platformSays(at float64, message string) event {
	return rowAt(at, row{Level: "ERROR", Message: "lrs-65-sandbox: " + message})
}

func becomes(at float64, status string) event {
	return event{sec(at), func(v *vigil, now time.Time) { v.sawRecord(now, record{ID: "w", Status: status}, nil) }}
}

// exits is the platform's word on the container's end.
func exits(at float64, code int, reason string) event {
	return event{sec(at), func(v *vigil, now time.Time) {
		v.sawDetails(now, &snapshot{Replicas: []replica{{Containers: []containerState{{Started: true, Exited: true, ExitCode: code, ExitReason: reason, Reason: "CrashLoopBackOff"}}}}})
	}}
}

func stuck(at float64, reason, message string) event {
	return event{sec(at), func(v *vigil, now time.Time) {
		v.sawDetails(now, &snapshot{Replicas: []replica{{Containers: []containerState{{Status: "waiting", Reason: reason, Message: message}}}}})
	}}
}

// fails is an answer of the API that is none: to the question of the log, or of
// the record.
func fails(at float64, log bool, status int) event {
	return event{sec(at), func(v *vigil, now time.Time) {
		err := &APIError{Op: "GET x", Status: status, Detail: "broken", Retryable: true}
		if log {
			v.sawLog(now, nil, err)
		} else {
			v.sawRecord(now, record{}, err)
		}
	}}
}

func (s story) play() told {
	start := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	if s.timeout == 0 {
		s.timeout = 30 * time.Second
	}
	if s.loop == 0 {
		s.loop = 10 * time.Minute
	}
	v := &vigil{nonce: ourNonce, timeout: s.timeout, codeTime: s.timeout + grace, provisioning: defaultProvisioning, memory: defaultMemory, keep: 20_000, began: start}
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for now := time.Duration(0); now < s.loop; now += 250 * time.Millisecond {
		for len(events) > 0 && events[0].at <= now {
			events[0].do(v, start.Add(now))
			events = events[1:]
		}
		if res, err, over := v.end(start.Add(now)); over {
			return told{res, err, now}
		}
	}
	return told{}
}

// within fails where the story ended at another time.
func (e told) within(t *testing.T, from, to float64) told {
	t.Helper()
	if e.at < sec(from) || e.at > sec(to) || e.at == 0 && to > 0 && from > 0 {
		t.Errorf("ended after %v, want %v s to %v s", e.at, from, to)
	}
	return e
}

func (e told) is(t *testing.T, status sandbox.Status, value string) told {
	t.Helper()
	if e.err != nil || e.res.Status != status || string(e.res.ReturnValue) != value {
		t.Errorf("status %s, value %s, %v (%s); want %s, %s", e.res.Status, e.res.ReturnValue, e.err, e.res.Error, status, value)
	}
	return e
}

func (e told) infra(t *testing.T, ran bool) told {
	t.Helper()
	var fault *sandbox.Error
	if !errors.As(e.err, &fault) || fault.Status != sandbox.StatusInfra || fault.Ran != ran {
		t.Errorf("%v (%+v), want a fault of the sandbox's, ran %v", e.err, e.res, ran)
	}
	return e
}

func marker(value string) string { return resultMarker + value }

// many repeats an event of whatever kind at several times.
func many(make func(at float64) event, times ...float64) []event {
	var all []event
	for _, at := range times {
		all = append(all, make(at))
	}
	return all
}
