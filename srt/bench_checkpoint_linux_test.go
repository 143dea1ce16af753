package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// benchHeld is what the sessions hold while they are measured.
var benchHeld = []struct{ name, code string }{
	{"nothing", "x = 0"},
	{"100MB", "import os; data = bytearray(os.urandom(1 << 20)) * 100; x = 0"},
	{"1GB", "import os; data = bytearray(os.urandom(1 << 20)) * 1024; x = 0"},
}

// A warm call with checkpoints, after a pause and back to back, against one without, in
// turn; what it takes until the variables are back after the interpreter was killed; and
// what the two processes hold in memory.
func BenchmarkCheckpoint(b *testing.B) {
	for _, held := range benchHeld {
		b.Run(held.name, func(b *testing.B) { benchCheckpoint(b, held.code) })
	}
}

func benchCheckpoint(b *testing.B, code string) {
	modes := []sandbox.Checkpoint{sandbox.CheckpointOff, sandbox.CheckpointIdle, sandbox.CheckpointAlways}
	const falls = sandbox.Checkpoint("falls") // one more, which is killed: the others stay as they are
	sessions := map[sandbox.Checkpoint]*session{}
	run := func(mode sandbox.Checkpoint, code string) time.Duration {
		start := time.Now()
		res, err := sessions[mode].Run(b.Context(), sandbox.Request{Code: code})
		took := time.Since(start)
		if err != nil || !res.Success() && res.State != sandbox.StateRestored {
			b.Fatalf("%+v, %v", res, err)
		}
		return took
	}
	for _, mode := range append(modes, falls) {
		l := local(b, Config{Checkpoint: sandbox.Checkpoint(strings.Replace(string(mode), string(falls), "always", 1))})
		s, err := l.Open(b.Context(), sandbox.Spec{ID: "bench-" + string(mode)})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		sessions[mode] = s.(*session)
		for _, c := range []string{code, "x += 1", "x += 1"} {
			run(mode, c)
			time.Sleep(200 * time.Millisecond)
		}
	}
	paused, near := map[sandbox.Checkpoint][]time.Duration{}, map[sandbox.Checkpoint][]time.Duration{}
	var recovered []time.Duration
	for b.Loop() {
		for _, mode := range modes {
			time.Sleep(100 * time.Millisecond)
			paused[mode] = append(paused[mode], run(mode, "x += 1"))
			for range 4 {
				near[mode] = append(near[mode], run(mode, "x += 1"))
			}
		}
		time.Sleep(100 * time.Millisecond)
		recovered = append(recovered, run(falls, "import os; os.kill(os.getpid(), 9)"))
	}
	b.ReportMetric(0, "ns/op")
	for _, mode := range modes {
		b.ReportMetric(float64(median(paused[mode]).Microseconds()), "µs-paused-"+string(mode))
		b.ReportMetric(float64(median(near[mode]).Microseconds()), "µs-near-"+string(mode))
	}
	b.ReportMetric(float64(median(paused[sandbox.CheckpointAlways]))/float64(median(paused[sandbox.CheckpointOff])), "×paused")
	b.ReportMetric(float64(median(recovered).Microseconds()), "µs-recovered")
	time.Sleep(200 * time.Millisecond)
	for _, mode := range modes[1:] {
		b.ReportMetric(float64(shares(b, sessions[mode]))/1e6, "MB-"+string(mode))
	}
	b.ReportMetric(float64(shares(b, sessions[sandbox.CheckpointOff]))/1e6, "MB-off")
}

// shares adds up what a session's processes hold: their own pages, and their part of those
// that they share.
func shares(b *testing.B, s *session) (total int64) {
	for _, pid := range descendants(s.live.cage.Pid(), nil) {
		text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "smaps_rollup"))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var kb int64
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 {
				total += kb << 10
			}
		}
	}
	return total
}
