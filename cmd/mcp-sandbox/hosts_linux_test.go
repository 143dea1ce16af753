package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcp-sandbox/sandbox/sandboxtest"
)

// host is a machine or container that does not give all that a wall is made of.
type host struct {
	name   string
	script string // what makes it, in a mount namespace of its own; it executes "$@", the server
	user   bool   // the server is an ordinary user's
	ids    bool   // it is root of a user namespace with ids enough, as in a container without privileges
	deny   []denial
	args   []string // the server's; nil = a proof that the wall stands whole
	want   string   // in what it prints: of "42" in the proof, or of the refusal: the remedy
}

const (
	noCgroups    = "umount -R -l /sys/fs/cgroup\n"
	readOnlyRoot = "mount -o remount,bind,ro /\n"
	ownTmp       = "mount --bind \"$(dirname \"$1\")\" /mnt\nmount -t tmpfs tmpfs /tmp\nshift\ncd /\nset -- /mnt/mcp-sandbox \"$@\"\n"
	goOn         = "exec \"$@\""
)

// Each gives a whole wall or a refusal that says what to do, and never less in silence.
func hosts() []host {
	profile, remount := "packaging/docker/seccomp.json", "Linux 5.12"
	whole := []host{
		{name: "no cgroups", script: noCgroups + goOn},
		{name: "no cgroups, user", script: noCgroups + "exec setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs \"$@\""},
		{name: "a container's usual hardening", script: "umount -R -l /sys\n" + ownTmp + readOnlyRoot + "exec setpriv --no-new-privs \"$@\""},
		{name: "cgroups that can't be written", script: "for d in /sys/fs/cgroup /sys/fs/cgroup/*; do ! mountpoint -q $d || mount -o remount,bind,ro $d; done\n" + goOn},
		{name: "processes of others are hidden", script: "mount -t proc -o hidepid=2 proc /proc\nexec setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\""},
		{name: "root of a user namespace", ids: true, script: goOn},
		{name: "root without CAP_SYS_ADMIN", script: "exec setpriv --bounding-set -sys_admin --inh-caps -all \"$@\""},
		{name: "root without CAP_SYS_ADMIN, a workspace of the session's own", script: "cd /\nexec setpriv --bounding-set -sys_admin --inh-caps -all \"$@\""},
		{name: "calls that are not needed", deny: append(calls(unix.EPERM, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CLONE3), calls(unix.ENOSYS, unix.SYS_SECCOMP, unix.SYS_PIDFD_OPEN)...)},
		{name: "calls that are not needed, user", user: true, deny: append(calls(unix.ENOSYS, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CLONE3), calls(unix.EPERM, unix.SYS_SECCOMP, unix.SYS_PIDFD_OPEN)...)},
	}
	for i := range whole {
		whole[i].want = "42\n"
	}
	refused := []host{
		{name: "no cgroups, and it says so", script: noCgroups + goOn, args: []string{"doctor", "--python", "/usr/bin/python3"}, want: "memory by RLIMIT_DATA and watchdog (no writable cgroup: "},
		{name: "no user namespaces", ids: true, script: "echo 0 >/proc/sys/user/max_user_namespaces\n" + goOn, want: "set the sysctl user.max_user_namespaces"},
		{name: "no user namespaces, user", script: `exec setpriv --reuid 12345 --regid 12345 --clear-groups unshare --user --map-current-user --keep-caps sh -ec 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"' sh "$@"`, want: "set the sysctl user.max_user_namespaces"},
		{name: "root of few ids", script: "exec unshare --user --map-root-user \"$@\"", want: "range of ids"},
		{name: "masked /proc", script: "mount --bind /dev/null /proc/cpuinfo\n" + goOn, want: "systempaths=unconfined"},
		{name: "read-only /proc/sys, user", script: "mount --bind /proc/sys /proc/sys\nmount -o remount,bind,ro /proc/sys\nexec setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\"", want: "systempaths=unconfined"},
		{name: "no /proc", script: "umount -R -l /proc\n" + goOn, want: "mount -t proc proc /proc"},
		{name: "another's /proc", script: "exec unshare --pid --fork --kill-child \"$@\"", want: "mount -t proc proc /proc"},
		{name: "nothing to be written", script: "mount --bind \"$(dirname \"$1\")\" /mnt\nshift\nset -- /mnt/mcp-sandbox \"$@\"\nmount -t tmpfs -o ro tmpfs /tmp\ncd /\n" + readOnlyRoot + goOn, want: "set TMPDIR"},
		{name: "no devices", script: "mount -t tmpfs tmpfs /dev\n" + goOn, want: "/dev has null"},
		{name: "root without CAP_SYS_ADMIN, a closed directory", script: "mkdir -m 700 closed\ncd closed\nexec setpriv --bounding-set -sys_admin --inh-caps -all \"$@\"", want: "--cap-add SYS_ADMIN"},
		{name: "root without CAP_SETUID", script: "exec setpriv --bounding-set -setuid,-setgid --inh-caps -all \"$@\"", want: "--user 1000:1000"},
		{name: "chroot", script: chrootScript, want: "chroot"},
		{name: "no cgroups, no memory files", script: noCgroups + goOn, deny: calls(unix.ENOSYS, unix.SYS_MEMFD_CREATE), want: "Delegate=yes"},
		{name: "Docker's profile", deny: append(namespaces(unix.EPERM), calls(unix.EPERM, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN)...), want: profile},
		{name: "namespaces, ENOSYS", user: true, deny: namespaces(unix.ENOSYS), want: profile},
	}
	for _, call := range []struct {
		name string
		deny func(errno syscall.Errno) []denial
		want string
	}{
		{"mount", func(e syscall.Errno) []denial { return calls(e, unix.SYS_MOUNT) }, "AppArmor profile packaging/apparmor/mcp-sandbox"},
		{"pivot_root", func(e syscall.Errno) []denial { return calls(e, unix.SYS_PIVOT_ROOT) }, remount},
		{"the new mount calls", func(e syscall.Errno) []denial {
			return calls(e, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR)
		}, remount},
		{"fsopen", func(e syscall.Errno) []denial { return calls(e, unix.SYS_FSOPEN) }, remount},
		{"landlock_*", func(e syscall.Errno) []denial {
			return calls(e, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF)
		}, "lsm="},
		{"landlock_restrict_self", func(e syscall.Errno) []denial { return calls(e, unix.SYS_LANDLOCK_RESTRICT_SELF) }, profile},
		{"a filter of our own", func(e syscall.Errno) []denial { return prctl(e, unix.PR_SET_SECCOMP) }, "CONFIG_SECCOMP_FILTER"},
	} {
		refused = append(refused,
			host{name: call.name + ", EPERM", deny: call.deny(unix.EPERM), want: call.want},
			host{name: call.name + ", ENOSYS, user", user: true, deny: call.deny(unix.ENOSYS), want: call.want})
	}
	return append(whole, refused...)
}

