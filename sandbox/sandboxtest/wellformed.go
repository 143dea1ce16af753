package sandboxtest

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// wellFormed fails the test for what no Result may be, whatever the guest did.
func wellFormed(t *testing.T, r sandbox.Result) {
	t.Helper()
	statuses := []sandbox.Status{
		sandbox.StatusOK, sandbox.StatusError, sandbox.StatusTimeout, sandbox.StatusOOM, sandbox.StatusCrash, sandbox.StatusCancelled,
	}
	if !slices.Contains(statuses, r.Status) {
		t.Errorf("status %q is none of what code can end with", r.Status)
	}
	states := []sandbox.State{sandbox.StateNew, sandbox.StateKept, sandbox.StateRestored, sandbox.StateLost, sandbox.StateNone}
	if !slices.Contains(states, r.State) {
		t.Errorf("state %q is none", r.State)
	}
	switch r.Status {
	case sandbox.StatusOK, sandbox.StatusTimeout, sandbox.StatusOOM, sandbox.StatusCancelled:
		if r.ExitCode != r.Status.ExitCode() {
			t.Errorf("status %s with exit code %d, want %d", r.Status, r.ExitCode, r.Status.ExitCode())
		}
	case sandbox.StatusError:
		if r.ExitCode == 0 {
			t.Error("status error with exit code 0")
		}
	}
	if r.Status != sandbox.StatusOK && r.Error == "" {
		t.Errorf("status %s without a word of why", r.Status)
	}
	if r.Status == sandbox.StatusOK && r.Error != "" {
		t.Errorf("status ok with the error %.200q", r.Error)
	}
	for name, s := range map[string]string{"stdout": r.Stdout, "stderr": r.Stderr, "error": r.Error} {
		if !utf8.ValidString(s) {
			t.Errorf("%s is no valid UTF-8: %.100q", name, s)
		}
	}
	for name, v := range map[string]json.RawMessage{"output": r.Output, "return value": r.ReturnValue} {
		if v != nil && !json.Valid(v) {
			t.Errorf("%s is no JSON: %.100q", name, v)
		}
	}
	if r.Duration < 0 || r.Provisioning < 0 {
		t.Errorf("times %v and %v", r.Duration, r.Provisioning)
	}
	for name, c := range map[string]sandbox.Count{"stdout": r.Truncated.Stdout, "stderr": r.Truncated.Stderr} {
		if c.Kept > c.Produced || c.Kept < 0 {
			t.Errorf("%s: %d bytes kept of %d", name, c.Kept, c.Produced)
		}
	}
}
