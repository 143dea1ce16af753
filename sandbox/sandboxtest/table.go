package sandboxtest

import (
	"embed"
	"strings"
)

// Verdict is what an attempt gets from a wall, or must get.
type Verdict string

// The verdicts. The first four are wanted of a wall; the last two are a
// probe's way to say that it could not try.
const (
	Denied  Verdict = "DENIED"  // the attempt fails, or shows nothing
	Held    Verdict = "HELD"    // the limit holds, the call or its interpreter ends cleanly, others feel nothing
	Allowed Verdict = "ALLOWED" // it works; wanted of a few honest things, so that the wall is no brick
	Info    Verdict = "INFO"    // either is right, and the policy says which
	None    Verdict = "NONE"    // there is no such thing on this machine
	Failed  Verdict = "ERROR"   // the probe itself went wrong, and proves nothing
)

// Probe is one attempt, made for real by Python code that runs as one call.
// The code expects its surroundings (see [EscapeEnv]) as inputs, and assigns a
// list of a verdict and a detail to _return.
type Probe struct {
	ID   string
	Try  string  // what is tried, in words
	Want Verdict // what it must get behind a wall
	Code string
	Then string // a second call after it, where the attempt takes two; "" = none

	fresh    bool // needs a session of its own, which it may wreck
	takeover bool // afterwards the interpreter is the attacker's: judged after a Reset
}

//go:embed probes/*.py
var sources embed.FS

// How a probe is run.
const (
	fresh    = 1 << iota // in a session of its own
	takeover             // and judged after a Reset
)

type row struct {
	id   string
	want Verdict
	try  string
	how  int
}

