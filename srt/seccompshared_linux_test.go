package srt

import (
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Without namespaces the filter holds what they hold elsewhere.
func TestFilterAmongOthers(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, tt := range []struct {
			policy Policy
			call   string
			args   []uint64
			want   uint32
		}{
			{Policy{}, "socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, retEPERM},
			{Policy{}, "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, retEPERM},
			{Policy{}, "socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, retAllow},
			{Policy{}, "socketpair", []uint64{high | unix.AF_UNIX, high | unix.SOCK_SEQPACKET, 0}, retAllow},
			{Policy{}, "socketpair", []uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, retEPERM}, // could be sent to any address
			{Policy{}, "socketpair", []uint64{unix.AF_UNIX, high | unix.SOCK_DGRAM, 0}, retEPERM},
			{Policy{}, "socketpair", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, retFamily},
			{Policy{}, "connect", nil, retEPERM},
			{Policy{}, "bind", nil, retEPERM},
			{Policy{countsSegments: true}, "shmget", nil, retENOSYS},
			{Policy{countsSegments: true}, "msgsnd", nil, retENOSYS},
			{Policy{}, "mq_open", nil, retENOSYS},
			{Policy{}, "inotify_init1", nil, retENOSYS},
			{Policy{Programs: []Shown{}}, "inotify_init1", nil, retAllow}, // tail -f
			{Policy{}, "fchmod", []uint64{3, 0o600}, retEPERM},
			{Policy{}, "fchmodat", []uint64{0, 4096, 0o600}, retEPERM},
			{Policy{}, "utimensat", nil, retEPERM},
			{Policy{}, "fchownat", nil, retEPERM},
			{Policy{}, "setxattr", nil, retENOTSUP},
			{Policy{}, "fremovexattr", nil, retENOTSUP},
			{Policy{}, "mseal", nil, retAllow},
			{Policy{}, "setpriority", []uint64{unix.PRIO_PROCESS, 0, 5}, retAllow},
			{Policy{}, "setpriority", []uint64{unix.PRIO_PROCESS, 4711, 5}, retEPERM},
			{Policy{}, "setpriority", []uint64{unix.PRIO_USER, 0, 5}, retEPERM},
			{Policy{}, "setpriority", []uint64{unix.PRIO_PROCESS, 0, 0xffffffff}, retEPERM},
			{Policy{}, "ioprio_set", []uint64{ioprioProcess, 0, 0}, retAllow},
			{Policy{}, "ioprio_set", []uint64{ioprioProcess, 4711, 0}, retEPERM},
			{Policy{}, "sched_setaffinity", []uint64{0, 8, 4096}, retAllow},
			{Policy{}, "sched_setaffinity", []uint64{4711, 8, 4096}, retEPERM},
			{Policy{}, "sched_setscheduler", []uint64{4711, unix.SCHED_IDLE, 0}, retEPERM},
			{Policy{}, "sched_setscheduler", []uint64{0, unix.SCHED_FIFO, 0}, retEPERM},
			{Policy{}, "prlimit64", []uint64{4711, unix.RLIMIT_NOFILE, 4096, 0}, retEPERM},
			{Policy{}, "prlimit64", []uint64{0, unix.RLIMIT_NOFILE, 4096, 0}, retAllow},
			{Policy{}, "ioctl", []uint64{0, unix.TIOCSTI}, retEPERM},
			{Policy{}, "ioctl", []uint64{3, high | fsEnableVerity}, retEPERM},
			{Policy{}, "ioctl", []uint64{3, fsSetFlags}, retEPERM},
			{Policy{}, "ioctl", []uint64{1, unix.TCGETS}, retAllow},
			{Policy{}, "kill", []uint64{1, 9}, retAllow}, // Landlock's to refuse
			{Policy{}, "landlock_restrict_self", nil, retAllow},
			{Policy{}, "unshare", nil, retEPERM},
		} {
			nr, ok := info.SyscallNames[tt.call]
			if !ok {
				continue
			}
			p := tt.policy
			p.sharesHost = true
			if got := verdict(t, machine(t, info, p), info.ID, uint32(nr), tt.args...); got != tt.want {
				t.Errorf("%s: %s%x: %x, want %x", info.Name, tt.call, tt.args, got, tt.want)
			}
		}
	}
}

// The calls by which an owner sets what a file is, and which the tables don't know.
func TestFilterAmongOthersNewer(t *testing.T) {
	vm := machine(t, arch.X86_64, Policy{sharesHost: true})
	for _, nr := range []uint32{463, 466, 469} { // setxattrat, removexattrat, file_setattr
		if got := verdict(t, vm, arch.X86_64.ID, nr); got != retENOSYS {
			t.Errorf("%d: %x", nr, got)
		}
	}
}

// Each name is one of a call somewhere.
func TestNamesAmongOthers(t *testing.T) {
	for _, names := range [][]string{nameless, byOwner, attributes} {
		for _, name := range names {
			_, x86 := arch.X86_64.SyscallNames[name]
			_, arm := arch.AARCH64.SyscallNames[name]
			if !x86 && !arm {
				t.Errorf("%s is no call", name)
			}
		}
	}
}
