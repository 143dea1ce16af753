package srt

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// facts is what code inside finds out about itself.
type facts struct {
	UIDMap, GIDMap   string
	Groups           []int
	Status           map[string]string
	Host             string
	Root, Dev, Etc   []string
	Env              map[string]string
	PID1Env          string
	FDs              []string
	FD0              string
	Interfaces       string
	PIDs             []string
	Limits           map[string][2]int64
	SID              bool
	MountedReadOnly  []string
	MountedWritable  []string
	WithSUIDorDev    []string
	MaskedContent    map[string]string
	OOMScoreOfFD     string
	HostMountVisible bool
}

const factsCode = `
import json, os, resource, socket
def text(p):
    with open(p) as f: return f.read()
f = {}
f["UIDMap"], f["GIDMap"] = text("/proc/self/uid_map"), text("/proc/self/gid_map")
f["Groups"] = os.getgroups()
f["Status"] = dict(l.rstrip("\n").split(":\t", 1) for l in text("/proc/self/status").splitlines() if ":\t" in l)
f["Host"] = socket.gethostname()
f["Root"], f["Dev"], f["Etc"] = sorted(os.listdir("/")), sorted(os.listdir("/dev")), sorted(os.listdir("/etc"))
f["Env"] = dict(os.environ)
f["PID1Env"] = text("/proc/1/environ")
f["FDs"] = sorted(n for n in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + n))
f["FD0"] = os.readlink("/proc/self/fd/0")
f["Interfaces"] = text("/proc/net/dev") + text("/proc/net/route") 
f["PIDs"] = [p for p in os.listdir("/proc") if p.isdigit()]
f["Limits"] = {n: resource.getrlimit(getattr(resource, "RLIMIT_" + n)) for n in "CORE DATA NPROC NOFILE FSIZE MEMLOCK STACK MSGQUEUE NICE RTPRIO".split()}
f["SID"] = os.getsid(0) == os.getpid()
f["MountedReadOnly"], f["MountedWritable"], f["WithSUIDorDev"] = [], [], []
for l in text("/proc/self/mountinfo").splitlines():
    point, opts = l.split()[4:6]; opts = opts.split(",")
    f["MountedReadOnly" if "ro" in opts else "MountedWritable"].append(point)
    if "nosuid" not in opts or ("nodev" not in opts and not point.startswith(("/dev/", "/proc/"))): f["WithSUIDorDev"].append(point)
f["MaskedContent"] = {}
for n in "kcore kmsg kallsyms keys timer_list sysrq-trigger".split():
    try: f["MaskedContent"][n] = text("/proc/" + n)
    except OSError as e: f["MaskedContent"][n] = ""
for n in "fs bus irq acpi scsi".split():
    f["MaskedContent"][n] = " ".join(os.listdir("/proc/" + n)) if os.path.exists("/proc/" + n) else ""
os.write(3, b"800")
f["OOMScoreOfFD"] = text("/proc/self/oom_score_adj").strip()
os.write(3, b"0")
print(json.dumps(f))
`

func TestInside(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		t.Setenv("WALL_TEST_SECRET", "hunter2")
		n := nativeWall(t)
		leak, err := os.Open("/etc/hostname") // a descriptor without close-on-exec, as a library may leave one
		if err != nil {
			t.Fatal(err)
		}
		defer leak.Close()
		p := testPolicy(workspace(t, n))
		out, err := tryPython(t, n, p, command{Path: testPython, Args: []string{"-I", "-c", factsCode}, Env: []string{"LANG=C.UTF-8"}, Dir: guestWorkspace, OOMFD: true})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var f facts
		if err := json.Unmarshal([]byte(out), &f); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkIdentity(t, n, f)
		checkView(t, f)
		checkLimits(t, p.withDefaults(), f)
	})
}

