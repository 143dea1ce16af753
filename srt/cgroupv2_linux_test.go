package srt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeV2 does to a directory what the kernel does to a hierarchy of version 2, as far as
// it matters here: new groups have the control files that their parent hands down, a
// process is in one group, and a group has either processes or controllers handed down.
// The machines at hand have no memory controller there, so this is what the code is tested
// on; TestHandDown tries the moves on the real one.
type fakeV2 struct {
	root   string           // the hierarchy's, whose rules are laxer
	refuse map[string]error // by "mkdir" or the name of a file: what is answered instead
}

var memoryFiles2 = map[string]string{
	"memory.max": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "0\n", "memory.current": "12345\n",
	"memory.stat":   "anon 10000\nfile 2300\ninactive_anon 7\nactive_anon 8\ninactive_file 2000\nactive_file 300\n",
	"memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
}

func (k *fakeV2) words(dir, file string) []string {
	text, _ := os.ReadFile(filepath.Join(dir, file)) // none is an empty list
	return strings.Fields(string(text))
}

func (k *fakeV2) set(dir, file string, words []string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(strings.Join(words, "\n")+"\n"), 0o644)
}

func (k *fakeV2) mkdir(dir string) error {
	if err := k.refuse["mkdir"]; err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	handed := k.words(filepath.Dir(dir), "cgroup.subtree_control")
	err := errors.Join(k.set(dir, "cgroup.controllers", handed), k.set(dir, "cgroup.subtree_control", nil), k.set(dir, "cgroup.procs", nil))
	if slices.Contains(handed, "pids") {
		err = errors.Join(err, k.set(dir, "pids.max", []string{"max"}))
	}
	if slices.Contains(handed, "memory") {
		for file, text := range memoryFiles2 {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
		}
	}
	return err
}

func (k *fakeV2) write(dir, file, value string) error {
	if err := k.refuse[file]; err != nil {
		return err
	}
	switch file {
	case "cgroup.subtree_control":
		controller := strings.TrimPrefix(value, "+")
		if !slices.Contains(k.words(dir, "cgroup.controllers"), controller) {
			return unix.ENOENT
		}
		if dir != k.root && len(k.words(dir, "cgroup.procs")) > 0 {
			return unix.EBUSY
		}
		return k.set(dir, file, append(k.words(dir, file), controller))
	case "cgroup.procs":
		if dir != k.root && len(k.words(dir, "cgroup.subtree_control")) > 0 {
			return unix.EBUSY
		}
		err := filepath.WalkDir(k.root, func(at string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() || !slices.Contains(k.words(at, file), value) {
				return err
			}
			return k.set(at, file, slices.DeleteFunc(k.words(at, file), func(p string) bool { return p == value }))
		})
		return errors.Join(err, k.set(dir, file, append(k.words(dir, file), value)))
	}
	return cgroupfs{}.write(dir, file, value) // ENOENT for what is not there
}

func (k *fakeV2) rmdir(dir string) error {
	if len(k.words(dir, "cgroup.procs")) > 0 {
		return unix.EBUSY
	}
	return os.RemoveAll(dir)
}

