package srt

import (
	"os"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// What multiplies until it meets the limit of tasks costs its own call, and no variables.
func TestForkBombs(t *testing.T) { forkBombs(t, 2) }

// As TestForkBombs, more often.
func TestProveForkBombs(t *testing.T) {
	if os.Getenv("MCP_SANDBOX_PROVE") != "1" {
		t.Skip("asked for by MCP_SANDBOX_PROVE=1")
	}
	forkBombs(t, 20)
}

// alive is Python that tells of a name in /proc whether it is a process that has not ended.
const alive = `
def alive(name):
    try: return name.isdigit() and 'State:\tZ' not in open(f'/proc/{name}/status').read()
    except OSError: return False
`

func forkBombs(t *testing.T, times int) {
	for name, code := range map[string]string{
		"plain":     "x = 99\nwhile True:\n    try: os.fork()\n    except OSError: pass",
		"obstinate": "x = 99\nwhile True:\n    try: os.fork()\n    except BaseException: pass",
	} {
		t.Run(name, func(t *testing.T) {
			l := local(t, Config{})
			states := map[sandbox.State]int{}
			var longest time.Duration
			for range times {
				s := opener(l)(t).(*session)
				do(t, s, "import os; x = 1", sandbox.StatusOK, sandbox.StateNew)
				whenParked(t, s)
				start := time.Now()
				client := s.live.client
				res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: time.Second})
				longest = max(longest, time.Since(start))
				states[res.State]++
				broken := client.Err()
				if err != nil || res.Status != sandbox.StatusTimeout {
					t.Fatalf("%s, %v: %s", res.Status, err, res.Error)
				}
				want := map[sandbox.State]string{sandbox.StateKept: "[99,", sandbox.StateRestored: "[1,"}[res.State]
				if want == "" {
					t.Errorf("%s after %v, the client's error is %v: %s", res.State, time.Since(start), broken, res.Error)
					continue
				}
				// The first, the worker, its standby, and the one that is being made in its place; the dead are the code's own to wait for.
				left := do(t, s, alive+"[x, sum(map(alive, os.listdir('/proc'))) <= 4]", sandbox.StatusOK, sandbox.StateKept)
				if string(left.Output) != want+"true]" {
					t.Errorf("after it: %s, want %strue]", left.Output, want)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if t.Failed() {
				return // no proof of anything
			}
			t.Logf("PROOF: %d fork bombs (%s), a second each: what became of the variables: %v; the longest call took %v", times, name, states, longest.Round(time.Millisecond))
		})
	}
}
