package srt

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// hostServers listens where a guest must not arrive.
func hostServers(t *testing.T) (port, abstract string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	abstract = "wall-test-" + strconv.Itoa(os.Getpid())
	local, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	return strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port), abstract
}

// onDoomedThread runs f on a thread of its own that ends with it, so that what f does to
// the thread harms nobody.
func onDoomedThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked
		defer close(done)
		f()
	}()
	<-done
}

// refuse makes a system call fail for this thread and its children, as a container's
// filter would; with arg0 only where the first argument has one of its bits, or, if
// exactly, is it.
type refuse struct {
	nr      uint32
	test    bpf.JumpTest
	arg     uint32
	arg0    uint32
	errno   syscall.Errno
	limited bool
}

func (r refuse) install(t *testing.T) {
	ins := []bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}, jump(bpf.JumpEqual, r.nr, 1, 0), ret(retAllow)}
	if r.limited {
		ins = append(ins, load(r.arg), jump(r.test, r.arg0, 1, 0), ret(retAllow))
	}
	ins = append(ins, ret(0x00050000|uint32(r.errno)))
	raw, err := bpf.Assemble(ins)
	if err != nil {
		t.Error(err)
		return
	}
	var filter []byte
	for _, i := range raw {
		filter = append(filter, byte(i.Op), byte(i.Op>>8), i.Jt, i.Jf, byte(i.K), byte(i.K>>8), byte(i.K>>16), byte(i.K>>24))
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Error(err)
	}
	if err := loadSeccomp(filter); err != nil {
		t.Error(err)
	}
}