// newFakeV2 is a hierarchy that hands controllers down to its group svc, in which the
// process 77 is with members beside it.
func newFakeV2(t *testing.T, controllers, members string) (k *fakeV2, proc, dir string) {
	t.Helper()
	root := t.TempDir()
	k = &fakeV2{root: root}
	files(t, root, map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": controllers, "cgroup.procs": "1\n"})
	dir = filepath.Join(root, "svc")
	if err := k.mkdir(dir); err != nil {
		t.Fatal(err)
	}
	files(t, dir, map[string]string{"cgroup.procs": members})
	mounts := fmt.Sprintf("1 1 0:1 / %s rw - cgroup2 cgroup rw\n", root)
	return k, filepath.Join(fakeProc(t, 77, "0::/svc\n", mounts), "self"), dir
}

func TestCgroupsV2(t *testing.T) {
	const leaf = "mcp-sandbox.77.4711.server"
	denied := &os.PathError{Op: "open", Path: "x", Err: unix.EACCES}
	for _, tt := range []struct {
		name                 string
		controllers, members string
		refuse               map[string]error
		want                 string // in the sentence
		moved                bool   // the server went down into its leaf
	}{
		{"alone", "cpu memory pids", "77\n", nil, "memory and tasks by cgroup v2 at ", true},
		{"nobody in it", "memory pids", "", nil, "memory and tasks by cgroup v2 at ", false},
		{"no controller of tasks", "memory", "77\n", nil, ", tasks by RLIMIT_NPROC", true},
		{"in company", "memory pids", "77\n78\n", nil, "2 processes share the server's group", false},
		{"alone, but somebody else", "memory", "78\n", nil, "1 processes share", false},
		{"no memory controller", "cpu", "77\n", nil, "no memory controller in", false},
		{"not to be written", "memory", "77\n", map[string]error{"cgroup.subtree_control": denied}, "permission denied; start the server by systemd-run", false},
		{"read-only", "memory", "", map[string]error{"mkdir": unix.EROFS}, "read-only file system", false},
		{"no room for a leaf", "memory", "77\n", map[string]error{"mkdir": unix.EAGAIN}, "watchdog (no writable cgroup: resource temporarily", false},
		{"may not be moved", "memory", "77\n", map[string]error{"cgroup.procs": denied}, "permission denied", false},
		{"no limit to be set", "memory", "77\n", map[string]error{"memory.max": unix.EINVAL}, "invalid argument", true},
		{"no limit of swap to be set", "memory", "77\n", map[string]error{"memory.swap.max": denied}, "permission denied", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, proc, dir := newFakeV2(t, tt.controllers, tt.members)
			k.refuse = tt.refuse
			g, sentence := findCgroupsIn(proc, k)
			if !strings.Contains(sentence, tt.want) || (g == nil) != strings.Contains(sentence, "watchdog") {
				t.Error(sentence)
			}
			if g == nil && !strings.Contains(sentence, "RLIMIT_DATA and watchdog (no writable cgroup: ") {
				t.Errorf("not said what holds instead: %s", sentence)
			}
			if moved := slices.Contains(k.words(filepath.Join(dir, leaf), "cgroup.procs"), "77"); moved != tt.moved {
				t.Errorf("moved: %v", moved)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range left {
				if e.IsDir() && (e.Name() != leaf || !tt.moved) {
					t.Errorf("left behind: %s", e.Name())
				}
			}
			if in := k.words(dir, "cgroup.procs"); !tt.moved && !slices.Equal(in, strings.Fields(tt.members)) {
				t.Errorf("in the group: %q", in)
			}
		})
	}
}

// A session's whole life in a group of version 2.
func TestCgroupV2(t *testing.T) {
	k, proc, dir := newFakeV2(t, "memory pids", "77\n")
	g, sentence := findCgroupsIn(proc, k)
	if g == nil {
		t.Fatal(sentence)
	}
	// A second wall of this server, and one that looks again, find it as it is now.
	moved := filepath.Join(fakeProc(t, 77, "0::/svc/mcp-sandbox.77.4711.server\n", fmt.Sprintf("1 1 0:1 / %s rw - cgroup2 cgroup rw\n", k.root)), "self")
	if again, why := findCgroupsIn(moved, k); again == nil || again.dirs[0] != dir || why != sentence {
		t.Errorf("the second time: %+v, %s", again, why)
	}
	c, err := g.create(Policy{Memory: 100 * mib, Tasks: 33})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.place(4242); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"memory.max": strconv.Itoa(100*mib + supervisorAllowance), "memory.swap.max": "0", "memory.oom.group": "0", "pids.max": "33", "cgroup.procs": "4242",
	} {
		if got, _, _ := strings.Cut(read(t, c.dirs[0], file), "\n"); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q", file, got)
		}
	}
	if n, ok := c.oomKills(); n != 2 || !ok {
		t.Errorf("%d kills, %v", n, ok)
	}
	if n, err := c.usage(); n != 10045 || err != nil {
		t.Errorf("usage %d, %v", n, err)
	}
	if err := c.remove(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed with a process in it: %v", err)
	}
}