func checkIdentity(t *testing.T, n *native, f facts) {
	t.Helper()
	uid, _ := n.hostIDs()
	for name, m := range map[string]string{"uid_map": f.UIDMap, "gid_map": f.GIDMap} {
		if got := strings.Fields(m); len(got) != 3 || got[0] != "1000" || got[2] != "1" || got[1] == "0" {
			t.Errorf("%s %q for host id %d", name, m, uid)
		}
	}
	for name, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got := f.Status[name]; got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if n.root && len(f.Groups) != 0 {
		t.Errorf("groups %v are left of root's", f.Groups)
	}
	if f.Host != hostname || !f.SID {
		t.Errorf("host %q, own session %v", f.Host, f.SID)
	}
	if len(f.Env) != 1 && !(len(f.Env) == 2 && f.Env["LC_CTYPE"] != "") || strings.Contains(f.PID1Env, "hunter2") || f.PID1Env != "LANG=C.UTF-8\x00" {
		t.Errorf("environment %v, of PID 1 %q", f.Env, f.PID1Env)
	}
	if got := strings.Join(f.FDs, " "); got != "0 1 2 3" || f.FD0 != "/dev/null" {
		t.Errorf("descriptors %s; 0 is %s", got, f.FD0)
	}
	if f.OOMScoreOfFD != "800" {
		t.Errorf("oom_score_adj through the descriptor: %q", f.OOMScoreOfFD)
	}
	if len(f.PIDs) != 1 {
		t.Errorf("processes seen: %v", f.PIDs)
	}
}

func checkView(t *testing.T, f facts) {
	t.Helper()
	allowed := " bin dev etc lib lib32 lib64 libx32 proc sbin tmp usr var workspace "
	for _, name := range f.Root {
		if !strings.Contains(allowed, " "+name+" ") {
			t.Errorf("/%s is there", name)
		}
	}
	if got := strings.Join(f.Dev, " "); got != "fd full null random shm stderr stdin stdout urandom zero" {
		t.Errorf("/dev holds %s", got)
	}
	for _, name := range f.Etc {
		if strings.Contains(name, "shadow") || name == "ssh" || name == "sudoers" {
			t.Errorf("/etc/%s is there", name)
		}
	}
	if got := strings.Join(f.MountedWritable, " "); !sameWords(got, "/dev/shm /tmp /proc /workspace") {
		t.Errorf("writable mounts: %s", got)
	}
	if len(f.WithSUIDorDev) > 0 {
		t.Errorf("without nosuid or nodev: %v", f.WithSUIDorDev)
	}
	if strings.Count(f.Interfaces, ":") != 1 || !strings.Contains(f.Interfaces, "lo:") || strings.Count(f.Interfaces, "\n") != 4 {
		t.Errorf("interfaces or routes:\n%s", f.Interfaces)
	}
	for name, content := range f.MaskedContent {
		if content != "" {
			t.Errorf("/proc/%s shows %.80q", name, content)
		}
	}
}

func sameWords(a, b string) bool {
	have := map[string]bool{}
	for _, w := range strings.Fields(a) {
		have[w] = true
	}
	for _, w := range strings.Fields(b) {
		if !have[w] {
			return false
		}
		delete(have, w)
	}
	return len(have) == 0
}

func checkLimits(t *testing.T, p Policy, f facts) {
	t.Helper()
	for name, want := range map[string]int64{
		"CORE": 1, "NICE": 0, "RTPRIO": 0, "MSGQUEUE": 0, "MEMLOCK": 64 << 10,
		"DATA": p.Memory, "NPROC": int64(p.Tasks), "NOFILE": int64(p.OpenFiles), "FSIZE": p.FileSize,
	} {
		if got := f.Limits[name]; got != [2]int64{want, want} {
			t.Errorf("RLIMIT_%s is %v, want %d", name, got, want)
		}
	}
	if got := f.Limits["STACK"]; got[0] != 8*mib {
		t.Errorf("RLIMIT_STACK is %v", got)
	}
}