// rows is the table. Families up to NT are the list of attacks that were found
// to work on comparable sandboxes; rows that a family has besides come after it.
var rows = []row{
	{"ID-01", Denied, "no_new_privs not set", 0},
	{"ID-02", Denied, "any effective, permitted or bounding capability", 0},
	{"ID-03", Denied, "uid 0 outside, or a uid_map that maps the host's root", 0},
	{"ID-04", Denied, "setuid(0) and its kin", 0},
	{"ID-05", Denied, "set-uid binaries visible and effective", 0},
	{"ID-06", Denied, "no seccomp filter active", 0},

	{"PR-01", Denied, "host processes visible in /proc", 0},
	{"PR-02", Denied, "signal a process of the host", 0},
	{"PR-03", Denied, "/proc/*/root and cwd lead outside our root", 0},
	{"PR-04", Denied, "the server's secrets in any /proc/*/environ", 0},
	{"PR-05", Denied, "the server's secrets in the own environment", 0},
	{"PR-06", Denied, "ptrace the parent or PID 1", 0},
	{"PR-07", Denied, "memory of the runner: process_vm_readv, process_vm_writev, /proc/PID/mem", 0},
	{"PR-08", Denied, "descriptors of the runner through /proc/PID/fd", 0},
	{"PR-09", Denied, "descriptors above 2 inherited", 0},
	{"PR-10", Denied, "pidfd_getfd on the runner", 0},
	{"PR-11", Denied, "kill(-1) would reach beyond our pid namespace", 0},
	{"PR-12", Denied, "overwrite the runtime through /proc/PID/exe", 0},
	{"PR-13", Denied, "lower oom_score_adj", 0},
	{"PR-14", Denied, "real-time scheduling, negative nice, real-time I/O", 0},
	{"PR-15", Denied, "raise a hard limit", 0},
	{"PR-16", Info, "what /proc/1/cmdline tells of the host", 0},
	{"PR-17", Denied, "the server's files in /proc, by its number outside", 0},

	{"NS-01", Denied, "a new user namespace", 0},
	{"NS-02", Denied, "a new mount namespace", 0},
	{"NS-03", Denied, "a new network namespace", 0},
	{"NS-04", Denied, "new namespaces of all kinds, together and alone, by unshare and by clone", 0},
	{"NS-05", Denied, "setns into the runner's namespaces", 0},
	{"NS-06", Denied, "clone3 reachable, whose flags no filter sees (must be ENOSYS)", 0},
	{"NS-07", Allowed, "threads and processes start without clone3", 0},

	{"MT-01", Denied, "mount tmpfs, proc, ramfs, a bind", 0},
	{"MT-02", Denied, "remount what is read-only", 0},
	{"MT-03", Denied, "the new mount API: fsopen, fspick, fsmount, move_mount", 0},
	{"MT-04", Denied, "open_tree with CLONE", 0},
	{"MT-05", Denied, "unmount what covers something", 0},
	{"MT-06", Denied, "chroot, pivot_root", 0},
	{"MT-07", Denied, "climb above the root by .. from the working directory and open directories", 0},
	{"MT-08", Denied, "open_by_handle_at", 0},
	{"MT-09", Denied, "a writable mount besides workspace, /tmp and /dev/shm", 0},
	{"MT-10", Info, "paths of the host in /proc/self/mountinfo", 0},

	{"FS-01", Denied, "write outside the workspace", 0},
	{"FS-02", Allowed, "write in the workspace", 0},
	{"FS-03", Denied, "hard-link a file from outside into the workspace", 0},
	{"FS-04", Denied, "read files of the host: canary, shadow, keys, sockets, homes", 0},
	{"FS-05", Denied, "make a device; a device in /dev that is not one of the harmless", 0},
	{"FS-06", Denied, "open /dev/mem, kmsg, disks, fuse, kvm, tun", 0},
	{"FS-07", Denied, "/dev/null is something else", 0},
	{"FS-08", Info, "run a program written to a writable place", 0},
	{"FS-09", Info, "run a program from memory", 0},
	{"FS-10", Denied, "anything in /dev beyond the list", 0},
	{"FS-11", Denied, "write to the interpreter's prefix and library", 0},
	{"FS-12", Info, "a named pipe in the workspace", 0},
	{"FS-13", Denied, "symbolic links to files of the host", 0},

	{"KN-01", Denied, "write /proc/sys", 0},
	{"KN-02", Denied, "write core_pattern, modprobe, binfmt_misc", 0},
	{"KN-03", Denied, "/proc/sysrq-trigger", 0},
	{"KN-04", Denied, "/proc/kcore, kmsg, kernel addresses", 0},
	{"KN-05", Denied, "/sys visible", 0},
	{"KN-06", Denied, "control groups writable", 0},
	{"KN-07", Info, "/proc/keys", 0},
	{"KN-08", Info, "what tells this host from another", 0},

	{"SY-01", Denied, "keyctl", 0},
	{"SY-02", Denied, "add_key, request_key", 0},
	{"SY-03", Denied, "io_uring_setup", 0},
	{"SY-04", Denied, "userfaultfd", 0},
	{"SY-05", Denied, "bpf", 0},
	{"SY-06", Denied, "perf_event_open", 0},
	{"SY-07", Denied, "kexec_load, kexec_file_load", 0},
	{"SY-08", Denied, "init_module, finit_module, delete_module", 0},
	{"SY-09", Denied, "reboot (with a wrong magic number)", 0},
	{"SY-10", Denied, "syslog(READ_ALL)", 0},
	{"SY-11", Denied, "swapon, swapoff", 0},
	{"SY-12", Denied, "acct", 0},
	{"SY-13", Denied, "iopl(3), ioperm", 0},
	{"SY-14", Denied, "fanotify_init", 0},
	{"SY-15", Denied, "kcmp", 0},
	{"SY-16", Denied, "quotactl", 0},
	{"SY-17", Denied, "modify_ldt", 0},
	{"SY-18", Info, "personality(ADDR_NO_RANDOMIZE)", 0},
	{"SY-19", Denied, "vhangup", 0},
	{"SY-20", Info, "memfd_secret", 0},
	{"SY-21", Denied, "clock_settime (to the current time)", 0},
	{"SY-22", Denied, "sethostname, setdomainname (to what they are)", 0},
	{"SY-23", Denied, "x32 system calls", 0},
	{"SY-24", Denied, "32-bit system calls through int 0x80", 0},
	{"SY-25", Denied, "ioctl numbers with bits above 32", 0},

	{"TT-01", Denied, "TIOCSTI and TIOCLINUX on any terminal", 0},
	{"TT-02", Denied, "a controlling terminal", 0},

	{"NT-01", Denied, "raw IP sockets", 0},
	{"NT-02", Denied, "AF_PACKET", 0},
	{"NT-03", Denied, "AF_NETLINK", 0},
	{"NT-04", Denied, "AF_VSOCK", 0},
	{"NT-05", Denied, "AF_ALG", 0},
	{"NT-06", Denied, "AF_BLUETOOTH, AF_CAN, AF_XDP", 0},
	{"NT-07", Info, "AF_INET on a loopback of its own", 0},
	{"NT-08", Denied, "a service of the host on loopback", 0},
	{"NT-09", Denied, "an abstract socket of the host", 0},
	{"NT-10", Denied, "sockets of the host in the file system", 0},
	{"NT-11", Denied, "interfaces other than lo, any route", 0},
	{"NT-12", Denied, "cloud metadata addresses", 0},
	{"NT-13", Denied, "sockets of every family but AF_UNIX, AF_INET, AF_INET6", 0},
	{"NT-14", Denied, "a route to any address", 0},

	{"LM-01", Held, "memory of one process", fresh},
	{"LM-02", Held, "memory of four processes together", fresh},
	{"LM-03", Held, "memory by many memfds, never mapped", fresh},
	{"LM-04", Held, "fill /dev/shm", fresh},
	{"LM-05", Held, "fill /tmp", fresh},
	{"LM-06", Held, "files without number in /tmp", fresh},
	{"LM-07", Held, "fill the workspace", fresh},
	{"LM-08", Held, "files without number in the workspace", fresh},
	{"LM-09", Held, "processes without number, while others are asked", fresh},
	{"LM-10", Held, "threads without number, while others are asked", fresh},
	{"LM-11", Held, "open files without number", fresh},
	{"LM-12", Held, "one file larger than the disk", fresh},
	{"LM-13", Held, "memory by shared mappings", fresh},
	{"LM-14", Held, "memory by System V segments, detached", fresh},
	{"LM-15", Held, "every core, while others are asked", fresh},

	{"PX-01", Held, "forged frames on the channel, with ids of no call", fresh},
	{"PX-02", Held, "the reply of an earlier call said again", fresh},
	{"PX-03", Held, "a frame of 2 GiB announced", fresh},
	{"PX-03b", Held, "a frame of 2 GiB announced, the other way round", fresh},
	{"PX-04", Held, "the channel closed", fresh},
	{"PX-05", Held, "both ends of the channel used by a child", fresh},
	{"PX-06", Held, "a monkey-patched kernel", fresh},
	{"PX-07", Held, "the kernel's internals by gc.get_objects and frames", fresh | takeover},
	{"PX-08", Held, "sys.settrace and sys.setprofile that raise", fresh},
	{"PX-09", Held, "an exit handler and a thread that never end", fresh},
	{"PX-10", Held, "signal.set_wakeup_fd on the channel", fresh},
	{"PX-11", Held, "a daemon: setsid and a double fork", fresh},
	{"PX-12", Held, "sitecustomize, usercustomize, .pth, PYTHONSTARTUP for later interpreters", fresh | takeover},
	{"PX-13", Held, "a workspace with json.py, pickle.py and compiled modules", fresh | takeover},
	{"PX-14", Held, "links for the server's own file access", fresh},
	{"PX-15", Held, "a forged state.pkl", fresh | takeover},
	{"PX-16", Held, "output that imitates the marker of a remote runner", fresh},
	{"PX-17", Held, "every signal to the runner", fresh},
	{"PX-18", Held, "kill(-1, SIGKILL)", fresh},
	{"PX-19", Held, "64 MiB shoved into the channel", fresh},
	{"PX-20", Held, "standard output in place of the channel", fresh},
	{"PX-21", Held, "a child that answers for a dead worker", fresh},
	{"PX-22", Held, "SIGSTOP to all other processes", fresh},
}

// Probes is the escape table, in the order in which [Escape] runs it: what
// only looks comes before what may wreck its session.
func Probes() []Probe {
	prelude := source("prelude")
	family := map[string]string{}
	out := make([]Probe, 0, len(rows))
	for _, r := range rows {
		name := strings.ToLower(r.id[:2])
		if family[name] == "" {
			family[name] = prelude + "\n" + source(name)
		}
		p := Probe{ID: r.id, Try: r.try, Want: r.want, Code: family[name] + call(r.id), fresh: r.how&fresh != 0, takeover: r.how&takeover != 0}
		if r.id == "PX-02" {
			p.Then = "_return = probe(px_02b)\n"
		}
		out = append(out, p)
	}
	return out
}

func call(id string) string {
	return "\n\n_return = probe(" + strings.ToLower(strings.ReplaceAll(id, "-", "_")) + ")\n"
}

func source(name string) string {
	b, err := sources.ReadFile("probes/" + name + ".py")
	if err != nil {
		panic(err) // embedded: the table names a family that does not exist
	}
	return string(b)
}
