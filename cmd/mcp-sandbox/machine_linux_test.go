package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mcp-sandbox/sandbox/sandboxtest"
)

// about says what was compared, and on what.
func about(b *testing.B, python, server string) map[string]string {
	b.Helper()
	out := func(argv ...string) string {
		b.Helper()
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		sandboxtest.Require(b, err == nil, fmt.Sprintf("%s does not run (make bench installs what this needs): %v", argv[0], err))
		return strings.TrimSpace(string(out))
	}
	const versions = `import importlib.metadata as m, platform
print(platform.python_version() + "".join(f", {p} {m.version(p)}" for p in ("pandas", "numpy", "ipykernel", "jupyter_client")))`
	return map[string]string{
		"machine":    out("uname", "-srm") + ", " + strconv.Itoa(runtime.NumCPU()) + " cores",
		"server":     out(server, "version"),
		"python":     out(python, "-c", versions),
		"bubblewrap": out("bwrap", "--version"),
		"load":       load(),
	}
}

// load is the machine's load average over a minute: the figures of a busy one say less.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// stateDirectory is where namespaces are pickled to: in memory where there is room, so
// that no disk is measured. What a run left there that was killed is taken away.
func stateDirectory(b *testing.B) string {
	b.Helper()
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) != nil || int64(fs.Bavail)*fs.Bsize < 3<<30 {
		b.Log("/dev/shm has no 3 GiB free: namespaces are pickled to the disk")
		return b.TempDir()
	}
	const prefix = "/dev/shm/mcp-sandbox-rivals-" // and the process's number
	left, _ := filepath.Glob(prefix + "*")
	for _, dir := range left {
		if !exists("/proc/" + strings.TrimPrefix(dir, prefix)) {
			_ = os.RemoveAll(dir)
		}
	}
	dir := prefix + strconv.Itoa(os.Getpid())
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// availableMemory is what can be had without swapping, in bytes.
func availableMemory(b *testing.B) int64 {
	b.Helper()
	return kilobytes(b, "/proc/meminfo", "MemAvailable:")
}

// proportionalMemory is what a process and all its descendants hold, where a page that
// several share counts in shares. None for pid 0.
func proportionalMemory(b *testing.B, pid int) int64 {
	b.Helper()
	if pid == 0 {
		return 0
	}
	var total int64
	for _, p := range family(b, pid) {
		if file := fmt.Sprintf("/proc/%d/smaps_rollup", p); exists(file) {
			total += kilobytes(b, file, "Pss:")
		}
	}
	return total
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// kilobytes is the line of a file that begins with name, in bytes.
func kilobytes(b testing.TB, file, name string) int64 {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == name && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n << 10
		}
	}
	b.Fatalf("no %s in %s", name, file)
	return 0
}

// family is a process and its descendants.
func family(b testing.TB, pid int) []int {
	b.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		p, _ := strconv.Atoi(strings.Split(path, "/")[2])
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, _ := strconv.Atoi(f[1])
		children[parent] = append(children[parent], p)
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family
}
