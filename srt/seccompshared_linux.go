package srt

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// amongOthers are the calls that a guest without namespaces must not make, besides those
// that no guest makes: their objects are the host's, and Landlock does not look at them.
func amongOthers(p Policy) map[string][]bpf.Instruction {
	calls := map[string][]bpf.Instruction{
		// Loopback is the host's. And of a Unix socket with a path, connect is a call
		// that Landlock lets pass before ABI 9. What a socketpair gives is connected
		// already; one of datagrams could still be sent to any address.
		"socket":     {ret(retEPERM)},
		"socketpair": pairCall(),

		// What the owner of a file may set through a descriptor that only reads.
		"ioctl": refuseRequests(unix.TIOCSTI, tioclinux, unix.TIOCSETD, fsSetFlags, fsSetFlags32, fsSetXattr, fsEnableVerity),

		// Other processes of the same user: only the caller itself, which is 0.
		"sched_setscheduler": append(onlySelf(0), judgedPolicy()...),
		"sched_setparam":     append(onlySelf(0), ret(retAllow)),
		"sched_setaffinity":  append(onlySelf(0), ret(retAllow)),
		"setpriority":        append(kindOfSelf(unix.PRIO_PROCESS), lowerPriority()...),
		"ioprio_set":         append(kindOfSelf(ioprioProcess), ret(retAllow)),
		"prlimit64":          append(onlySelf(0), prlimitCall()...),
	}
	for _, name := range nameless {
		calls[name] = []bpf.Instruction{ret(retENOSYS)}
	}
	if !p.bare() { // tail -f, which is told of nothing that it has not opened
		for _, name := range []string{"inotify_init", "inotify_init1"} {
			calls[name] = []bpf.Instruction{ret(retENOSYS)} // it tells of directories that can't be read
		}
	}
	for _, name := range byOwner {
		calls[name] = []bpf.Instruction{ret(retEPERM)}
	}
	for _, name := range attributes {
		calls[name] = []bpf.Instruction{ret(retENOTSUP)}
	}
	return calls
}

// nameless are calls whose objects lie in no tree of files, where they would be the host's.
var nameless = []string{
	"shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semtimedop", "semctl",
	"mq_open", "mq_unlink",
}

// byOwner are calls that the owner of a file may make, wherever it lies: the guest's user is
// the server's.
var byOwner = []string{
	"chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat",
	"chown", "lchown", "fchown", "fchownat",
	"connect", "bind", "listen", // of sockets that there are not
}

// attributes say "not here", at which programs that copy them go on.
var attributes = []string{
	"setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
}

// Requests that have no name in x/sys (linux/fs.h: FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS,
// FS_IOC_FSSETXATTR; linux/fsverity.h: FS_IOC_ENABLE_VERITY).
const (
	fsSetFlags     = 0x40086602
	fsSetFlags32   = 0x40046602
	fsSetXattr     = 0x401c5820
	fsEnableVerity = 0x40806685
)

// refuseRequests refuses these requests of ioctl.
func refuseRequests(requests ...uint32) []bpf.Instruction {
	ins := []bpf.Instruction{load(1)}
	for i, r := range requests {
		ins = append(ins, jump(bpf.JumpEqual, r, uint8(len(requests)-i), 0))
	}
	return append(ins, ret(retAllow), ret(retEPERM))
}

// lastAmongOthers is the newest call before those by which an owner sets a file's attributes
// by name (setxattrat, file_setattr), which the tables don't all know: mseal, of Linux 6.10.
const lastAmongOthers = 462

// pairCall allows connected Unix sockets.
func pairCall() []bpf.Instruction {
	const typeMask = 0xf
	return []bpf.Instruction{
		load(0), jump(bpf.JumpEqual, unix.AF_UNIX, 1, 0), ret(retFamily),
		load(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		jump(bpf.JumpEqual, unix.SOCK_STREAM, 2, 0), jump(bpf.JumpEqual, unix.SOCK_SEQPACKET, 1, 0), ret(retEPERM),
		ret(retAllow),
	}
}

// onlySelf refuses a call whose argument pid names a process: any number may be that of one
// outside.
func onlySelf(pid uint32) []bpf.Instruction {
	return []bpf.Instruction{load(pid), jump(bpf.JumpEqual, 0, 1, 0), ret(retEPERM)}
}

// kindOfSelf is onlySelf for calls that name groups and users besides.
func kindOfSelf(kind uint32) []bpf.Instruction {
	return append([]bpf.Instruction{load(0), jump(bpf.JumpEqual, kind, 1, 0), ret(retEPERM)}, onlySelf(1)...)
}
