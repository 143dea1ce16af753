package srt

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter is a denylist. Inside namespaces of its own, without capabilities, most of
// the kernel can do a guest's neighbours no harm, and an allowlist breaks honest
// libraries at every release. What is refused here are the calls that open attack
// surface which namespaces do not cover, or that would matter if another layer failed.
//
// go-seccomp-bpf gives the tables of system calls; the program is put together here,
// because its own assembler (1.6.0) lets a foreign architecture through to the default
// action, and after an argument test that did not match goes on comparing the argument,
// not the call, with the numbers that follow.

const (
	retAllow   = uint32(seccomp.ActionAllow)
	retKill    = uint32(seccomp.ActionKillProcess)
	retEPERM   = uint32(seccomp.ActionErrno) | uint32(unix.EPERM)
	retENOSYS  = uint32(seccomp.ActionErrno) | uint32(unix.ENOSYS)
	retFamily  = uint32(seccomp.ActionErrno) | uint32(unix.EAFNOSUPPORT)
	retEINVAL  = uint32(seccomp.ActionErrno) | uint32(unix.EINVAL)
	retENOTSUP = uint32(seccomp.ActionErrno) | uint32(unix.ENOTSUP)
)

// Offsets in struct seccomp_data. Arguments are 64 bits wide; but for a pointer
// of prlimit64 every one that is looked at below is an int or unsigned int to the kernel, which ignores the
// upper half, so the filter must ignore it too, or a bit set there would carry a refused
// value past it.
const (
	offNumber = 0
	offArch   = 4
)

// offArg is where the low half of argument n lies on a little-endian machine; both
// architectures that have a table here are.
func offArg(n uint32) uint32 { return 16 + 8*n }

// lastKnown is the newest system call this list was made against (Linux 6.17,
// file_setattr). A later one is answered as a kernel without it would: nobody has
// judged it yet. Numbers are the same on all architectures from 424 on.
const lastKnown = 469

// denied are refused whatever their arguments. Those an architecture does not have are
// left out there; a test holds that each name exists somewhere.
var denied = []string{
	// Namespaces and mounts: new ones would give capabilities over new kernel surface.
	"unshare", "setns", "mount", "umount2", "umount", "pivot_root", "chroot",
	"open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
	// Other processes: the supervisor runs under the same user.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
	"move_pages", "migrate_pages",
	// Surface with a long history of holes, and none of it namespaced.
	"bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "fanotify_mark", "lookup_dcookie",
	// Files by handle pass by the mounts ("shocker").
	"open_by_handle_at", "name_to_handle_at",
	// The machine.
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff",
	"acct", "quotactl", "quotactl_fd", "nfsservctl", "syslog", "vhangup", "sethostname", "setdomainname",
	"settimeofday", "stime", "clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "modify_ldt",
	"uselib", "sysfs", "ustat", "_sysctl", "vm86", "vm86old",
	// Its structure lies behind a pointer, so real-time policies can't be told apart.
	"sched_setattr",
	// Memory that the host can't see into, and that never counts as shared.
	"memfd_secret",
}

// namespaceFlags are clone's flags that ask for a new namespace. CLONE_NEWTIME is not
// among them: in clone it is part of the exit signal's byte and has no effect.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// judged are the calls that depend on their arguments.
func judged(p Policy) map[string][]bpf.Instruction {
	calls := map[string][]bpf.Instruction{
		// clone3 passes its flags behind a pointer, where no filter sees them; told that
		// it does not exist, libc falls back to clone.
		"clone3": {ret(retENOSYS)},
		"clone":  {load(0), jump(bpf.JumpBitsSet, namespaceFlags, 0, 1), ret(retEPERM), ret(retAllow)},

		// Reading the personality, and setting the ordinary one, stay; anything else
		// (no address randomisation, executable everything) weakens the process.
		"personality": allowOnly(0, retEPERM, 0, 0xffffffff),

		"sched_setscheduler": append(p.notSupervisor(0), judgedPolicy()...),
		"sched_setparam":     append(p.notSupervisor(0), ret(retAllow)),
		"sched_setaffinity":  append(p.notSupervisor(0), ret(retAllow)),
		"setpriority":        append(p.oneProcess(unix.PRIO_PROCESS), lowerPriority()...),
		"ioprio_set":         append(p.oneProcess(ioprioProcess), ret(retAllow)),

		// Typing into somebody's terminal. There is none inside; this is for one that leaks.
		"ioctl": {load(1),
			jump(bpf.JumpEqual, unix.TIOCSTI, 3, 0),
			jump(bpf.JumpEqual, tioclinux, 2, 0),
			jump(bpf.JumpEqual, unix.TIOCSETD, 1, 0),
			ret(retAllow), ret(retEPERM)},

		// RLIMIT_CORE stays at 1, see setRlimits. EINVAL is "no such limit here", at which
		// programs that want to leave no dump go on; some stop at EPERM.
		"setrlimit": {load(0), jump(bpf.JumpEqual, unix.RLIMIT_CORE, 0, 1), ret(retEINVAL), ret(retAllow)},
		"prlimit64": append(p.notSupervisor(0), prlimitCall()...),

		// A workspace may belong to root, and a set-user-id file there would be root's, for
		// every user of the host who can reach it.
		"chmod":     plainMode(1),
		"fchmod":    plainMode(1),
		"fchmodat":  plainMode(2),
		"fchmodat2": plainMode(2),
		"mknod":     plainMode(1),
		"mknodat":   plainMode(2),
		"creat":     plainMode(1),
		"open":      plainCreation(1),
		"openat":    plainCreation(2),
		"openat2":   {ret(retENOSYS)}, // its mode lies behind a pointer; all fall back to openat

		"socket":     socketCall(),
		"socketpair": allowOnly(0, retFamily, unix.AF_UNIX),
	}
	if !p.countsSegments {
		// Without a control group nobody sees a segment that is attached nowhere, or a queue.
		for _, name := range []string{"shmget", "msgget", "semget"} {
			calls[name] = []bpf.Instruction{ret(retENOSYS)}
		}
	}
	if p.sharesIPC {
		for _, name := range ipc {
			calls[name] = []bpf.Instruction{ret(retENOSYS)}
		}
	}
	if p.bare() {
		for _, name := range needless {
			calls[name] = []bpf.Instruction{ret(retEPERM)}
		}
	}
	if p.sharesHost {
		maps.Copy(calls, amongOthers(p))
	}
	if !p.AllowExec {
		// A memory file can be executed although every writable mount is noexec.
		calls["memfd_create"] = []bpf.Instruction{ret(retEPERM)}
	}
	return calls
}

