package srt

import (
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	x32Bit          = 0x40000000 // the x32 calls of an amd64 kernel: the same architecture, other numbers
	addrNoRandomize = 0x0040000  // linux/personality.h
)

// verdict runs the filter on a struct seccomp_data. The machine of x/net loads
// big-endian, the kernel in its own order; values stored big-endian word by word, the low half of
// an argument at the offset where a little-endian kernel has it, give the same loads.
func verdict(t *testing.T, vm *bpf.VM, audit arch.AuditArch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], nr)
	binary.BigEndian.PutUint32(data[offArch:], uint32(audit))
	for i, a := range args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	v, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

func machine(t *testing.T, info *arch.Info, p Policy) *bpf.VM {
	t.Helper()
	ins := filterFor(info, p)
	if _, err := bpf.Assemble(ins); err != nil {
		t.Fatal(err)
	}
	if len(ins) > 4096 { // BPF_MAXINSNS
		t.Fatalf("%d instructions", len(ins))
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

const high = uint64(1) << 40 // a bit above those the kernel looks at

func TestFilter(t *testing.T) {
	tests := []struct {
		call string
		args []uint64
		want uint32
	}{
		{"read", nil, retAllow},
		{"execve", nil, retAllow},
		{"mmap", nil, retAllow},
		{"memfd_create", nil, retAllow},
		{"landlock_restrict_self", nil, retAllow},
		{"pidfd_open", nil, retAllow},

		{"clone3", nil, retENOSYS},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, retAllow},
		{"clone", []uint64{uint64(unix.SIGCHLD)}, retAllow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, retEPERM},
		{"clone", []uint64{unix.CLONE_NEWNET}, retEPERM},
		{"clone", []uint64{unix.CLONE_NEWNS}, retEPERM},
		{"clone", []uint64{unix.CLONE_NEWPID}, retEPERM},
		{"clone", []uint64{unix.CLONE_NEWCGROUP | high}, retEPERM},
		{"clone", []uint64{high}, retAllow},

		{"personality", []uint64{0}, retAllow},
		{"personality", []uint64{0xffffffff}, retAllow},
		{"personality", []uint64{0xffffffffffffffff}, retAllow},
		{"personality", []uint64{addrNoRandomize}, retEPERM},
		{"personality", []uint64{addrNoRandomize | high}, retEPERM},

		{"sched_setscheduler", []uint64{0, unix.SCHED_NORMAL}, retAllow},
		{"sched_setscheduler", []uint64{0, unix.SCHED_IDLE | unix.SCHED_RESET_ON_FORK}, retAllow},
		{"sched_setscheduler", []uint64{0, unix.SCHED_FIFO}, retEPERM},
		{"sched_setscheduler", []uint64{0, unix.SCHED_RR | unix.SCHED_RESET_ON_FORK}, retEPERM},
		{"sched_setscheduler", []uint64{0, unix.SCHED_DEADLINE}, retEPERM},
		{"sched_setattr", nil, retEPERM},
		{"setpriority", []uint64{0, 0, 5}, retAllow},
		{"setpriority", []uint64{0, 7, 5}, retAllow},
		{"setpriority", []uint64{0, 1, 5}, retEPERM}, // the supervisor
		{"setpriority", []uint64{0, high | 1, 5}, retEPERM},
		{"setpriority", []uint64{unix.PRIO_PGRP, 0, 5}, retEPERM},
		{"setpriority", []uint64{unix.PRIO_USER, 0, 19}, retEPERM},
		{"ioprio_set", []uint64{1, 0, 0}, retAllow},
		{"ioprio_set", []uint64{1, 1, 0}, retEPERM},
		{"ioprio_set", []uint64{3, 0, 0}, retEPERM},
		{"sched_setscheduler", []uint64{1, unix.SCHED_IDLE, 0}, retEPERM},
		{"sched_setparam", []uint64{1, 0}, retEPERM},
		{"sched_setparam", []uint64{0, 0}, retAllow},
		{"sched_setaffinity", []uint64{1, 8, 4096}, retEPERM},
		{"sched_setaffinity", []uint64{high | 1, 8, 4096}, retEPERM},
		{"sched_setaffinity", []uint64{0, 8, 4096}, retAllow},
		{"prlimit64", []uint64{1, unix.RLIMIT_AS, 4096, 0}, retEPERM},
		{"chmod", []uint64{4096, 0o755}, retAllow},
		{"chmod", []uint64{4096, 0o1777}, retAllow},
		{"chmod", []uint64{4096, 0o4755}, retEPERM},
		{"fchmod", []uint64{3, 0o2755}, retEPERM},
		{"fchmodat", []uint64{0, 4096, 0o6755}, retEPERM},
		{"fchmodat2", []uint64{0, 4096, high | 0o4755, 0}, retEPERM},
		{"open", []uint64{4096, unix.O_RDONLY, 0o4755}, retAllow},
		{"open", []uint64{4096, unix.O_RDWR | unix.O_CREAT, 0o644}, retAllow},
		{"open", []uint64{4096, unix.O_RDWR | unix.O_CREAT, 0o4755}, retEPERM},
		{"openat", []uint64{0, 4096, unix.O_DIRECTORY, 0o4755}, retAllow},
		{"openat", []uint64{0, 4096, unix.O_RDWR | unix.O_TMPFILE, 0o4755}, retEPERM},
		{"creat", []uint64{4096, 0o4755}, retEPERM},
		{"mknodat", []uint64{0, 4096, unix.S_IFREG | 0o4755, 0}, retEPERM},
		{"openat2", []uint64{0, 4096, 4096, 24}, retENOSYS},
		{"setpriority", []uint64{0, 0, 0xffffffff}, retEPERM}, // -1 as an int
		{"setpriority", []uint64{0, 0, ^uint64(0)}, retEPERM},

		{"ioctl", []uint64{1, unix.TCGETS}, retAllow},
		{"ioctl", []uint64{1, unix.TIOCINQ}, retAllow},
		{"ioctl", []uint64{0, unix.TIOCSTI}, retEPERM},
		{"ioctl", []uint64{0, unix.TIOCSTI | high}, retEPERM},
		{"ioctl", []uint64{0, tioclinux}, retEPERM},
		{"ioctl", []uint64{0, unix.TIOCSETD | high}, retEPERM},

		{"setrlimit", []uint64{unix.RLIMIT_NOFILE, 4096}, retAllow},
		{"setrlimit", []uint64{unix.RLIMIT_CORE, 4096}, retEINVAL},
		{"setrlimit", []uint64{unix.RLIMIT_CORE | high, 4096}, retEINVAL},
		{"prlimit64", []uint64{0, unix.RLIMIT_NOFILE, 4096, 4096}, retAllow},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 0, 4096}, retAllow},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 4096, 0}, retEINVAL},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, high, 0}, retEINVAL},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 4096, 4096}, retEINVAL},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 4096, high}, retEINVAL},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE | high, high, high}, retEINVAL},

		{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, retAllow},
		{"socket", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, retAllow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK}, retAllow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, retAllow},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, retAllow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP}, retEPERM},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, retEPERM},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, retEPERM},
		{"socket", []uint64{unix.AF_INET | high, unix.SOCK_RAW | high, unix.IPPROTO_RAW}, retEPERM},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC}, retEPERM},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_PACKET}, retEPERM},
		{"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW}, retFamily},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM}, retFamily},
		{"socket", []uint64{unix.AF_NETLINK | high, unix.SOCK_DGRAM}, retFamily},
		{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, retFamily},
		{"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, retFamily},
		{"socket", []uint64{unix.AF_BLUETOOTH, unix.SOCK_SEQPACKET}, retFamily},
		{"socket", []uint64{unix.AF_CAN, unix.SOCK_STREAM}, retFamily},
		{"socket", []uint64{unix.AF_XDP, unix.SOCK_STREAM}, retFamily},
		{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retAllow},
		{"socketpair", []uint64{unix.AF_INET, unix.SOCK_STREAM}, retFamily},
		{"socketpair", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, retFamily},
	}
	for _, name := range denied {
		tests = append(tests, struct {
			call string
			args []uint64
			want uint32
		}{name, nil, retEPERM})
	}
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		vm := machine(t, info, Policy{AllowExec: true})
		for _, tt := range tests {
			nr, ok := info.SyscallNames[tt.call]
			if !ok {
				continue // TestDeniedNames holds that it exists somewhere
			}
			if got := verdict(t, vm, info.ID, uint32(nr), tt.args...); got != tt.want {
				t.Errorf("%s %s(%#x): %#x, want %#x", info.Name, tt.call, tt.args, got, tt.want)
			}
		}
	}
}

