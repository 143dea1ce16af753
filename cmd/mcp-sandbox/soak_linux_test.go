package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// holding is what a server has, with all that it has started.
type holding struct{ descriptors, processes, inodes, groups int }

// holdingOf counts what process pid holds, and what lies in dirs, its directories.
func holdingOf(t *testing.T, pid int, dirs ...string) holding {
	t.Helper()
	all := family(t, pid)
	h := holding{processes: len(all)}
	for _, p := range all {
		if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p)); err == nil { // one that has just ended has none
			h.descriptors += len(fds)
		}
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { h.inodes++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range controlGroups() {
		if strings.HasPrefix(name, fmt.Sprintf("mcp-sandbox.%d.", pid)) {
			h.groups++
		}
	}
	return h
}

// settles waits until a server holds what it held before: the kernel takes namespaces
// down behind the answers.
func settles(t *testing.T, before holding, holds func() holding) holding {
	t.Helper()
	last := holds()
	for deadline := time.Now().Add(time.Minute); last != before && time.Now().Before(deadline); last = holds() {
		time.Sleep(100 * time.Millisecond)
	}
	return last
}

// resident memory over what has been done, in order.
type resident struct{ done, bytes []float64 }

func (r *resident) add(done int, bytes int64) {
	r.done, r.bytes = append(r.done, float64(done)), append(r.bytes, float64(bytes))
}

// slope is bytes for each thing done, by least squares over the second half: the first is
// the growth of a young process.
func (r *resident) slope() float64 {
	x, y := r.done[len(r.done)/2:], r.bytes[len(r.bytes)/2:]
	n, sx, sy, sxx, sxy := float64(len(x)), 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return math.NaN()
}

