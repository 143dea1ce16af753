package main_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A gigabyte of output costs the server no memory, and hardly more time than
// the same through a pipe: both are measured in turn, since machines are noisy,
// and the bounds that fail the test are safety limits.
func TestFlood(t *testing.T) {
	const (
		size     = 1 << 30
		growth   = 20 << 20 // bytes of the server's memory
		slowdown = 4.0      // 2 is the goal
	)
	w := newWire(t, binary(t))
	w.python("import os\nblock = b'x' * (1 << 20)\nos.write(1, block);") // what the first output costs once
	before := w.memory("VmHWM")
	var ratios []float64
	for range 3 {
		start := time.Now()
		if out, err := exec.Command("sh", "-c", "head -c 1G /dev/zero | cat >/dev/null").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		bare := time.Since(start)
		start = time.Now()
		r := w.python("os.write(1, b'FIRST\\n')\nfor _ in range(1024): os.write(1, block)\nos.write(1, b'\\nLAST')")
		took := time.Since(start)
		ratios = append(ratios, took.Seconds()/bare.Seconds())
		t.Logf("1 GiB: %v; by head and cat %v; ratio %.2f", took.Round(time.Millisecond), bare.Round(time.Millisecond), ratios[len(ratios)-1])
		if !strings.HasPrefix(r.Stdout, "FIRST\nxxx") || !strings.HasSuffix(r.Stdout, "xxx\nLAST") {
			t.Errorf("head or tail is not there: %.20q … %q", r.Stdout, r.Stdout[max(0, len(r.Stdout)-20):])
		}
		if c := r.Truncated; c == nil || c.Stdout.Produced != size+6+5 || c.Stdout.Kept < 10_000 || c.Stdout.Kept > 20_000 || c.Stderr.Produced != 0 {
			t.Errorf("counts: %+v", c)
		}
	}
	grown := w.memory("VmHWM") - before
	slices.Sort(ratios)
	t.Logf("the server grew by %.1f MB at its peak; %.2f × the time of head and cat at the median of %.2f", float64(grown)/1e6, ratios[1], ratios)
	if grown >= growth {
		t.Errorf("the server grew by %d bytes", grown)
	}
	if ratios[0] > slowdown {
		t.Errorf("%.2f × the time of head and cat at best", ratios[0])
	}

	// Nothing else is read while standard error alone is written.
	r := w.python("for _ in range(5): os.write(2, block)\nos.write(2, b'END')")
	if c := r.Truncated; c == nil || c.Stderr.Produced != 5<<20+3 || c.Stdout.Produced != 0 || !strings.HasSuffix(r.Stderr, "xEND") {
		t.Errorf("5 MB on standard error: %+v, %.20q", c, r.Stderr)
	}
	w.end()
}
