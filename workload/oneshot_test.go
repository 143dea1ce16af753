package workload

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

func TestOneShot(t *testing.T) {
	b := emulated(t, nil)
	r := b.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n_return = {'a': 2**60, 'n': float('nan')}\n40 + 2")
	if r.Status != sandbox.StatusOK || string(r.Output) != "42" || string(r.ReturnValue) != `{"a":"1152921504606846976","n":"NaN"}` {
		t.Errorf("status %s, output %s, return value %s: %s", r.Status, r.Output, r.ReturnValue, r.Error)
	}
	if r.Stdout != "out\n" || r.Stderr != "err\n" || r.State != sandbox.StateNone || r.Backend != "workload" {
		t.Errorf("stdout %q, stderr %q, state %s, backend %s", r.Stdout, r.Stderr, r.State, r.Backend)
	}
	r = b.run("_return = 1\n1/0")
	if r.Status != sandbox.StatusError || r.ExitCode != 1 || string(r.ReturnValue) != "1" || !strings.Contains(r.Error, "ZeroDivisionError") {
		t.Errorf("%+v", r)
	}
	r = b.run("import os\nprint('before', flush=True)\nos._exit(7)")
	if r.Status != sandbox.StatusCrash || r.ExitCode != 7 || r.Stdout != "before\n" {
		t.Errorf("%+v", r)
	}
}

func TestOneShotTimeout(t *testing.T) {
	b := emulated(t, nil)
	for _, code := range []string{
		"import time\nprint('before')\ntime.sleep(1000)",
		"print('before')\nwhile True:\n    try:\n        while True: pass\n    except BaseException:\n        pass",
	} {
		start := time.Now()
		r, err := b.open().Run(t.Context(), sandbox.Request{Code: code, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != sandbox.StatusTimeout || r.Stdout != "before\n" || r.ExitCode != 124 {
			t.Errorf("%+v", r)
		}
		t.Logf("%v for a limit of 1s: %s", time.Since(start), r.Error)
	}
}

// External tools are refused before there is any container.
func TestOneShotHasNoExternals(t *testing.T) {
	b := emulated(t, nil)
	_, err := b.open().Run(t.Context(), sandbox.Request{Code: "1", Externals: sandbox.Functions{}})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
