package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// dockerProfile is what packaging/docker/seccomp.json holds, in Docker's format.
type dockerProfile struct {
	DefaultAction   string      `json:"defaultAction"`
	DefaultErrnoRet int         `json:"defaultErrnoRet"`
	ArchMap         []dockerCPU `json:"archMap"`
	Syscalls        []dockerSet `json:"syscalls"`
}

type dockerCPU struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

type dockerSet struct {
	Comment string      `json:"comment,omitempty"`
	Names   []string    `json:"names"`
	Action  string      `json:"action"`
	Args    []dockerArg `json:"args,omitempty"`
}

type dockerArg struct {
	Index uint32 `json:"index"`
	Value uint64 `json:"value"`
	Op    string `json:"op"`
}

// raised are the calls that a wall is raised by and that Docker's own profile keeps from
// containers without CAP_SYS_ADMIN. In a container they reach no further than the user
// namespace that comes with them.
var raised = []string{
	"clone", "clone3", "unshare", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "mount_setattr",
	"sethostname", "setdomainname",
}

// kept are the calls that containers are kept from: those that command the machine or other
// namespaces, and those that Docker keeps from them too. As there, what is not known is refused.
var kept = []string{
	"setns", "chroot", "umount", "open_tree_attr", "fspick",
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "move_pages", "migrate_pages",
	"bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "fanotify_mark", "lookup_dcookie",
	"open_by_handle_at", "name_to_handle_at",
	"init_module", "finit_module", "delete_module", "create_module", "get_kernel_syms", "query_module",
	"kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "nfsservctl", "syslog", "vhangup",
	"settimeofday", "stime", "clock_settime", "clock_settime64", "iopl", "ioperm", "modify_ldt",
	"uselib", "sysfs", "ustat", "_sysctl", "arch_specific_syscall", "vserver", "security", "tuxcall", "getpmsg", "putpmsg", "afs_syscall", "epoll_ctl_old", "epoll_wait_old",
	"memfd_secret", "mbind", "set_mempolicy", "set_mempolicy_home_node", "get_mempolicy",
}

// later are calls that are newer than the table.
var later = []string{
	"cachestat", "fchmodat2", "map_shadow_stack", "futex_wake", "futex_wait", "futex_requeue", "statmount", "listmount", "lsm_get_self_attr",
	"lsm_set_self_attr", "lsm_list_modules", "mseal", "setxattrat", "getxattrat", "listxattrat", "removexattrat", "file_getattr", "file_setattr",
}

// derived is the profile that ships: all that Linux knows, but what containers are kept from.
func derived() dockerProfile {
	conditional := []string{"socket", "personality"}
	names := map[string]bool{}
	for _, n := range later {
		names[n] = true
	}
	for _, cpu := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for n := range cpu.SyscallNames {
			names[n] = true
		}
	}
	for _, n := range slices.Concat(kept, conditional, raised) {
		delete(names, n)
	}
	const allow = "SCMP_ACT_ALLOW"
	return dockerProfile{
		DefaultAction: "SCMP_ACT_ERRNO", DefaultErrnoRet: int(unix.EPERM),
		ArchMap: []dockerCPU{{"SCMP_ARCH_X86_64", []string{}}, {"SCMP_ARCH_AARCH64", []string{}}},
		Syscalls: []dockerSet{
			{"what programs do", slices.Sorted(maps.Keys(names)), allow, nil},
			{"any socket but those to the machine's hypervisor", []string{"socket"}, allow, []dockerArg{{0, unix.AF_VSOCK, "SCMP_CMP_NE"}}},
			{"the ordinary personality", []string{"personality"}, allow, []dockerArg{{0, 0, "SCMP_CMP_EQ"}}},
			{"which one it is", []string{"personality"}, allow, []dockerArg{{0, 0xffffffff, "SCMP_CMP_EQ"}}},
			{"what mcp-sandbox raises its wall by, in a user namespace of its own", slices.Sorted(slices.Values(raised)), allow, nil},
		},
	}
}

const dockerProfilePath = "../../packaging/docker/seccomp.json"

// The profile that ships is the one that is derived here; with MCP_SANDBOX_TEST_UPDATE it is
// written.
func TestDockerProfile(t *testing.T) {
	want, err := json.MarshalIndent(derived(), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("MCP_SANDBOX_TEST_UPDATE") != "" {
		if err := os.WriteFile(dockerProfilePath, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(dockerProfilePath)
	if err != nil || string(got) != string(want)+"\n" {
		t.Errorf("%s is another (%v): run this test with MCP_SANDBOX_TEST_UPDATE=1", dockerProfilePath, err)
	}
}

// Under the profile the wall stands; without the calls that are added in it, as under
// Docker's own, it does not, and says what to do.
func TestWallUnderDockersFilter(t *testing.T) {
	t.Parallel()
	server := binary(t)
	text, err := os.ReadFile(dockerProfilePath)
	if err != nil {
		t.Fatal(err)
	}
	var ships, without dockerProfile
	if err := json.Unmarshal(text, &ships); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(text, &without)
	without.Syscalls = without.Syscalls[:len(without.Syscalls)-1]
	without.Syscalls = append(without.Syscalls, dockerSet{Names: []string{"clone"}, Action: "SCMP_ACT_ALLOW",
		Args: []dockerArg{{0, unix.CLONE_NEWUSER, "no such bits"}}})
	for name, c := range map[string]struct {
		profile dockerProfile
		stands  bool
	}{"as it ships": {ships, true}, "without what is added": {without, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, stderr strings.Builder
			cmd := exec.Command(server, "exec", "--wall", "native", "import subprocess, threading\nsubprocess.run(['/bin/true']).returncode + 42")
			cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &stderr
			if err := underFilter(t, c.profile, cmd.Start); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if stands := err == nil && strings.Contains(out.String(), "output: 42"); stands != c.stands {
				t.Errorf("%v\n%s\n%s", err, out.String(), stderr.String())
			}
			if !c.stands && !strings.Contains(stderr.String(), "seccomp") {
				t.Errorf("no remedy: %s", stderr.String())
			}
		})
	}
}

// underFilter calls start where its children meet the profile, as a container's runtime
// would make it.
func underFilter(t *testing.T, p dockerProfile, start func() error) error {
	t.Helper()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
	newer := map[string]uint32{"fchmodat2": 452}
	for _, set := range p.Syscalls {
		for _, name := range set.Names {
			nr, known := info.SyscallNames[name]
			if n, ok := newer[name]; ok && !known {
				nr, known = int(n), true
			}
			if !known {
				continue
			}
			test := []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}
			for _, a := range set.Args {
				compare := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(a.Value), SkipFalse: 1}
				switch a.Op {
				case "SCMP_CMP_NE":
					compare.Cond = bpf.JumpNotEqual
				case "no such bits":
					compare.Cond = bpf.JumpBitsNotSet
				}
				test = append([]bpf.Instruction{bpf.LoadAbsolute{Off: 16 + 8*a.Index, Size: 4}, compare}, test...)
			}
			code = append(code, bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(nr), SkipFalse: uint8(len(test))})
			code = append(code, test...)
		}
	}
	err = filtered(t, append(code, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(p.DefaultErrnoRet)}), start)
	if err != nil {
		err = fmt.Errorf("under the filter: %w", err)
	}
	return err
}
