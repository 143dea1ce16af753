package srt

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Root's own folder is worked in by a guest who is not root: inside it belongs to the
// guest, outside everything belongs to root still.
func TestForeignWorkspace(t *testing.T) {
	required(t, os.Geteuid() == 0, "only root can show another user's directory")
	n := nativeWall(t)
	for _, owner := range []int{0, 4321} {
		t.Run(strconv.Itoa(owner), func(t *testing.T) {
			// Below a directory that the guest's id can't enter.
			dir := filepath.Join(privateDir(t), "project")
			data := filepath.Join(filepath.Dir(dir), "data")
			for _, d := range []string{dir, data} {
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(d, "old"), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, p := range []string{d, filepath.Join(d, "old")} {
					if err := os.Chown(p, owner, owner); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := testPolicy(dir)
			p.Mounts = []Mount{{Host: data, Guest: "/data"}}
			out := python(t, n, p, `
import os
print(open("/workspace/old").read(), os.stat("/workspace/old").st_uid, open("/data/old").read())
open("/workspace/old", "a").write("+")
open("/workspace/new", "w"); os.mkdir("/workspace/dir")
try: open("/data/new", "w"); print("written")
except OSError: pass`)
			if out != "old 1000 old\n" {
				t.Errorf("printed %q", out)
			}
			for _, name := range []string{"old", "new", "dir"} {
				var st unix.Stat_t
				if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || int(st.Uid) != owner || int(st.Gid) != owner {
					t.Errorf("%s belongs to %d:%d, %v", name, st.Uid, st.Gid, err)
				}
			}
		})
	}
}

// privateDir is a directory of root's that others can't enter.
func privateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wall-test-") // 0700
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A file system that can't map ids is told of, with the remedy.
func TestForeignWorkspaceRefused(t *testing.T) {
	required(t, os.Geteuid() == 0, "only root can show another user's directory")
	n := nativeWall(t)
	_, err := n.start(t.Context(), testPolicy("/proc/sys"), command{Path: "/bin/true"}) // procfs can't
	if layerOf(err) != layerWorkspace || !strings.Contains(err.Error(), "chown it to 65534") {
		t.Error(err)
	}
}

// An interpreter below root's own home.
func TestPrefixBelowPrivateDirectory(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		prefix := filepath.Join(privateDir(t), "prefix")
		if err := os.MkdirAll(filepath.Join(prefix, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(prefix, "bin", "tool")
		text, err := os.ReadFile("/bin/cat")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, text, 0o755); err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(filepath.Dir(prefix), "secret")
		if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		p := Policy{ReadOnly: []string{prefix}}
		out, err := tryPython(t, n, p, command{Path: program, Args: []string{"/etc/hostname"}})
		if err != nil || out != "sandbox\n" {
			t.Errorf("%q, %v", out, err)
		}
		if out, err := tryPython(t, n, p, command{Path: program, Args: []string{secret}}); err == nil {
			t.Errorf("what lies beside the prefix is seen: %q", out)
		}
	})
}

// A link that a guest left in its workspace must not lead the next start's mounts astray.
func TestMountThroughPlantedLink(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir, outside := workspace(t, n), workspace(t, n)
		if err := os.Symlink(outside, filepath.Join(dir, "sub")); err != nil {
			t.Fatal(err)
		}
		p := testPolicy(dir)
		p.Mounts = []Mount{{Host: "/etc/hostname", Guest: "/workspace/sub/file"}}
		c, err := n.start(t.Context(), p, command{Path: "/bin/true"})
		if err == nil {
			c.Close()
			t.Error("the link was followed")
		}
		if left, _ := os.ReadDir(outside); len(left) > 0 {
			t.Errorf("made on the host: %v", left)
		}
	})
}

func TestExtraDescriptorsAndFiles(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		var ours, theirs []*os.File
		for range 3 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs = append(ours, r), append(theirs, w)
			defer r.Close()
		}
		out, err := tryPython(t, n, Policy{}, command{
			Path: testPython, Args: []string{"-I", "/run/kernel/main.py"}, Extra: theirs, OOMFD: true,
			Files: map[string][]byte{"/run/kernel/main.py": []byte(`
import os
for i in range(3): os.write(3 + i, b"to %d\n" % i)
print(os.read(6, 10), sorted(os.listdir("/proc/self/fd"), key=int)[:7])
try: os.chmod("/run/kernel/main.py", 0o777); print("changed")
except OSError: pass
try: open("/run/kernel/x", "w"); print("written")
except OSError: pass`)},
		})
		closeAll(theirs)
		if err != nil || out != "b'0\\n' ['0', '1', '2', '3', '4', '5', '6']\n" {
			t.Errorf("%q, %v", out, err)
		}
		for i, r := range ours {
			line, err := bufio.NewReader(r).ReadString('\n')
			if want := fmt.Sprintf("to %d\n", i); line != want {
				t.Errorf("descriptor %d: %q, %v", 3+i, line, err)
			}
		}
	})
}