const chrootScript = `root=$(mktemp -d)
mount -t tmpfs tmpfs "$root"
mkdir "$root/usr" "$root/proc" "$root/dev" "$root/tmp" "$root/in"
for d in /bin /sbin /lib /lib32 /lib64; do [ ! -e $d ] || ln -s usr$d "$root$d"; done
for d in /usr /proc /dev; do mount --rbind $d "$root$d"; done
mount --bind "$(dirname "$1")" "$root/in"
shift
exec chroot "$root" /in/mcp-sandbox "$@"`

// wholeWall is Python that prints 42 if every layer of the wall is there, and otherwise what
// is not. The number is that of the seccomp filters.
const wholeWall = `
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
missing = [k for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[k], 16)]
if status["NoNewPrivs"].strip() != "1": missing.append("no_new_privs")
if int(status["Seccomp_filters"]) != %d: missing.append("seccomp: %%s" %% status["Seccomp_filters"])
if open("/proc/self/uid_map").read().split()[1] == "0": missing.append("user namespace")
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 4: missing.append("PID namespace")
if [l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l] != ["lo"]: missing.append("network namespace")
if {"root", "home", "sys", "mnt", "srv", "boot"} & set(os.listdir("/")): missing.append("root")
for layer, name in ("mounts", "/x"), ("mounts", "/usr/x"), ("mounts", "/dev/x"), ("landlock", "/proc/self/oom_score_adj"):
    try: open(name, "w"); missing.append(layer + ": " + name)
    except OSError: pass
print(missing or 6 * 7)`

func TestHosts(t *testing.T) {
	sandboxtest.Require(t, os.Geteuid() == 0, "only root can make such hosts")
	t.Parallel() // it waits, most of the time
	// Where an ordinary user finds both.
	dir, err := os.MkdirTemp("", "hosts-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// By that name this test binary knows what it is to be, where no other is given.
	server, tmp, work := filepath.Join(dir, "mcp-sandbox"), filepath.Join(dir, "tmp"), filepath.Join(dir, "work")
	copyProgram(t, binary(t), server)
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(tmp, 0o700), os.Chmod(tmp, os.ModeSticky|0o777), os.Mkdir(work, 0o700), os.Chmod(work, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	filters := filtersOfOurs(t)
	t.Run("all", func(t *testing.T) {
		for _, h := range hosts() {
			t.Run(h.name, func(t *testing.T) {
				t.Parallel()
				h.try(t, server, tmp, work, filters)
			})
		}
	})
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func (h host) try(t *testing.T, server, tmp, work string, filters int) {
	args := h.args
	if args == nil {
		if len(h.deny) > 0 {
			filters++
		}
		args = []string{"exec", "--python", "/usr/bin/python3", fmt.Sprintf(wholeWall, filters+1)}
	}
	argv := append([]string{server}, args...)
	if h.script != "" {
		argv = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-euc", h.script, "sh"}, argv...)
	}
	var stdout, stderr strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = work, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TMPDIR=" + tmp}
	if strings.Contains(h.script, "/tmp") {
		cmd.Env[2] = "TMPDIR=/tmp"
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if h.user {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	}
	if h.ids {
		all := []syscall.SysProcIDMap{{Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true}
	}
	err := denied(t, h.deny, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	out := stdout.String()
	if h.args == nil && h.want != "42\n" { // a refusal
		if err == nil || out != "" || !strings.HasPrefix(stderr.String(), "mcp-sandbox: ") {
			t.Errorf("not refused: %v", err)
		}
		out = stderr.String()
	} else if err != nil {
		t.Error(err)
	}
	if h.args == nil && h.want == "42\n" && out != h.want || !strings.Contains(out, h.want) || strings.Contains(out+stderr.String(), "panic") {
		t.Errorf("not %q:\n%s\nstderr:\n%s", h.want, stdout.String(), stderr.String())
	}
	t.Log(strings.TrimSpace(stderr.String()))
}

// filtersOfOurs is how many seccomp filters this test is behind already.
func filtersOfOurs(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/thread-self/status") // the process's first may be a doomed one
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^Seccomp_filters:\s*(\d+)$`).FindSubmatch(status)
	if found == nil {
		t.Fatal("this kernel does not count filters")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