// attacksCode tries, and prints the name of whatever was possible.
const attacksCode = `
import ctypes, os, errno, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def sys_(nr, *a):
    ctypes.set_errno(0)
    if libc.syscall(nr, *[ctypes.c_long(x) if isinstance(x, int) else x for x in a]) == -1: raise OSError(ctypes.get_errno(), "")
def attack(name):
    def run(f):
        try: f()
        except (OSError, PermissionError, ValueError): return
        print(name)
    return run
def opened(path, flags):
    os.close(os.open(path, flags))
for p in "/ /usr /etc /dev /proc /proc/sys /bin /var /usr/bin".split():
    @attack("write in " + p)
    def _(): opened(p + "/planted", os.O_CREAT | os.O_WRONLY)
for p in """/etc/passwd /usr/bin/env /proc/sys/kernel/core_pattern /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger /proc/self/oom_score_adj
    /proc/1/oom_score_adj /proc/self/mem /proc/self/comm /proc/self/uid_map /proc/self/setgroups /proc/self/attr/current /proc/1/exe /proc/self/exe""".split():
    @attack("open for writing " + p)
    def _(): opened(p, os.O_WRONLY)
for p in "/etc/shadow /root /home /sys /run /var/run /dev/kmsg /dev/mem /dev/tty /dev/ptmx /dev/fuse /dev/net/tun /boot /opt".split():
    @attack("see " + p)
    def _(): os.stat(p) and opened(p, os.O_RDONLY)
@attack("lower oom_score_adj")
def _(): open("/proc/self/oom_score_adj", "w").write("-1")
@attack("hard link from outside")
def _(): os.link("/usr/bin/env", "/workspace/env")
@attack("climb")
def _():
    for _ in range(20): os.chdir("..")
    assert os.listdir(".") == os.listdir("/") 
    raise OSError
@attack("mknod")
def _(): os.mknod("/workspace/null", 0o020666, os.makedev(1, 3))
@attack("chmod of the root's file")
def _(): os.chmod("/etc/passwd", 0o666)
@attack("setuid 0")
def _(): os.setuid(0)
@attack("setgroups")
def _(): os.setgroups([0])
@attack("RLIMIT_NPROC up")
def _(): resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))
@attack("RLIMIT_CORE away from 1")
def _(): resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
@attack("RLIMIT_CORE away from 1, otherwise")
def _(): resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
@attack("nice")
def _(): os.nice(-5)
@attack("real time")
def _(): os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
@attack("unshare")
def _(): libc.unshare(0x10000000) and sys_(272, 0x10000000) or sys.exit
for name, family, kind, proto in [("raw", 2, 3, 1), ("packet", 17, 3, 0), ("netlink", 16, 3, 0), ("vsock", 40, 1, 0), ("alg", 38, 5, 0), ("can", 29, 3, 1)]:
    @attack("socket " + name)
    def _(): socket.socket(family, kind, proto)
@attack("reach an address outside")
def _():
    s = socket.socket(); s.settimeout(3); s.connect(("169.254.169.254", 80))
@attack("reach the host's loopback")
def _():
    s = socket.socket(); s.settimeout(3); s.connect(("127.0.0.1", int(sys.argv[1])))
@attack("abstract socket of the host")
def _():
    s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[2])
@attack("terminal")
def _(): os.openpty()
@attack("i386 call survives")
def _():
    import mmap
    pid = os.fork()
    if pid == 0:
        # mov eax, 20 (getpid of i386); int 0x80; ret
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); m.write(code)
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.uname().machine == "x86_64" and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS): return
    raise OSError
import platform
NR = {"x86_64": dict(unshare=272, setns=308, mount=165, umount2=166, chroot=161, pivot_root=155, ptrace=101, keyctl=250, add_key=248, bpf=321, perf_event_open=298,
    io_uring_setup=425, userfaultfd=323, clone3=435, fsopen=430, open_tree=428, mount_setattr=442, process_vm_readv=310, kcmp=312, init_module=175, reboot=169, syslog=103,
    swapon=167, acct=163, quotactl=179, fanotify_init=300, name_to_handle_at=303, open_by_handle_at=304, clock_settime=227, sethostname=170, pidfd_getfd=438,
    modify_ldt=154, iopl=172, vhangup=153, memfd_secret=447, kexec_load=246, x32=0x40000000 + 39)}.get(platform.machine(), {})
for name, nr in NR.items():
    @attack("call " + name)
    def _(): sys_(nr, 0, 0, 0, 0, 0)
print("done")
`

func TestAttacks(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		port, abstract := hostServers(t)
		out, err := tryPython(t, n, testPolicy(workspace(t, n)), command{Path: testPython, Args: []string{"-I", "-c", attacksCode, port, abstract}})
		if err != nil || out != "done\n" {
			t.Errorf("%v\npossible:\n%s", err, out)
		}
	})
}