// ipc are the calls by which segments, semaphores and queues are made and found by number or
// name. Without a namespace for them they are the host's, and one that is made would stay.
var ipc = []string{
	"shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semtimedop", "semctl",
	"mq_open", "mq_unlink",
}

// needless are calls that no command of the allowlist makes to do its work, and by which one
// that was taken over could reach others, or set aside what outlives it.
var needless = []string{
	"socket", "socketpair", "bind", "connect", "listen", "accept", "accept4", "recvmsg", "recvmmsg", "sendmsg", "sendmmsg",
	"shmget", "shmat", "msgget", "semget", "mq_open",
	"mknod", "mknodat", // FIFOs, sockets, devices
	"setxattr", "lsetxattr", "fsetxattr", "setxattrat",
	"io_setup", "io_submit",
}

// ioprioProcess (linux/ioprio.h: IOPRIO_WHO_PROCESS) has no name in x/sys.
const ioprioProcess = 1

// notSupervisor refuses a call whose argument pid names PID 1. It runs under the guest's own
// id, so the kernel would let the guest starve it, by a lower priority, fewer processors or
// tighter limits; and PID 1 is who must end everything. The guest's own processes say 0.
// Where the wall is another's, PID 1 is its, and the supervisor comes after it.
func (p Policy) notSupervisor(pid uint32) []bpf.Instruction {
	ins := []bpf.Instruction{load(pid), jump(bpf.JumpEqual, 1, 0, 1), ret(retEPERM)}
	if p.supervisor > 1 {
		ins = append(ins, jump(bpf.JumpEqual, uint32(p.supervisor), 0, 1), ret(retEPERM))
	}
	return ins
}

// oneProcess refuses a priority for whole groups or users, which would be PID 1's too.
func (p Policy) oneProcess(kind uint32) []bpf.Instruction {
	return append([]bpf.Instruction{load(0), jump(bpf.JumpEqual, kind, 1, 0), ret(retEPERM)}, p.notSupervisor(1)...)
}

// judgedPolicy refuses real-time policies, which could starve the host. SCHED_RESET_ON_FORK may
// come with any.
func judgedPolicy() []bpf.Instruction {
	return append([]bpf.Instruction{load(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: ^uint32(unix.SCHED_RESET_ON_FORK)}},
		oneOf(retEPERM, unix.SCHED_NORMAL, unix.SCHED_BATCH, unix.SCHED_IDLE)...)
}

// lowerPriority refuses a negative nice value.
func lowerPriority() []bpf.Instruction {
	return []bpf.Instruction{load(2), jump(bpf.JumpBitsSet, 1<<31, 0, 1), ret(retEPERM), ret(retAllow)}
}

const setIDs = unix.S_ISUID | unix.S_ISGID

// plainMode refuses a mode with a set-id bit.
func plainMode(arg uint32) []bpf.Instruction {
	return []bpf.Instruction{load(arg), jump(bpf.JumpBitsSet, setIDs, 0, 1), ret(retEPERM), ret(retAllow)}
}

// plainCreation is plainMode for an open that may create: otherwise the mode behind the
// flags is whatever the register held.
func plainCreation(flags uint32) []bpf.Instruction {
	const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	return append([]bpf.Instruction{load(flags), jump(bpf.JumpBitsSet, creates, 1, 0), ret(retAllow)}, plainMode(flags+1)...)
}

// tioclinux (linux/tty.h: TIOCLINUX) pastes into a virtual console; x/sys has no name for it.
const tioclinux = 0x541c

