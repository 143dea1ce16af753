package main_test

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denial is a system call that is answered in the kernel's place, with an error.
type denial struct {
	nr    uint32
	errno syscall.Errno
	arg   uint32 // an offset in struct seccomp_data; 0 = whatever the arguments
	is    uint32 // it has one of these bits,
	equal bool   // or is that
}

const argument0 = 16

func calls(errno syscall.Errno, numbers ...uint32) (all []denial) {
	for _, nr := range numbers {
		all = append(all, denial{nr: nr, errno: errno})
	}
	return all
}

func namespaces(errno syscall.Errno) []denial {
	const flags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	return []denial{{nr: unix.SYS_CLONE, errno: errno, arg: argument0, is: flags}, {nr: unix.SYS_UNSHARE, errno: errno}, {nr: unix.SYS_CLONE3, errno: unix.ENOSYS}}
}

func prctl(errno syscall.Errno, option uint32) []denial {
	return []denial{{nr: unix.SYS_PRCTL, errno: errno, arg: argument0, is: option, equal: true}}
}

// denied calls start where its children meet the denials.
func denied(t *testing.T, deny []denial, start func() error) error {
	t.Helper()
	if len(deny) == 0 {
		return start()
	}
	var code []bpf.Instruction
	for _, d := range deny {
		code = append(code, bpf.LoadAbsolute{Off: 0, Size: 4})
		refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(d.errno)}
		if d.arg == 0 {
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: d.nr, SkipFalse: 1}, refuse)
			continue
		}
		test := bpf.JumpBitsSet
		if d.equal {
			test = bpf.JumpEqual
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: d.nr, SkipFalse: 3},
			bpf.LoadAbsolute{Off: d.arg, Size: 4}, bpf.JumpIf{Cond: test, Val: d.is, SkipFalse: 1}, refuse)
	}
	return filtered(t, append(code, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}), start)
}

// filtered calls start on a thread whose children meet the filter. The thread ends with its
// goroutine.
func filtered(t *testing.T, code []bpf.Instruction, start func() error) error {
	t.Helper()
	program, err := bpf.Assemble(code)
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
