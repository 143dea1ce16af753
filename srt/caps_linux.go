package srt

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// buildCaps are the capabilities the wall's first process needs in its own user
// namespace: mounts and the host name, loopback, becoming the guest's user, and giving
// all of them up for good.
var buildCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP}

// securebits that a guest can't take back: uid 0 means nothing, ids changed keep no
// capabilities, and none can be made ambient. Each with its lock.
const securebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// dropCaps empties every capability set of the calling thread. It is the thread that
// execs the guest, so it is the only one whose sets matter.
func dropCaps() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient set: %w", err)
	}
	for c := uintptr(0); c < 64; c++ {
		switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
		case err == nil:
		case errors.Is(err, unix.EINVAL) && c > 0: // one past the last capability of this kernel
			c = 64
		default:
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0); err != nil {
		return fmt.Errorf("set securebits: %w", err)
	}
	return emptyCaps()
}

// capable reports whether this process has the capability, in its own user namespace.
func capable(capability uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

// proveConfined reads back from the kernel what the steps before claim to have done, for
// the thread that is about to exec. It is the last word before the guest runs. It asks by
// system calls: not every guest has a /proc.
func proveConfined() error {
	if err := proveNoCaps(); err != nil {
		return err
	}
	for c := 0; c < 64; c++ {
		bounding, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // one past the last capability of this kernel
		}
		if err != nil || bounding != 0 {
			return fmt.Errorf("capability %d is in the bounding set (%d, %v)", c, bounding, err)
		}
		ambient, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, uintptr(c), 0, 0)
		if err != nil || ambient != 0 {
			return fmt.Errorf("capability %d is in the ambient set (%d, %v)", c, ambient, err)
		}
	}
	for _, want := range []struct {
		name    string
		ask, is int
	}{
		{"no_new_privs", unix.PR_GET_NO_NEW_PRIVS, 1},
		{"securebits", unix.PR_GET_SECUREBITS, securebits},
		{"the mode of seccomp", unix.PR_GET_SECCOMP, unix.SECCOMP_MODE_FILTER},
	} {
		if got, err := unix.PrctlRetInt(want.ask, 0, 0, 0, 0); err != nil || got != want.is {
			return fmt.Errorf("%s is %d, not %d (%v)", want.name, got, want.is, err)
		}
	}
	return nil
}

// emptyCaps empties the effective, permitted and inheritable sets.
func emptyCaps() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// proveNoCaps reads back that these sets are empty.
func proveNoCaps() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if sets != [2]unix.CapUserData{} {
		return fmt.Errorf("capabilities %x are left", sets)
	}
	return nil
}
