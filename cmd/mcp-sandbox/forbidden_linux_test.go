package main_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Where user namespaces are forbidden nothing is served and nothing is run, and
// the reason comes with a remedy.
func TestForbiddenUserNamespaces(t *testing.T) {
	server, tmp := binary(t), t.TempDir()
	for name, errno := range map[string]syscall.Errno{"by a filter": unix.EPERM, "by their number": unix.ENOSPC} {
		for _, args := range [][]string{{"serve"}, {"exec", "print('ran')"}, {"doctor"}} {
			t.Run(name+", "+args[0], func(t *testing.T) {
				var stdout, stderr strings.Builder
				cmd := exec.Command(server, args...)
				cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := withoutUserNamespaces(t, errno, cmd.Start)
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err == nil {
					t.Error("exit code 0")
				}
				said := stderr.String()
				if args[0] == "doctor" {
					said = stdout.String()
				} else if stdout.Len() > 0 {
					t.Errorf("on stdout, which is the protocol's: %s", stdout.String())
				}
				if !strings.Contains(said, "userns") || !strings.Contains(said, "user.max_user_namespaces") {
					t.Errorf("neither the layer nor the remedy is named:\n%s", said)
				}
			})
		}
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// withoutUserNamespaces calls start on a thread whose children can make no
// user namespace. The thread ends with its goroutine.
func withoutUserNamespaces(t *testing.T, errno syscall.Errno, start func() error) error {
	t.Helper()
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4}, // the call's number
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 16, Size: 4}, // its flags, low half
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_NEWUSER, SkipFalse: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter goes with the thread
		filter := unix.SockFprog{Len: uint16(len(program)), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
		}
		if err == nil {
			err = start()
		}
		done <- err
	}()
	return <-done
}
