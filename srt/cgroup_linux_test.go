package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fakeProc makes a /proc of one process and returns its root.
func fakeProc(t *testing.T, pid int, cgroup, mountinfo string) string {
	t.Helper()
	root := t.TempDir()
	files(t, filepath.Join(root, strconv.Itoa(pid)), map[string]string{
		"stat":      fmt.Sprintf("%d (a) name (x) S 1%s 4711 0 0", pid, strings.Repeat(" 0", 17)),
		"cgroup":    cgroup,
		"mountinfo": mountinfo,
	})
	if err := os.Symlink(strconv.Itoa(pid), filepath.Join(root, "self")); err != nil {
		t.Fatal(err)
	}
	return root
}

func files(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLocateCgroups(t *testing.T) {
	v1 := "30 23 0:27 / /cg/mem\\040ory rw,relatime - cgroup cgroup rw,memory\n31 23 0:28 / /cg/pids rw - cgroup cgroup rw,pids\n32 23 0:29 / /cg/u rw - cgroup2 cgroup2 rw\n"
	for _, tt := range []struct {
		name, own, mounts string
		version           int
		dirs              string // or the error
	}{
		{"v1", "8:pids:/\n4:memory:/srv/x\n0::/\n", v1, 1, "[/cg/mem ory/srv/x /cg/pids]"},
		{"v1 without pids", "4:memory:/\n", v1, 1, "[/cg/mem ory]"},
		{"v1 joined controllers", "4:cpu,memory:/a\n", "1 1 0:1 / /m rw - cgroup cgroup rw,cpu,memory\n", 1, "[/m/a]"},
		{"hybrid without memory", "1:name=systemd:/s\n0::/u.slice\n", v1, 2, "[/cg/u/u.slice]"},
		{"v2", "0::/user.slice/a\n", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", 2, "[/sys/fs/cgroup/user.slice/a]"},
		{"v2 in a container", "0::/docker/abc\n", "1 1 0:1 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", 2, "[/sys/fs/cgroup]"},
		{"v2, moved before", "0::/svc/mcp-sandbox.77.4711.server\n", "1 1 0:1 / /c rw - cgroup2 cgroup rw\n", 2, "[/c/svc]"},
		{"not below what is mounted", "0::/other\n", "1 1 0:1 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", 0, "not below"},
		{"none", "", "1 1 0:1 / / rw - ext4 /dev/x rw\n", 0, "no memory controller"},
	} {
		g, err := locateCgroups(filepath.Join(fakeProc(t, 77, tt.own, tt.mounts), "self"))
		switch {
		case tt.version == 0:
			if err == nil || !strings.Contains(err.Error(), tt.dirs) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.dirs)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case g.files.version != tt.version || fmt.Sprint(g.dirs) != tt.dirs || g.prefix != "mcp-sandbox.77.4711.":
			t.Errorf("%s: %+v", tt.name, g)
		}
	}
}

func TestAbandoned(t *testing.T) {
	proc := fakeProc(t, 77, "", "")
	for name, want := range map[string]bool{
		"mcp-sandbox.77.4711.1":      false, // alive
		"mcp-sandbox.77.4711.server": false,
		"mcp-sandbox.77.4710.1":      true, // the number has been given anew
		"mcp-sandbox.78.4711.1":      true, // dead
		"mcp-sandbox.78.4711.server": true,
		"mcp-sandbox.78.4711":        false, // not a name of ours
		"mcp-sandbox.x.4711.1":       false,
		"mcp-sandbox.../../1.1.1":    false,
		"other.78.4711.1":            false,
		"":                           false,
	} {
		if got := abandoned(proc, name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestCgroupOfThisHost(t *testing.T) {
	n := nativeWall(t)
	required(t, n.cgroups != nil, n.memory)
	t.Log(n.memory)
	entries := func() string { return strings.Join(groupsIn(t, n.cgroups), " ") }
	before := entries()

	t.Run("limits and counts", func(t *testing.T) {
		// Shared memory is what RLIMIT_DATA does not count.
		p := Policy{Memory: 128 * mib, Shm: 512 * mib}
		cage, err := n.start(t.Context(), p, command{Path: testPython, Args: []string{"-I", "-c", `
import mmap
m = mmap.mmap(-1, 300 << 20)
for i in range(0, 300 << 20, 4096): m[i] = 1`}})
		if err != nil {
			t.Fatal(err)
		}
		defer cage.Close()
		if state := cage.Wait(); state.Success() {
			t.Errorf("it ended %v", state)
		}
		if !cage.oomKilled() || cage.oomKilled() {
			t.Error("the kill is not told once")
		}
		if err := cage.Close(); err != nil {
			t.Error(err)
		}
		if kills, ok := cage.OOMKills(); kills != 1 || !ok {
			t.Errorf("%d kills after Close, %v", kills, ok)
		}
	})
	t.Run("usage", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cage, err := n.start(t.Context(), Policy{}, command{Path: testPython, Stdout: w,
			Args: []string{"-I", "-c", "b = bytearray(50 << 20); print('x', flush=True); import time; time.sleep(1000)"}})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer cage.Close()
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if used, err := cage.memory(); err != nil || used < 50*mib || used > 100*mib {
			t.Errorf("%d bytes, %v", used, err)
		}
	})
	t.Run("sweep", func(t *testing.T) {
		dead := &cgroups{fs: cgroupfs{}, files: n.cgroups.files, dirs: n.cgroups.dirs, prefix: groupPrefix + "1.1."}
		left, err := dead.create(Policy{}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		ours, err := n.cgroups.create(Policy{}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		defer ours.remove()
		if err := sweepCgroups(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(left.dirs[0]); !os.IsNotExist(err) {
			t.Errorf("a dead server's group is still there: %v", err)
		}
		if _, err := os.Stat(ours.dirs[0]); err != nil {
			t.Errorf("a living server's: %v", err)
		}
	})
	if after := entries(); after != before {
		t.Errorf("groups left: %q, before: %q", after, before)
	}
}

// ownV2 is our own group of version 2, "" if none is mounted.
func ownV2(t *testing.T) (string, error) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return ownGroup(string(own), string(mounts), "")
}

// A real v2 hierarchy, if without the memory controller, takes a clone directly.
func TestCloneIntoCgroup(t *testing.T) {
	parent, err := ownV2(t)
	required(t, err == nil && parent != "", "no cgroup v2 is mounted")
	dir := filepath.Join(parent, fmt.Sprintf("mcp-sandbox-test.%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err) // not ours to write, which is no fault of the host
	}
	group := &cgroup{fs: cgroupfs{}, files: cgroupV2, dirs: []string{dir}}
	n := nativeWall(t)
	p := Policy{}.withDefaults()
	filter, err := seccompFilter(p)
	if err != nil {
		t.Fatal(err)
	}
	c := command{Path: "/bin/sleep", Args: []string{"1000"}, Dir: "/"}
	s := &starting{native: n, group: group, command: c, config: childConfig{Policy: p, Filter: filter, DropGroups: n.root, Path: c.Path, Args: c.Args, Dir: c.Dir}}
	cage, err := s.run(t.Context())
	if err != nil {
		t.Fatal(err, group.remove())
	}
	if got := strings.TrimSpace(read(t, dir, "cgroup.procs")); got != strconv.Itoa(cage.Pid()) {
		t.Errorf("in the group: %q, not %d", got, cage.Pid())
	}
	if err := cage.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
}

// Two walls of one server must not take each other's groups.
func TestTwoWalls(t *testing.T) {
	for _, n := range []*native{nativeWall(t), nativeWall(t)} {
		c, err := n.start(t.Context(), Policy{}, command{Path: "/bin/sleep", Args: []string{"1000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
}

// groupsIn lists the groups of this server.
func groupsIn(t *testing.T, g *cgroups) []string {
	t.Helper()
	var names []string
	for _, dir := range g.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), g.prefix) {
				names = append(names, filepath.Join(dir, e.Name()))
			}
		}
	}
	return names
}
