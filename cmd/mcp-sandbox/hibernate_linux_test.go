package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A server that is killed while it saves its sessions loses none: each comes
// back as it was saved last, or as it was to be saved, and its result says which.
func TestKilledWhileHibernating(t *testing.T) { killWhileHibernating(t, 10, 3) }

func TestProveKilledWhileHibernating(t *testing.T) {
	proving(t)
	before, after := killWhileHibernating(t, 100, 4)
	if !t.Failed() {
		proof("hibernation: 4 servers killed by SIGKILL in the middle of saving 100 sessions each: all came back, %d as saved last, %d as to be saved", before, after)
	}
}

func killWhileHibernating(t *testing.T, sessions, rounds int) (before, after int) {
	t.Helper()
	server, state := binary(t), stateDir(t)
	env := []string{"MCP_SANDBOX_STATE_DIR=" + state, "MCP_SANDBOX_MAX_SESSIONS=500"}
	w := newWire(t, server, env...)
	x := map[string][]int{} // by session: what x may be
	for i := range sessions {
		r, _ := w.tool("execute_python", map[string]any{"session_id": "new", "code": fmt.Sprintf("x = %d\ndata = [str(i) for i in range(100_000)]", i)})
		if r.State != "new" {
			t.Fatalf("%+v", r)
		}
		x[r.SessionID] = []int{i}
	}
	start := time.Now()
	w.end()
	took := time.Since(start)
	for round := range rounds {
		w := newWire(t, server, env...)
		for id, may := range x {
			is := restored(t, w, id, may)
			if len(may) == 2 && is == may[0] {
				before++
			} else if len(may) == 2 {
				after++
			}
			next := (round+1)*1_000_000 + is%1000
			if r, _ := w.tool("execute_python", map[string]any{"session_id": id, "code": fmt.Sprintf("x = %d", next)}); r.State != "kept" {
				t.Fatalf("%+v", r)
			}
			x[id] = []int{is, next}
		}
		w.in.Close()                     // which tells it to end
		time.Sleep(mathrand.N(took / 2)) // at a random moment: the rest of the time goes into ending processes
		if err := w.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = w.cmd.Wait() // killed
	}
	stranger := ""
	for stranger = range x {
		break
	}
	record := filepath.Join(state, "sessions", stranger, "session.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	fields["principal"] = "somebody else"
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w = newWire(t, server, env...)
	for id, may := range x {
		if id != stranger {
			if restored(t, w, id, may) == may[0] {
				before++
			} else {
				after++
			}
			continue
		}
		if r, _ := w.tool("execute_python", map[string]any{"session_id": id, "code": "x"}); r.Success || !strings.Contains(r.Error, "unknown session") {
			t.Errorf("somebody else's session: %+v", r)
		}
	}
	w.end()
	if left, err := filepath.Glob(filepath.Join(state, "sessions", "*", "*.new")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	t.Logf("%d as saved last, %d as to be saved", before, after)
	return before, after
}

// restored asks a session for its x, which is one of may: the older first.
func restored(t *testing.T, w *wire, id string, may []int) int {
	t.Helper()
	r, _ := w.tool("execute_python", map[string]any{"session_id": id, "code": "assert len(data) == 100_000\nx"})
	var is int
	if err := json.Unmarshal(r.Output, &is); err != nil || r.State != "restored" || !slices.Contains(may, is) {
		t.Fatalf("%v; may be %v: %+v", err, may, r)
	}
	old := strings.Contains(strings.Join(r.Notes, "\n"), "what later calls changed in them is lost")
	if old != (len(may) == 2 && is == may[0]) {
		t.Errorf("x is %d of %v, and the notes say %q", is, may, r.Notes)
	}
	return is
}

// stateDir is a directory that a guest's user can be shown a part of.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "state-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// What people work with goes through hibernation.
func TestHibernatedAnalyst(t *testing.T) {
	python, server := installed(t, "MCP_SANDBOX_TEST_ANALYST_PYTHON"), binary(t)
	env := []string{"MCP_SANDBOX_STATE_DIR=" + stateDir(t), "MCP_SANDBOX_PYTHON=" + python}
	w := newWire(t, server, env...)
	made := w.python(`
import dataclasses
import numpy as np, pandas as pd
from sklearn.linear_model import LinearRegression
df = pd.DataFrame({"a": np.arange(1000.0), "b": ["x", "y"] * 500})
series = df["a"]
model = LinearRegression().fit(df[["a"]], 2 * df["a"] + 1)
@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
p = Point(1)
def adder(n):
    return lambda m: n + m + len(df)
add = adder(5)
gen = (i for i in range(3))
file = open("notes.txt", "w")
file.write("kept") and file.flush()
np.random.seed(7)
`)
	w.end()
	w = newWire(t, server, env...)
	r, took := w.tool("execute_python", map[string]any{"session_id": made.SessionID, "code": `
out = [len(df), float(series.sum()), round(float(model.predict(pd.DataFrame({"a": [10.0]}))[0]), 6), p == Point(1, 2), add(1),
       "gen" in globals(), "file" in globals(), open("notes.txt").read(), float(np.random.rand())]
np.random.seed(7)
out[-1] == float(np.random.rand()) and out[:-1]`})
	if string(r.Output) != `[1000,499500.0,21.0,true,1006,false,false,"kept"]` || r.State != "restored" {
		t.Errorf("%+v", r)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"not kept: gen (", "not kept: file ("} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
	t.Logf("restored, with numpy, pandas and scikit-learn imported, in %v", took)
	w.end()
}

// A thousand sessions at once, a fifth of them live.
func TestProveThousandSessions(t *testing.T) {
	proving(t)
	const all, live = 1000, 200
	server := binary(t)
	w := newWire(t, server, fmt.Sprintf("MCP_SANDBOX_MAX_SESSIONS=%d", live))
	call := func(id, code string) (reply, time.Duration) {
		return w.tool("execute_python", map[string]any{"session_id": id, "code": code})
	}
	var ids []string
	start := time.Now()
	for i := range all {
		r, _ := call("new", fmt.Sprintf("x = %d; rows = [{'n': i} for i in range(100)]", i))
		if r.State != "new" {
			t.Fatalf("%d: %+v\n%s", i, r, w.stderr.String())
		}
		ids = append(ids, r.SessionID)
	}
	opened := time.Since(start)
	for deadline := time.Now().Add(time.Minute); w.processes() > 3*live && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	processes := w.processes()
	if processes > 3*live+8 { // a supervisor, a worker and a standby for each
		t.Errorf("%d processes are left", processes)
	}
	measure := func(indices []int, state string) []time.Duration {
		var took []time.Duration
		for _, i := range indices {
			r, d := call(ids[i], "x, len(rows)")
			if r.State != state || string(r.Output) != fmt.Sprintf("[%d,100]", i) {
				t.Fatalf("%d: %+v", i, r)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		return took
	}
	var young, old []int
	for i := all - live/2; i < all; i++ { // the other half makes room for those that wake up
		young = append(young, i)
	}
	for range 100 {
		old = append(old, mathrand.N(all-2*live))
	}
	slices.Sort(old)
	old = slices.Compact(old)

	warm := measure(young, "kept")
	cold := measure(old, "restored")
	under := append(measure(young, "kept"), measure(young, "kept")...)
	slices.Sort(under)
	middle := func(d []time.Duration) time.Duration { return d[len(d)/2].Round(100 * time.Microsecond) }
	last := func(d []time.Duration) time.Duration { return d[len(d)*99/100].Round(time.Millisecond) }
	proof("a thousand sessions, opened in %v, %d processes: a call to a live one %v at the median, %v at the 99th percentile; to a hibernated one %v, %v; to a live one while those make room %v, %v",
		opened.Round(time.Second), processes, middle(warm), last(warm), middle(cold), last(cold), middle(under), last(under))
	if middle(warm) > 50*time.Millisecond || middle(cold) > 400*time.Millisecond {
		t.Error("too slow")
	}
	if bytes.Contains(w.stderr.Bytes(), []byte("not saved")) {
		t.Error(w.stderr.String())
	}
	w.in.Close()
	_ = w.cmd.Wait() // two hundred walls may take longer to end than a server has for it
}