// Limits that the guest runs into, and the host does not notice.
func TestHeld(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		p := testPolicy(workspace(t, n))
		p.Tasks, p.Inodes, p.Disk, p.FileSize, p.Memory = 40, 200, 8*mib, 4*mib, 128*mib
		out := python(t, n, p, `
import os, errno, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def until(f, most):
    for i in range(most):
        try: f(i)
        except (OSError, MemoryError) as e: return i, errno.errorcode.get(getattr(e, "errno", None), "MemoryError")
    return most, "none"
pids = []
def fork(i):
    pid = os.fork()
    if pid == 0: signal.pause()
    pids.append(pid)
n, e = until(fork, 300); print("tasks", n < 40, e)
for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
n, e = until(lambda i: open("/tmp/f%d" % i, "w").close(), 1000); print("inodes", n < 200, e)
for i in range(n): os.unlink("/tmp/f%d" % i)
fd = os.open("/workspace/big", os.O_CREAT | os.O_WRONLY)
n, e = until(lambda i: os.write(fd, b"x" * (1 << 20)), 100); print("file", n, e)
names = [open("/tmp/b%d" % i, "wb", buffering=0) for i in range(4)]
def fill(i):
    if names[i % 4].write(b"x" * (1 << 20)) < 1 << 20: raise OSError(errno.ENOSPC, "")
n, e = until(fill, 100); print("disk", 7 <= n <= 8, e)
keep = []
n, e = until(lambda i: keep.append(os.open("/dev/null", 0)), 1000); print("descriptors", n < 256, e)
for fd in keep: os.close(fd)
held = []
n, e = until(lambda i: held.append(bytearray(10 << 20)), 100); held.clear(); print("memory", n < 13, e)`)
		want := "tasks True EAGAIN\ninodes True ENOSPC\nfile 4 EFBIG\ndisk True ENOSPC\ndescriptors True EMFILE\nmemory True MemoryError\n"
		if out != want {
			t.Errorf("printed\n%s", out)
		}
	})
}

// The smallest limits that a policy may set let the wall be built and Python start.
func TestSmallest(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		var theirs []*os.File
		for range 32 {
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			theirs = append(theirs, f)
		}
		defer closeAll(theirs)
		p := Policy{Memory: minMemory, Tasks: minTasks, OpenFiles: minOpenFiles}
		out, err := tryPython(t, n, p, command{Path: testPython, Args: []string{"-I", "-c", "print(1)"}, Extra: theirs, OOMFD: true})
		if err != nil || out != "1\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// However the server dies, everything inside dies with it.
func TestServerKilled(t *testing.T) {
	if acting() == "server" {
		n := nativeWall(t)
		// The guest has left its parent and session, as far as it can.
		c, err := n.start(t.Context(), Policy{}, command{Path: testPython, Stdout: os.Stderr, Args: []string{"-I", "-c", `
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
print("up", flush=True)
time.sleep(1000)`}})
		if err != nil {
			t.Fatal(err)
		}
		group := "-"
		if n.cgroups != nil {
			group = c.group.dirs[0]
		}
		fmt.Fprintln(os.Stderr, "cage", c.Pid(), group)
		select {}
	}
	asEachUser(t, func(t *testing.T) {
		cmd := actor(t, "server", nil)
		cmd.Args[1] = "-test.run=^TestServerKilled$"
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd.Stderr = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		var pid int
		group, up := "", false
		for s := bufio.NewScanner(r); (pid == 0 || !up) && s.Scan(); {
			up = up || s.Text() == "up"
			fmt.Sscanf(s.Text(), "cage %d %s", &pid, &group)
		}
		if pid == 0 || !up {
			t.Fatal("the server did not start a cage")
		}
		inside, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(inside)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		// A pidfd becomes readable when the process is dead; that of a namespace's PID 1,
		// when all of them are.
		fds := []unix.PollFd{{Fd: int32(inside), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(patience/time.Millisecond)); n != 1 {
			t.Fatalf("the guest lives: %v", err)
		}
		if group != "-" {
			for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				if err := sweepCgroups(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(group); os.IsNotExist(err) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("its control group is still there: ", strings.TrimSpace(read(t, group, "cgroup.procs")))
				}
			}
		}
	})
}
