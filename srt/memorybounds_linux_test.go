package srt

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The machine's memory, and every limited group above the server, bound it.
func TestMemoryBounds(t *testing.T) {
	dir := t.TempDir()
	groups := filepath.Join(dir, "cgroup")
	for name, text := range map[string]string{
		"proc/meminfo":                   "MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable:  600000 kB\n",
		"proc/self/cgroup":               "4:cpu:/x\n0::/a/b/c\n",
		"proc/self/mountinfo":            "30 1 0:20 / " + groups + " rw - cgroup2 cgroup rw\n",
		"cgroup/cgroup.procs":            "",
		"cgroup/a/cgroup.procs":          "",
		"cgroup/a/memory.max":            "1000000\n",
		"cgroup/a/memory.current":        "900000\n",
		"cgroup/a/memory.stat":           "file 5\ninactive_file 200000\n",
		"cgroup/a/b/cgroup.procs":        "",
		"cgroup/a/b/memory.max":          "max\n",
		"cgroup/a/b/memory.current":      "800000\n",
		"cgroup/a/b/memory.stat":         "inactive_file 0\n",
		"cgroup/a/b/c/cgroup.procs":      "",
		"cgroup/a/b/c/memory.max":        "9223372036854771712\n", // no limit, in another word
		"cgroup/a/b/c/memory.current":    "1\n",
		"cgroup/a/b/c/memory.stat":       "inactive_file 0\n",
		"proc/without/meminfo":           "MemTotal: 1 kB\n",
		"proc/old/meminfo":               "MemTotal:  1000000 kB\nMemAvailable:  600000 kB\n",
		"proc/old/self/cgroup":           "4:memory:/d\n",
		"proc/old/self/mountinfo":        "30 1 0:20 / " + groups + " rw - cgroup cgroup rw,memory\n",
		"cgroup/d/cgroup.procs":          "",
		"cgroup/d/memory.limit_in_bytes": "500\n",
		"cgroup/d/memory.usage_in_bytes": "490\n",
		"cgroup/d/memory.stat":           "inactive_file 1\ntotal_inactive_file 40\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	machine := memoryBound{1000000 << 10, 600000 << 10}
	for proc, want := range map[string][]memoryBound{
		"proc":         {machine, {1000000, 300000}},
		"proc/old":     {machine, {500, 50}},
		"proc/without": nil,
		"nowhere":      nil,
	} {
		got := memoryBounds(filepath.Join(dir, proc))
		slices.SortFunc(got, func(a, b memoryBound) int { return cmp.Compare(b.limit, a.limit) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", proc, got, want)
		}
	}
	if real := memoryBounds("/proc"); len(real) == 0 || real[0].free <= 0 || real[0].free > real[0].limit {
		t.Errorf("of this machine: %v", real)
	}
}

// A tenth of every bound stays free for those who work.
func TestLeaves(t *testing.T) {
	for _, c := range []struct {
		bounds []memoryBound
		cost   int64
		want   bool
	}{
		{nil, 1 << 40, true},
		{[]memoryBound{{1000, 200}}, 100, true},
		{[]memoryBound{{1000, 200}}, 101, false},
		{[]memoryBound{{1000, 1000}, {100, 9}}, 0, false},
		{[]memoryBound{{1000, 1000}, {100, 10}}, 0, true},
	} {
		if got := leaves(c.bounds, c.cost); got != c.want {
			t.Errorf("%v, %d: %v", c.bounds, c.cost, got)
		}
	}
}