// socketCall allows AF_UNIX, and TCP and UDP over loopback; raw and packet sockets, other
// families and other protocols are kernel surface that no guest needs.
func socketCall() []bpf.Instruction {
	const typeMask = 0xf // SOCK_NONBLOCK and SOCK_CLOEXEC come in the bits above
	inet := append([]bpf.Instruction{load(2)}, oneOf(retEPERM, 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP)...)
	types := []bpf.Instruction{
		load(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
		jump(bpf.JumpEqual, unix.SOCK_STREAM, 2, 0), jump(bpf.JumpEqual, unix.SOCK_DGRAM, 1, 0), ret(retEPERM),
	}
	return slices.Concat([]bpf.Instruction{
		load(0),
		jump(bpf.JumpEqual, unix.AF_UNIX, 2, 0),
		jump(bpf.JumpEqual, unix.AF_INET, 2, 0),
		jump(bpf.JumpEqual, unix.AF_INET6, 1, 2),
		ret(retAllow),     // AF_UNIX
		bpf.Jump{Skip: 1}, // to the types
		ret(retFamily),    // any other family
	}, types, inet)
}

// prlimitCall is setrlimit and getrlimit in one: where there is something to set, it is the
// former. That is a pointer, so both halves of it count.
func prlimitCall() []bpf.Instruction {
	const resource, set = 1, 2
	return []bpf.Instruction{
		load(resource), jump(bpf.JumpEqual, unix.RLIMIT_CORE, 0, 5),
		load(set), jump(bpf.JumpEqual, 0, 0, 2),
		loadHigh(set), jump(bpf.JumpEqual, 0, 1, 0),
		ret(retEINVAL), ret(retAllow),
	}
}

func load(arg uint32) bpf.Instruction     { return bpf.LoadAbsolute{Off: offArg(arg), Size: 4} }
func loadHigh(arg uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArg(arg) + 4, Size: 4} }
func ret(v uint32) bpf.Instruction        { return bpf.RetConstant{Val: v} }

func jump(cond bpf.JumpTest, val uint32, whenTrue, whenFalse uint8) bpf.Instruction {
	return bpf.JumpIf{Cond: cond, Val: val, SkipTrue: whenTrue, SkipFalse: whenFalse}
}

// allowOnly allows the call where the low half of arg is one of values.
func allowOnly(arg, otherwise uint32, values ...uint32) []bpf.Instruction {
	return append([]bpf.Instruction{load(arg)}, oneOf(otherwise, values...)...)
}

// oneOf ends the program: allowed where the accumulator is one of values.
func oneOf(otherwise uint32, values ...uint32) []bpf.Instruction {
	var ins []bpf.Instruction
	for i, v := range values {
		ins = append(ins, jump(bpf.JumpEqual, v, uint8(len(values)-i), 0))
	}
	return append(ins, ret(otherwise), ret(retAllow))
}

// filterFor puts the filter together for one architecture. Order matters: the
// architecture first, since numbers mean nothing before it is known.
func filterFor(info *arch.Info, p Policy) []bpf.Instruction {
	ins := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		jump(bpf.JumpEqual, uint32(info.ID), 1, 0),
		ret(retKill), // i386 or 32-bit ARM calls on a 64-bit kernel: no honest program here makes them
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		jump(bpf.JumpGreaterThan, p.lastKnown(), 0, 1), // takes x32 (bit 30) and negative numbers too
		ret(retENOSYS),
	}
	for _, name := range denied {
		if nr, ok := info.SyscallNames[name]; ok {
			ins = append(ins, jump(bpf.JumpEqual, uint32(nr), 0, 1), ret(retEPERM))
		}
	}
	calls := judged(p)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if nr, ok := info.SyscallNames[name]; ok {
			// Each block decides for its call and ends in a return: it has overwritten the
			// accumulator, so nothing after it may still compare the call's number.
			block := calls[name]
			ins = append(ins, jump(bpf.JumpEqual, uint32(nr), 0, uint8(len(block))))
			ins = append(ins, block...)
		}
	}
	return append(ins, ret(retAllow))
}

// lastKnown is the newest call that may be answered by a kernel that has it.
func (p Policy) lastKnown() uint32 {
	if p.sharesHost {
		return lastAmongOthers
	}
	return lastKnown
}

// seccompFilter is the program for this machine, as the bytes of a struct sock_filter
// array. The parent makes it, so that a starting guest does not wait for it.
func seccompFilter(p Policy) ([]byte, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, failed(layerSeccomp, err)
	}
	raw, err := bpf.Assemble(filterFor(info, p))
	if err != nil {
		return nil, failed(layerSeccomp, err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, r := range raw {
		out = binary.NativeEndian.AppendUint16(out, r.Op)
		out = append(out, r.Jt, r.Jf)
		out = binary.NativeEndian.AppendUint32(out, r.K)
	}
	return out, nil
}

// loadSeccomp puts the calling thread, and whatever it executes, behind the filter.
// There is no way back. no_new_privs must be set.
func loadSeccomp(filter []byte) error {
	if len(filter) == 0 || len(filter)%8 != 0 {
		return fmt.Errorf("filter of %d bytes", len(filter))
	}
	prog := unix.SockFprog{Len: uint16(len(filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}