// The code of TestAttacks must see what is possible where there is no wall.
func TestAttacksWithoutWall(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			return // root could really do some of it
		}
		port, abstract := hostServers(t)
		out, err := exec.Command(testPython, "-I", "-c", attacksCode, port, abstract).CombinedOutput()
		for _, want := range []string{"see /sys", "reach the host's loopback", "abstract socket of the host", "socket netlink", "open for writing /proc/self/mem", "done"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("not seen: %s (%v)\n%s", want, err, out)
			}
		}
	})
}

// The workspace of a session, seen from the host.
func TestReadOnlyWorkspace(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir := workspace(t, n)
		uid, gid := n.hostIDs()
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte("kept"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, uid, gid); err != nil {
			t.Fatal(err)
		}
		p := testPolicy(dir)
		p.Workspace.Writable, p.AllowExec = false, false
		out := python(t, n, p, `
import os, shutil, subprocess
print(open("/workspace/f").read())
for f in (lambda: open("/workspace/f", "w"), lambda: open("/workspace/g", "w"), lambda: os.unlink("/workspace/f"), lambda: os.chmod("/workspace/f", 0)):
    try: f(); print("written")
    except OSError as e: pass
shutil.copy("/bin/true", "/tmp/true")
try: subprocess.run(["/tmp/true"]); print("executed")
except PermissionError: pass
try: os.memfd_create("x"); print("memfd")
except PermissionError: pass`)
		if out != "kept\n" {
			t.Errorf("printed %q", out)
		}
	})
}

// What honest code needs.
func TestHonest(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		p := testPolicy(workspace(t, n))
		p.Memory, p.Tasks = 512*mib, 128
		out, err := tryPython(t, n, p, command{Path: testPython, Args: []string{"-I", "-c", honestCode}, Dir: guestWorkspace})
		if err != nil || out != "done\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

const honestCode = `
import asyncio, multiprocessing, os, pwd, shutil, socket, sqlite3, subprocess, tempfile, threading, time, zoneinfo, ctypes, fcntl, selectors
assert pwd.getpwuid(os.getuid()).pw_name == "sandbox"
assert subprocess.run(["sh", "-c", "echo a | cat"], capture_output=True, text=True).stdout == "a\n"
assert os.path.expanduser("~") == "/tmp"
t = threading.Thread(target=lambda: None); t.start(); t.join()
def double(x): return 2 * x
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
q = multiprocessing.get_context("fork").Queue(); q.put(1); assert q.get() == 1
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=100); m.close(); m.unlink()
c = sqlite3.connect("/workspace/x.db"); c.execute("create table t(a)"); c.commit(); c.close()
zoneinfo.ZoneInfo("Europe/Berlin") if os.path.exists("/usr/share/zoneinfo") else None
with tempfile.NamedTemporaryFile() as f: f.write(b"x")
s = socket.create_server(("127.0.0.1", 0)); d = socket.create_connection(s.getsockname()); d.close(); s.close()
assert socket.gethostbyname("localhost") == "127.0.0.1"
async def go():
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
    server = await asyncio.start_unix_server(lambda r, w: w.close(), "/tmp/sock"); await asyncio.open_unix_connection("/tmp/sock"); server.close()
asyncio.run(go())
shutil.copy("/bin/true", "/workspace/true"); subprocess.run(["/workspace/true"], check=True)
os.rename("/workspace/true", "/workspace/true2"); os.makedirs("/workspace/a/b"); os.rename("/workspace/true2", "/workspace/a/b/true"); os.link("/workspace/a/b/true", "/workspace/l")
os.symlink("a", "/workspace/s"); os.mkfifo("/workspace/fifo"); os.truncate("/workspace/l", 0)
fd = os.memfd_create("x"); os.write(fd, b"y")
open("/dev/null", "w").write("x"); open("/dev/stderr", "w").write(""); assert len(open("/dev/urandom", "rb").read(8)) == 8
open("/proc/cpuinfo").read(); open("/proc/meminfo").read(); os.sched_getaffinity(0); os.getloadavg()
with open("/workspace/lock", "w") as f: fcntl.flock(f, fcntl.LOCK_EX)
os.nice(1)
print("done")
`