// soakTime is how long a soak goes on: MCP_SANDBOX_TEST_PROVE_MINUTES, or else usual.
func soakTime(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("MCP_SANDBOX_TEST_PROVE_MINUTES")
	if text == "" {
		return usual
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("MCP_SANDBOX_TEST_PROVE_MINUTES=%q is no number of minutes", text)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// soakDir is a directory for all that a server puts down, which a guest's user can reach.
func soakDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// One server that has done much holds no more than it did at the beginning: one session
// of many calls, of which many fail or print too much, beside new ones that come and go.
func TestProveSoak(t *testing.T) {
	proving(t)
	tmp := soakDir(t)
	// A session's outputs are at their limit soon, and then the oldest go.
	w := newWire(t, binary(t), "TMPDIR="+tmp, "MCP_SANDBOX_MAX_OUTPUT=1MiB")
	programs := []string{"n += 1", "print('x' * 30000)", "[1] * 1000", "1 / 0", "import subprocess\nsubprocess.run(['true']).returncode", "open('f%d' % (n % 9), 'w').close()"}
	calls, sessions := 0, 0
	work := func() {
		for i := range 10 {
			r, _ := w.tool("execute_python", map[string]any{"code": programs[calls%len(programs)], "inputs": map[string]any{"i": calls}})
			if r.State != "kept" || r.Success == (calls%len(programs) == 3) {
				t.Fatalf("call %d: %+v", i, r)
			}
			calls++
		}
		r, _ := w.tool("execute_python", map[string]any{"code": "open('f', 'w').write('x' * 10000)\n40 + 2", "session_id": "new"})
		if string(r.Output) != "42" || r.State != "new" {
			t.Fatalf("session %d: %+v", sessions, r)
		}
		if r, _ = w.tool("reset_session", map[string]any{"session_id": r.SessionID, "close": true}); !r.Success {
			t.Fatalf("session %d: %+v", sessions, r)
		}
		sessions++
	}
	holds := func() holding { return holdingOf(t, w.cmd.Process.Pid, tmp) }
	w.python("n = 0")
	for range 60 {
		work()
	}
	time.Sleep(time.Second)
	first := holds()
	var memory resident
	start, limit := time.Now(), soakTime(t, 90*time.Second)
	for len(memory.done) < 4 || time.Since(start) < limit {
		for range 20 {
			work()
		}
		memory.add(calls, w.memory("VmRSS"))
	}
	last := settles(t, first, holds)
	checkSoak(t, fmt.Sprintf("soak: %d calls and %d new sessions over one server in %v", calls, sessions, time.Since(start).Round(time.Second)), &memory, first, last)
	if grown := memory.bytes[len(memory.bytes)-1] - memory.bytes[0]; grown > 20<<20 {
		t.Errorf("grew by %.0f bytes", grown)
	}
	w.end()
}

// checkSoak tells what was found, and what is wrong with it.
func checkSoak(t *testing.T, what string, memory *resident, first, last holding) {
	t.Helper()
	n := len(memory.bytes)
	slope := memory.slope() * 1000
	proof("%s: RSS %.1f MB, then %.1f MB (peak %.1f MB), %+.0f kB for each 1000 calls of the second half; descriptors and processes of all its family, inodes, control groups %v, then %v",
		what, memory.bytes[0]/1e6, memory.bytes[n-1]/1e6, slices.Max(memory.bytes)/1e6, slope/1e3, first, last)
	if last != first {
		t.Errorf("held at the beginning %+v, at the end %+v", first, last)
	}
}

// liveAtRest waits for the runtime's next collection, which comes every two minutes by
// itself, and gives what is alive in the server then, in MB. Resident memory, with so many
// sessions at once, goes by how many of them begin at the same moment.
func (w *web) liveAtRest() (mb int) {
	w.t.Helper()
	collections := regexp.MustCompile(`(?m)^gc \d+ @.* \d+->\d+->(\d+) MB`)
	before := len(collections.FindAllString(w.logged(), -1))
	for deadline := time.Now().Add(6 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		if all := collections.FindAllStringSubmatch(w.logged(), -1); len(all) > before+1 { // the first may have been under way
			mb, _ = strconv.Atoi(all[len(all)-1][1])
			return mb
		}
	}
	w.t.Error("the runtime never collected")
	return 0
}

// A hundred and twenty-eight workers at once, as a trainer has them: each runs short
// programs in a session of its own for a while, and then in another. Each call ends, in
// the way that its program asks for.
func TestProveWorkers(t *testing.T) {
	proving(t)
	const workers, callsEach = 128, 12
	tmp, state := soakDir(t), stateDir(t)
	t.Setenv("TMPDIR", tmp)
	t.Setenv("GODEBUG", "gctrace=1")
	w := serveWeb(t, "--max-sessions", "200", "--max-output", "1MiB", "--state-dir", state, "--memory", "256MiB")
	programs := []struct{ code, status string }{ // all but one have a minute, on a machine that is busy
		{"n = inputs['n']; sum(i * i for i in range(10_000)) + n", "ok"},
		{"import json, collections; len(collections.Counter('abracadabra'))", "ok"},
		{"assert n < 0, 'a wrong answer'", "error"},
		{"print('x' * 30_000)", "ok"},
		{"open('solution.py', 'w').write('print(1)')\nimport subprocess, sys\nsubprocess.run([sys.executable, '-S', 'solution.py'], capture_output=True).returncode", "ok"},
		{"while True: pass", "timeout"},
		{"bytearray(1 << 30)", "oom"},
		{"import os; os._exit(3)", "crash"},
	}
	var calls, sessions, refused, wrong atomic.Int64
	kinds := make([]atomic.Int64, len(programs))
	ask := func(tool string, arguments map[string]any) (r reply, served bool) {
		for {
			res, err := w.post(context.Background(), tool, arguments)
			if err != nil {
				t.Error(err)
				return r, false
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil && res.StatusCode == http.StatusOK {
				r, err = structuredOf(body)
				if err == nil && !strings.Contains(r.Error, "try again") {
					return r, true
				}
			}
			if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable && res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%d, %v: %.300s", res.StatusCode, err, body)
				return r, false
			}
			refused.Add(1)
			time.Sleep(200 * time.Millisecond) // as it is told to
		}
	}
	worker := func(number int, until time.Time) {
		for turn := number; time.Now().Before(until) && wrong.Load() == 0 && !t.Failed(); {
			id := "new"
			for range callsEach {
				kind := turn % len(programs)
				p, limit := programs[kind], 60
				if p.status == "timeout" {
					limit = 1
				}
				turn++
				r, served := ask("execute_python", map[string]any{"session_id": id, "code": "n = 0\n" + p.code, "timeout_s": limit, "inputs": map[string]any{"n": number}})
				if !served || r.Status != p.status {
					wrong.Add(1)
					t.Errorf("worker %d, %s: %s: %s %q", number, p.code, r.Status, r.Error, r.Notes)
					return
				}
				calls.Add(1)
				kinds[kind].Add(1)
				id = r.SessionID
			}
			if r, served := ask("reset_session", map[string]any{"session_id": id, "close": true}); !served || !r.Success {
				wrong.Add(1)
				t.Errorf("worker %d: %+v", number, r)
				return
			}
			sessions.Add(1)
		}
	}
	round := func(d time.Duration) {
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() { worker(i, time.Now().Add(d)) })
		}
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
	holds := func() holding { return holdingOf(t, w.cmd.Process.Pid, tmp, state) }
	rss := func() int64 { return kilobytes(t, fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid), "VmRSS:") }
	round(time.Second)
	time.Sleep(10 * time.Second) // the kernel takes down what the first round has left
	first := holds()
	calls.Store(0)
	sessions.Store(0)
	var memory resident
	start, limit := time.Now(), soakTime(t, 3*time.Minute)
	memory.add(0, rss())
	sampled := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(sampled)
		for tick := time.NewTicker(limit / 40); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				memory.add(int(calls.Load()), rss())
			}
		}
	}()
	round(limit)
	took := time.Since(start)
	close(stop)
	<-sampled
	last := settles(t, first, holds)
	memory.add(int(calls.Load()), rss())
	checkSoak(t, fmt.Sprintf("%d workers: %d calls in %d sessions in %v, each ended as its program asks for (refused and asked again %d)",
		workers, calls.Load(), sessions.Load(), took.Round(time.Second), refused.Load()), &memory, first, last)
	const most = 12 // MB; a fresh server has 4
	if live := w.liveAtRest(); live > most {
		t.Errorf("%d MB are alive in the server at rest", live)
	} else {
		proof("%d workers: %d MB are alive in the server when they have gone", workers, live)
	}
	for i := range kinds {
		if kinds[i].Load() == 0 {
			t.Errorf("never ran: %s", programs[i].code)
		}
	}
	w.stop()
}

// structuredOf is a reply in an answer, be it JSON or an event.
func structuredOf(body []byte) (r reply, err error) {
	text := string(body)
	if i := strings.LastIndex(text, "data: "); i >= 0 {
		text = text[i+len("data: "):]
	}
	var m struct {
		Result struct{ StructuredContent *reply }
	}
	if err = json.Unmarshal([]byte(text), &m); err == nil && m.Result.StructuredContent == nil {
		err = fmt.Errorf("no result")
	}
	if err == nil {
		r = *m.Result.StructuredContent
	}
	return r, err
}