// A call that an argument has let pass must not be taken for another whose number equals
// that argument.
func TestFilterArgumentIsNoNumber(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		vm := machine(t, info, Policy{})
		for nr := range uint64(lastKnown + 1) {
			if got := verdict(t, vm, info.ID, uint32(info.SyscallNames["ioctl"]), 0, nr); got != retAllow {
				t.Fatalf("%s ioctl(0, %d): %#x", info.Name, nr, got)
			}
		}
	}
}

func TestFilterForeign(t *testing.T) {
	amd64, arm64 := machine(t, arch.X86_64, Policy{}), machine(t, arch.AARCH64, Policy{})
	for _, tt := range []struct {
		name  string
		vm    *bpf.VM
		audit arch.AuditArch
		nr    uint32
		want  uint32
	}{
		{"i386 read on amd64", amd64, arch.I386.ID, 3, retKill},
		{"i386 unshare on amd64", amd64, arch.I386.ID, 310, retKill},
		{"arm64 on amd64", amd64, arch.AARCH64.ID, 63, retKill},
		{"arm on arm64", arm64, arch.ARM.ID, 3, retKill},
		{"amd64 on arm64", arm64, arch.X86_64.ID, 0, retKill},
		{"nothing", amd64, 0, 0, retKill},
		{"x32 read", amd64, arch.X86_64.ID, x32Bit, retENOSYS},
		{"x32 mount", amd64, arch.X86_64.ID, x32Bit | uint32(arch.X86_64.SyscallNames["mount"]), retENOSYS},
		{"x32 ptrace", amd64, arch.X86_64.ID, x32Bit | 521, retENOSYS},
		{"the last known", amd64, arch.X86_64.ID, lastKnown, retAllow},
		{"one that nobody has judged", amd64, arch.X86_64.ID, lastKnown + 1, retENOSYS},
		{"one that nobody has judged", arm64, arch.AARCH64.ID, lastKnown + 1, retENOSYS},
		{"negative", amd64, arch.X86_64.ID, 0xffffffff, retENOSYS},
	} {
		if got := verdict(t, tt.vm, tt.audit, tt.nr); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

func TestFilterWithoutExec(t *testing.T) {
	vm := machine(t, arch.X86_64, Policy{})
	if got := verdict(t, vm, arch.X86_64.ID, unix.SYS_MEMFD_CREATE); runtime.GOARCH == "amd64" && got != retEPERM {
		t.Errorf("memfd_create: %#x", got)
	}
}

// Commands make no sockets, nor anything else that they could reach others by.
func TestFilterForCommands(t *testing.T) {
	for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, counts := range []bool{false, true} {
			vm := machine(t, info, Policy{Programs: []Shown{}, countsSegments: counts})
			for _, name := range append([]string{"memfd_create"}, needless...) {
				nr, ok := info.SyscallNames[name]
				if !ok {
					continue
				}
				// AF_UNIX and AF_INET, stream and datagram, are what others may have.
				for _, args := range [][]uint64{{}, {unix.AF_UNIX, unix.SOCK_STREAM}, {unix.AF_INET, unix.SOCK_DGRAM}, {high | 2, high | 1}} {
					if got := verdict(t, vm, info.ID, uint32(nr), args...); got == retAllow {
						t.Errorf("%s %s(%#x) is allowed", info.Name, name, args)
					}
				}
			}
			for _, name := range []string{"execve", "pipe2", "inotify_add_watch", "fadvise64", "copy_file_range", "splice", "unlinkat", "clone"} {
				if got := verdict(t, vm, info.ID, uint32(info.SyscallNames[name])); got != retAllow {
					t.Errorf("%s %s: %#x", info.Name, name, got)
				}
			}
		}
	}
}

func TestFilterWithoutControlGroup(t *testing.T) {
	for counts, want := range map[bool]uint32{false: retENOSYS, true: retAllow} {
		vm := machine(t, arch.X86_64, Policy{countsSegments: counts})
		if got := verdict(t, vm, arch.X86_64.ID, unix.SYS_SHMGET); runtime.GOARCH == "amd64" && got != want {
			t.Errorf("shmget where segments count (%v): %#x, want %#x", counts, got, want)
		}
	}
}

// A misspelt name would refuse nothing.
func TestDeniedNames(t *testing.T) {
	names := slices.Clone(denied)
	names = append(names, slices.Collect(maps.Keys(judged(Policy{Programs: []Shown{}})))...)
	for _, name := range names {
		known := false
		for _, info := range []*arch.Info{arch.X86_64, arch.AARCH64, arch.I386} {
			_, ok := info.SyscallNames[name]
			known = known || ok
		}
		if !known {
			t.Errorf("no architecture has %s", name)
		}
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Error("a call is named twice: the first block decides")
	}
}

// The kernel and the machine of the tests must run the same program.
func TestFilterBytes(t *testing.T) {
	raw, err := seccompFilter(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	want, err := bpf.Assemble(filterFor(info, Policy{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		b := raw[8*i:]
		got := bpf.RawInstruction{Op: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
		if fmt.Sprint(got) != fmt.Sprint(w) {
			t.Fatalf("instruction %d: %v, want %v", i, got, w)
		}
	}
}
