package srt

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// Checkpoints of many calls leave nothing behind them: no dead process, no standby but
// one, no descriptor.
func TestCheckpointSoak(t *testing.T) { checkpointSoak(t, 300) }

// As TestCheckpointSoak, for longer.
func TestProveCheckpointSoak(t *testing.T) {
	if os.Getenv("MCP_SANDBOX_PROVE") != "1" {
		t.Skip("asked for by MCP_SANDBOX_PROVE=1")
	}
	checkpointSoak(t, 10_000)
}

func checkpointSoak(t *testing.T, calls int) {
	const sessions = 4
	l := local(t, Config{Limits: small})
	var all []*session
	for range sessions {
		s := opener(l)(t).(*session)
		do(t, s, "import os, time, subprocess; n = 0; kept = {}; open('f', 'a').close(); f = open('f')", sandbox.StatusOK, sandbox.StateNew)
		atRest(t, s)
		all = append(all, s)
	}
	own := descriptorsOf(t, "/proc/self")
	var wg sync.WaitGroup
	start := time.Now()
	for i, s := range all {
		wg.Go(func() { soak(t, s, i, calls/sessions) })
	}
	wg.Wait()
	if n := descriptorsOf(t, "/proc/self"); n != own {
		t.Errorf("the server holds %d descriptors, and held %d", n, own)
	}
	if t.Failed() {
		return // no proof of anything
	}
	t.Logf("PROOF: %d calls in %d sessions, each followed by a checkpoint, 1 in 50 the interpreter's last, took %v: no dead process, no standby but one, no descriptor more than at first",
		calls, sessions, time.Since(start).Round(time.Second))
}

// holding is what a session has at rest.
type holding struct {
	processes          int // the first, the worker and the standby; the dead that nobody has waited for count
	supervisor, worker int // descriptors
}

// soak makes calls, and compares what a session holds after the first ones and after the last.
func soak(t *testing.T, s *session, seed, calls int) {
	programs := []string{
		"n += 1", "kept[n % 100] = bytearray(10_000)", "f = open('f')", "1 / 0", "subprocess.run(['true']).returncode",
		"time.sleep(0.02)", "f.readline()", "r, w = os.pipe(); os.close(r); os.close(w)",
	}
	before := atRest(t, s)
	if before.processes != 3 {
		t.Errorf("at rest it has %d processes, want 3", before.processes)
	}
	for i := range calls {
		code, want := programs[(i+seed)%len(programs)], sandbox.StateKept
		if i%50 == 49 {
			code, want = "os._exit(3)", sandbox.StateRestored
		}
		res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: time.Minute})
		if err != nil || res.State != want {
			t.Errorf("call %d, %s: %s, %v: %s%q", i, code, res.State, err, res.Error, res.Notes)
			return
		}
	}
	if after := atRest(t, s); after != before {
		t.Errorf("at first it held %+v, after %d calls %+v", before, calls, after)
	}
}

// atRest waits until the checkpoint of the last call has been made, and what was before it is gone.
func atRest(t *testing.T, s *session) holding {
	var last holding
	first, same := s.live.cage.Pid(), 0
	for deadline := time.Now().Add(20 * time.Second); same < 10 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		worker, standby := s.live.client.Processes()
		h := holding{processes: len(descendants(first, nil)), supervisor: descriptorsOf(t, fmt.Sprintf("/proc/%d", first)), worker: descriptorsOf(t, behind(s.live.cage.kin, worker))}
		same++
		if h != last || standby == 0 || h.processes != 3 { // one may be in the making
			last, same = h, 0
		}
	}
	return last
}

// descriptorsOf counts those of a process by its directory; 0 if it is dead.
func descriptorsOf(t *testing.T, process string) int {
	entries, err := os.ReadDir(process + "/fd")
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return len(entries)
}