// As the kernel of version 1 tells it: of the group alone, and with those below it.
func TestUsageV1(t *testing.T) {
	group := t.TempDir()
	files(t, group, map[string]string{"memory.usage_in_bytes": "12345\n", "memory.stat": "inactive_file 1\nactive_file 2\ntotal_inactive_file 400\ntotal_active_file 5\n"})
	c := &cgroup{fs: cgroupfs{}, files: cgroupV1, dirs: []string{group}}
	if n, err := c.usage(); n != 11940 || err != nil {
		t.Errorf("usage %d, %v", n, err)
	}
	files(t, group, map[string]string{"memory.stat": "total_inactive_file 12000\ntotal_active_file 1000\n"})
	if n, err := c.usage(); n != 0 || err != nil {
		t.Errorf("usage %d, %v", n, err)
	}
}

// A kernel that does not count swap is told not to use any.
func TestLimitsV1(t *testing.T) {
	for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swappiness"} {
		memory, pids := t.TempDir(), t.TempDir()
		files(t, memory, map[string]string{"memory.limit_in_bytes": "", swap: ""})
		files(t, pids, map[string]string{"pids.max": ""})
		c := &cgroup{fs: cgroupfs{}, files: cgroupV1, dirs: []string{memory, pids}}
		if err := limitV1(c, Policy{Memory: 100 * mib, Tasks: 33}); err != nil {
			t.Error(err)
		}
		bytes := strconv.Itoa(100*mib + supervisorAllowance)
		want := map[string]string{"memory.memsw.limit_in_bytes": bytes, "memory.swappiness": "0"}[swap]
		if read(t, memory, "memory.limit_in_bytes") != bytes || read(t, memory, swap) != want || read(t, pids, "pids.max") != "33" {
			t.Errorf("%s is %q", swap, read(t, memory, swap))
		}
	}
}

// The real kernel's version 2, with whatever controller it has there in the place of memory.
func TestHandDown(t *testing.T) {
	parent, err := ownV2(t)
	if err != nil || parent == "" {
		t.Skip("no cgroup v2 is mounted")
	}
	text, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	controllers := strings.Fields(string(text))
	if err != nil || len(controllers) == 0 {
		t.Skipf("no controller in %s: %v", parent, err)
	}
	controller := controllers[len(controllers)-1]
	if !has(parent, "cgroup.subtree_control", controller) {
		if err := (cgroupfs{}).write(parent, "cgroup.subtree_control", "+"+controller); err != nil {
			t.Skip(err) // not ours to write, which is no fault of the host
		}
		defer cgroupfs{}.write(parent, "cgroup.subtree_control", "-"+controller)
	}
	dir := filepath.Join(parent, fmt.Sprintf("mcp-sandbox-test.%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	server := cmd.Process.Pid
	leaf := filepath.Join(dir, fmt.Sprintf("%s%d.4711%s", groupPrefix, server, serverLeaf))
	defer func() {
		_ = cmd.Process.Kill() // it does nothing; how it ends does not matter
		_ = cmd.Wait()
		if err := errors.Join(cgroupfs{}.rmdir(leaf), cgroupfs{}.rmdir(dir)); err != nil {
			t.Error(err)
		}
	}()
	if err := (cgroupfs{}).write(dir, "cgroup.procs", strconv.Itoa(server)); err != nil {
		t.Fatal(err)
	}
	g := &cgroups{fs: cgroupfs{}, files: cgroupV2, dirs: []string{dir}, prefix: fmt.Sprintf("%s%d.4711.", groupPrefix, server)}
	if err := g.handDown(controller, "none-such"); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(read(t, leaf, "cgroup.procs")); got != strconv.Itoa(server) {
		t.Errorf("in the leaf: %q, not %d", got, server)
	}
	if !has(dir, "cgroup.subtree_control", controller) {
		t.Error("nothing was handed down")
	}
}