// Every layer is a condition. Each is refused here in the way a host could refuse it.
func TestEachLayer(t *testing.T) {
	prctl := func(option uint32) refuse {
		return refuse{nr: unix.SYS_PRCTL, test: bpf.JumpEqual, arg0: option, limited: true, errno: unix.EPERM}
	}
	call := func(nr uint32) refuse { return refuse{nr: nr, errno: unix.EPERM} }
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir := workspace(t, n)
		before := leftovers(t, n)
		for _, tt := range []struct {
			name  string
			deny  refuse
			layer string
			is    error
		}{
			{"clone, filtered", refuse{nr: unix.SYS_CLONE, test: bpf.JumpBitsSet, arg0: unix.CLONE_NEWUSER, limited: true, errno: unix.EPERM}, layerUserns, unix.EPERM},
			{"clone, too many", refuse{nr: unix.SYS_CLONE, test: bpf.JumpBitsSet, arg0: unix.CLONE_NEWUSER, limited: true, errno: unix.ENOSPC}, layerUserns, unix.ENOSPC},
			{"clone, not built in", refuse{nr: unix.SYS_CLONE, test: bpf.JumpBitsSet, arg0: unix.CLONE_NEWUSER, limited: true, errno: unix.EINVAL}, layerUserns, unix.EINVAL},
			{"mount", call(unix.SYS_MOUNT), layerUserns, unix.EPERM},
			{"fsopen", call(unix.SYS_FSOPEN), layerMounts, unix.EPERM},
			{"move_mount", call(unix.SYS_MOVE_MOUNT), layerMounts, unix.EPERM},
			{"pivot_root", call(unix.SYS_PIVOT_ROOT), layerMounts, unix.EPERM},
			{"umount2", call(unix.SYS_UMOUNT2), layerMounts, unix.EPERM},
			{"open_tree", call(unix.SYS_OPEN_TREE), "", unix.EPERM}, // whose mount comes first depends on the user
			{"mount_setattr", call(unix.SYS_MOUNT_SETATTR), "", unix.EPERM},
			{"sethostname", call(unix.SYS_SETHOSTNAME), layerMounts, unix.EPERM},
			{"loopback", refuse{nr: unix.SYS_IOCTL, test: bpf.JumpEqual, arg: 1, arg0: unix.SIOCSIFFLAGS, limited: true, errno: unix.EPERM}, layerNetwork, unix.EPERM},
			{"prlimit", refuse{nr: unix.SYS_PRLIMIT64, test: bpf.JumpEqual, arg: 1, arg0: unix.RLIMIT_CORE, limited: true, errno: unix.EPERM}, layerRlimits, unix.EPERM},
			{"bounding set", prctl(unix.PR_CAPBSET_DROP), layerCaps, unix.EPERM},
			{"securebits", prctl(unix.PR_SET_SECUREBITS), layerCaps, unix.EPERM},
			{"capset", call(unix.SYS_CAPSET), "", unix.EPERM}, // Go itself needs it to start the child
			{"landlock_restrict_self", call(unix.SYS_LANDLOCK_RESTRICT_SELF), layerLandlock, unix.EPERM},
			{"landlock_add_rule", call(unix.SYS_LANDLOCK_ADD_RULE), layerLandlock, unix.EPERM},
			{"landlock_create_ruleset", refuse{nr: unix.SYS_LANDLOCK_CREATE_RULESET, errno: unix.ENOSYS}, layerLandlock, nil},
			{"seccomp", prctl(unix.PR_SET_SECCOMP), layerSeccomp, unix.EPERM},
			{"close_range", call(unix.SYS_CLOSE_RANGE), layerExec, unix.EPERM},
			{"death signal", prctl(unix.PR_SET_PDEATHSIG), "", unix.EPERM},
		} {
			var err error
			onDoomedThread(func() {
				tt.deny.install(t)
				var c *cage
				if c, err = n.start(t.Context(), testPolicy(dir), command{Path: "/bin/true"}); err == nil {
					c.Close()
				}
			})
			var layer *LayerError
			switch {
			case !errors.As(err, &layer):
				t.Errorf("%s: %v", tt.name, err)
			case tt.layer != "" && layer.Layer != tt.layer, tt.is != nil && !errors.Is(err, tt.is):
				t.Errorf("%s: layer %s: %v", tt.name, layer.Layer, err)
			case layer.Layer == layerUserns && layer.Remedy == "":
				t.Errorf("%s: no remedy: %v", tt.name, err)
			}
		}
		onDoomedThread(func() {
			refuse{nr: unix.SYS_LANDLOCK_CREATE_RULESET, errno: unix.ENOSYS}.install(t)
			if _, err := newNative(testNative()); layerOf(err) != layerLandlock {
				t.Errorf("without Landlock: %v", err)
			}
		})
		if after := leftovers(t, n); after != before {
			t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
		}
	})
}

// leftovers tells what a start must not leave behind when it fails.
func leftovers(t *testing.T, n *native) string {
	t.Helper()
	var b strings.Builder
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			b.WriteString(to + "\n")
		}
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|syscall.WNOWAIT, nil); !errors.Is(err, syscall.ECHILD) {
		b.WriteString("a child: " + strconv.Itoa(pid) + "\n")
	}
	if n.cgroups != nil {
		b.WriteString(strings.Join(groupsIn(t, n.cgroups), "\n"))
	}
	return b.String()
}

