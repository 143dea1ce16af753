package srt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// onLoad is code that makes a variable which runs other code when it is loaded.
func onLoad(name, code string) string {
	return fmt.Sprintf("class Loads:\n    def __reduce__(self): return exec, (%q,)\nLoads.__module__ = 'builtins'\n%s = Loads(); del Loads\n", code, name)
}

// runWithin runs code that has a limit, and fails unless it ends soon after it.
func runWithin(t *testing.T, s sandbox.Session, limit time.Duration, code string) sandbox.Result {
	t.Helper()
	start := time.Now()
	res, err := s.Run(t.Context(), sandbox.Request{Code: code, Timeout: limit})
	if took := time.Since(start); err != nil || took > limit+10*time.Second {
		t.Fatalf("after %v: %+v, %v", took, res, err)
	}
	return res
}

// A value that takes long to load costs a call its time, and then no other value.
func TestRestoreTakesTooLong(t *testing.T) {
	for name, code := range map[string]string{
		"sleeps": "import time\ntime.sleep(1000)",
		"deaf":   "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := opener(local(t, Config{}))(t).(*session)
			hibernated(t, s, "x = 1\n"+onLoad("slow", code)+"y = [x, 2]")
			for _, limit := range []time.Duration{time.Second, 1500 * time.Millisecond} { // the larger one tries again
				res := runWithin(t, s, limit, "x = 99")
				if res.Status != sandbox.StatusTimeout || res.State != sandbox.StateKept || res.ExitCode != 124 ||
					!strings.Contains(res.Error, "still saved") || !strings.Contains(res.Error, "without slow") {
					t.Errorf("%+v", res)
				}
			}
			res := runWithin(t, s, 1500*time.Millisecond, "[x, y, 'slow' in globals()]")
			if res.State != sandbox.StateRestored || string(res.Output) != "[1,[1,2],false]" || !noted(res, "not restored: slow (loading it took more than half of a time limit of 1.5s)") {
				t.Errorf("%+v", res)
			}
			hibernate(t, s) // a new state, in which nothing is slow
			if res := runWithin(t, s, time.Minute, "y"); res.State != sandbox.StateRestored || noted(res, "slow") {
				t.Errorf("%+v", res)
			}
		})
	}
}

// Who goes away while variables are being restored does not wait for them, and loses none.
func TestRestoreIsCancelled(t *testing.T) {
	s := opener(local(t, Config{}))(t).(*session)
	hibernated(t, s, "x = 1\n"+onLoad("slow", "import time\ntime.sleep(4)"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	res, err := s.Run(ctx, sandbox.Request{Code: "x = 99"})
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || res.Status != "" || took > 10*time.Second {
		t.Errorf("after %v: %+v, %v", took, res, err)
	}
	if res := runWithin(t, s, time.Minute, "[x, slow]"); res.State != sandbox.StateRestored || string(res.Output) != "[1,null]" {
		t.Errorf("%+v", res)
	}
}

// A value that ends the interpreter when it is loaded costs itself and no other.
func TestRestoreEndsTheInterpreter(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := opener(local(t, Config{}))(t).(*session)
		hibernated(t, s, "x = 1\n"+onLoad("exits", "import os\nos._exit(3)")+"y = [x, 'shared']\n"+
			onLoad("killed", "import os\nos.kill(os.getpid(), 9)")+onLoad("aborts", "import os\nos.abort()")+"z = [y]")
		res := runWithin(t, s, time.Minute, "[x, y, z[0] is y, [n for n in ('exits', 'killed', 'aborts') if n in globals()]]")
		if res.State != sandbox.StateRestored || string(res.Output) != `[1,[1,"shared"],true,[]]` || !noted(res, "not restored: exits, killed, aborts (loading it ended the interpreter)") {
			t.Errorf("%+v", res)
		}
		if res := do(t, s, "x", sandbox.StatusOK, sandbox.StateKept); len(res.Notes) > 0 {
			t.Errorf("%q", res.Notes)
		}
	})
}

// Too many such values cost all, and what is said names them.
func TestRestoreEndsManyInterpreters(t *testing.T) {
	s := opener(local(t, Config{}))(t).(*session)
	var code strings.Builder
	code.WriteString("x = 1\n")
	for i := range maxFatal + 1 {
		code.WriteString(onLoad(fmt.Sprintf("deadly%d", i), fmt.Sprintf("import os\nos._exit(%d)", i+1)))
	}
	hibernated(t, s, code.String())
	res := runWithin(t, s, time.Minute, "'x' in globals()")
	if res.State != sandbox.StateLost || string(res.Output) != "false" || !noted(res, "deadly0, deadly1, deadly2") {
		t.Errorf("%+v", res)
	}
	do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateKept)
}
