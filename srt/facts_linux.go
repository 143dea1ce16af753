package srt

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostFacts lists what this host offers to the wall, for doctor: the name of each fact and
// its value. Nothing is started; whether namespaces are to be had in the end, a start
// tells. A nil n, where newNative failed, tells what it can.
func (n *native) hostFacts() [][2]string {
	memory := "not looked at"
	if n != nil {
		memory = n.memory
	}
	return [][2]string{
		{"kernel", kernelRelease()},
		{"user namespaces", usernsFact(os.ReadFile)},
		{"landlock", landlockFact()},
		{"seccomp", seccompFact()},
		{"limits", memory},
		{"server", serverFact()},
	}
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

// usernsFact tells the settings that commonly refuse user namespaces.
func usernsFact(read func(string) ([]byte, error)) string {
	var known []string
	for _, name := range []string{
		"user/max_user_namespaces", "kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns",
	} {
		if value, err := read("/proc/sys/" + name); err == nil {
			known = append(known, strings.ReplaceAll(name, "/", ".")+"="+strings.TrimSpace(string(value)))
		}
	}
	if len(known) == 0 {
		return "not built into this kernel"
	}
	return strings.Join(known, ", ")
}

func landlockFact() string {
	abi, err := landlockABI()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("ABI %d", abi)
}

func seccompFact() string {
	// With no program at all the kernel answers EFAULT if it has filters.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0); !errors.Is(err, syscall.EFAULT) {
		return fmt.Sprintf("no filters: %v", err)
	}
	filter, err := seccompFilter(Policy{})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("a filter of %d instructions", len(filter)/8)
}

// serverFact tells as whom the server runs, and so as whom a guest does.
func serverFact() string {
	switch {
	case os.Geteuid() != 0:
		return fmt.Sprintf("user %d; guests too", os.Geteuid())
	case capable(unix.CAP_SYS_ADMIN):
		return fmt.Sprintf("root; guests are %d", nobody)
	default:
		return fmt.Sprintf("root without CAP_SYS_ADMIN; guests are %d", nobody)
	}
}
