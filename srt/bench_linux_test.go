package srt

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// Machines are shared and noisy: what is compared is measured in turn, in one
// run, and the medians are reported as a ratio.

// compare reports the medians of two actions, and their ratio.
func compare(b *testing.B, name string, action, other func()) {
	b.Helper()
	var a, o []time.Duration
	for b.Loop() {
		a = append(a, timed(action))
		o = append(o, timed(other))
	}
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(float64(median(a).Microseconds()), "µs")
	b.ReportMetric(float64(median(o).Microseconds()), "µs-"+name)
	b.ReportMetric(float64(median(a))/float64(median(o)), "×"+name)
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func median[T cmp.Ordered](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// barePython is the least that any fresh interpreter costs.
func barePython(b *testing.B) func() {
	return func() {
		if err := exec.Command(testPython, "-I", "-S", "-c", "pass").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchWall starts the binary as it is shipped, if the environment names it.
func benchWall(b *testing.B) *native {
	n, err := newNative(testNative())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := n.close(); err != nil {
			b.Error(err)
		}
	})
	return n
}

// The start of be-child: from the fork until the wall stands and the guest's
// program has been executed.
func BenchmarkBeChild(b *testing.B) {
	n := benchWall(b)
	var cages []*cage
	compare(b, "python", func() {
		c, err := n.start(b.Context(), Policy{}, command{Path: "/bin/true"})
		if err != nil {
			b.Fatal(err)
		}
		cages = append(cages, c)
	}, barePython(b))
	for _, c := range cages {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}
}

// The wall for commands, with its some sixty mounts, until its program has been executed.
func BenchmarkCommandWall(b *testing.B) {
	n := benchWall(b)
	commands := commandWall(b, "")
	var cages []*cage
	start := func(p Policy) func() {
		return func() {
			c, err := n.start(b.Context(), p, command{Path: "/usr/bin/cat"})
			if err != nil {
				b.Fatal(err)
			}
			cages = append(cages, c)
		}
	}
	compare(b, "plain", start(commands), start(Policy{}))
	for _, c := range cages {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}
}

// What the wall adds to a warm call: the same kernel with and without it.
func BenchmarkWallPerCall(b *testing.B) {
	l := local(b, Config{})
	s, err := l.Open(b.Context(), sandbox.Spec{ID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	bare := bareKernel(b, l)
	for _, run := range []func(sandbox.Request) (sandbox.Result, error){
		func(r sandbox.Request) (sandbox.Result, error) { return s.Run(b.Context(), r) },
		func(r sandbox.Request) (sandbox.Result, error) { return bare.Run(b.Context(), r) },
	} {
		for range 50 { // both have done their chores by then
			if res, err := run(sandbox.Request{Code: "x = 0"}); err != nil || !res.Success() {
				b.Fatalf("%+v, %v", res, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	req := sandbox.Request{Code: "x += 1"}
	compare(b, "bare", func() { s.Run(b.Context(), req) }, func() { bare.Run(b.Context(), req) })
}

// bareKernel is the interpreter's side without a wall, as a plain child.
func bareKernel(b *testing.B, l *Local) *kernel.Client {
	dir := b.TempDir()
	for name, code := range l.python.compiled {
		if err := os.WriteFile(filepath.Join(dir, name), code, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	stdoutR, stdoutW := pipe()
	stderrR, stderrW := pipe()
	cmd := exec.Command(testPython, "-I", "-S", filepath.Join(dir, "main.pyc"), "--in", "3", "--out", "4", "--workdir", dir)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdoutW, stderrW, []*os.File{inR, outW}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	closeAll([]*os.File{inR, outW, stdoutW, stderrW})
	c := kernel.NewClient(kernel.Config{In: inW, Out: outR, Output: kernel.NewOutput(stdoutR, stderrR, 20_000)})
	b.Cleanup(func() {
		c.Close() // the supervisor ends with its channel
		_ = cmd.Wait()
	})
	return c
}