// What the caller asks for can be at fault too.
func TestStartFaults(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir := workspace(t, n)
		link := dir + "/link"
		if err := os.Symlink("/tmp", link); err != nil {
			t.Fatal(err)
		}
		ok := command{Path: "/bin/true"}
		for _, tt := range []struct {
			name    string
			policy  Policy
			command command
			layer   string
		}{
			{"no such workspace", testPolicy(dir + "/none"), ok, layerWorkspace},
			{"workspace is a link", testPolicy(link), ok, layerWorkspace},
			{"workspace is a file", testPolicy("/etc/hostname"), ok, layerWorkspace},
			{"no such mount", Policy{Mounts: []Mount{{Host: dir + "/none", Guest: "/data"}}}, ok, layerWorkspace},
			{"no such prefix", Policy{ReadOnly: []string{dir + "/none"}}, ok, layerMounts},
			{"bad policy", Policy{Tasks: 1}, ok, layerPolicy},
			{"no such program", Policy{}, command{Path: "/bin/no-such-program"}, layerExec},
			{"not a program", Policy{}, command{Path: "/etc/passwd"}, layerExec},
			{"relative program", Policy{}, command{Path: "true"}, layerPolicy},
			{"no such directory", Policy{}, command{Path: "/bin/true", Dir: "/none"}, layerWorkspace},
			{"file below a mount", Policy{}, command{Path: "/bin/true", Files: map[string][]byte{"/usr/x": nil}}, layerPolicy},
			{"file in the way of another", Policy{}, command{Path: "/bin/true", Files: map[string][]byte{"/run/a": nil, "/run/a/b": nil}}, layerMounts},
		} {
			c, err := n.start(t.Context(), tt.policy, tt.command)
			if err == nil {
				c.Close()
			}
			if got := layerOf(err); got != tt.layer {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

func TestStartContext(t *testing.T) {
	n := nativeWall(t)
	before := leftovers(t, n)
	why := errors.New("enough")
	for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if after == 0 {
			cancel(why)
		}
		timer := time.AfterFunc(after, func() { cancel(why) })
		c, err := n.start(ctx, Policy{}, command{Path: "/bin/true"})
		timer.Stop()
		switch {
		case err == nil: // it was faster, which is no fault
			c.Close()
		case !errors.Is(err, why):
			t.Errorf("after %v: %v", after, err)
		}
		cancel(nil)
	}
	if after := leftovers(t, n); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// actor re-executes this test binary for one test in a world of attr, with what it does
// chosen by act. It returns what was printed.
func actor(t *testing.T, act string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "WALL_TEST_ACT=" + act}
	cmd.SysProcAttr = attr
	return cmd
}

func acting() string { return os.Getenv("WALL_TEST_ACT") }

// The limit is set in a user namespace of the test's own; the host's stays as it is.
func TestNoUserNamespaces(t *testing.T) {
	if acting() == "none left" {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		n, err := newNative(testNative())
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.start(t.Context(), Policy{}, command{Path: "/bin/true"})
		if layerOf(err) != layerUserns || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "set the sysctl user.max_user_namespaces") {
			t.Error(err)
		}
		return
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	out, err := actor(t, "none left", &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids,
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A container's runtime covers parts of /proc; then the kernel grants no new one.
func TestMaskedProc(t *testing.T) {
	if acting() == "masked" {
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		must(err)
		for line := range strings.Lines(string(mounts)) { // one that is whole, anywhere, would do
			if f := strings.Fields(line); strings.Contains(line, " - proc ") {
				must(unix.Mount("/dev/null", unescape(f[4])+"/cpuinfo", "", unix.MS_BIND, ""))
			}
		}
		n := nativeWall(t)
		_, err = n.start(t.Context(), Policy{}, command{Path: "/bin/true"})
		if layerOf(err) != layerProc || !strings.Contains(err.Error(), "systempaths=unconfined") {
			t.Error(err)
		}
		return
	}
	required(t, os.Geteuid() == 0, "only root makes a mount namespace without a user namespace")
	out, err := actor(t, "masked", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUsernsRemedy(t *testing.T) {
	sysctl := func(name, value string) func(string) ([]byte, error) {
		return func(file string) ([]byte, error) {
			if file == name {
				return []byte(value + "\n"), nil
			}
			return nil, os.ErrNotExist
		}
	}
	for file, want := range map[string]string{
		"/proc/sys/user/max_user_namespaces":                     "max_user_namespaces above 0",
		"/proc/sys/kernel/unprivileged_userns_clone":             "unprivileged_userns_clone to 1",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "AppArmor profile",
		"/none": "--cap-add SYS_ADMIN",
	} {
		value := "0"
		if strings.Contains(file, "apparmor") {
			value = "1"
		}
		if got := usernsRemedy(sysctl(file, value)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", file, got)
		}
	}
}
