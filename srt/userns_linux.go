package srt

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// startError sorts the error of a clone and exec. The kernel, a container's filter and a
// distribution's policy refuse user namespaces in different words, and each has another
// remedy.
func startError(err error) error {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EPERM, syscall.EINVAL, syscall.ENOSYS, syscall.EUSERS} {
		if errors.Is(err, e) {
			return userns(err)
		}
	}
	return failed(layerExec, err)
}

// userns says that the host gives no user namespaces, or none of use, and what to do.
func userns(err error) error {
	return &LayerError{Layer: layerUserns, Err: err, Remedy: usernsRemedy(os.ReadFile)}
}

// usernsRemedy looks which of the known causes is there. Where none shows, all are named:
// the one that can't be seen from here is a container's filter.
func usernsRemedy(read func(string) ([]byte, error)) string {
	is := func(file, value string) bool {
		text, err := read(file)
		return err == nil && strings.TrimSpace(string(text)) == value
	}
	var known []string
	if is("/proc/sys/user/max_user_namespaces", "0") {
		known = append(known, "set the sysctl user.max_user_namespaces above 0")
	}
	if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
		known = append(known, "set the sysctl kernel.unprivileged_userns_clone to 1")
	}
	if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
		known = append(known, "Ubuntu 24.04 and later: set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, "+
			"or load the AppArmor profile packaging/apparmor/mcp-sandbox")
	}
	if mounts, err := read("/proc/self/mountinfo"); err == nil && !hasRoot(string(mounts)) {
		known = append(known, "the server runs in a chroot, where the kernel gives nobody user namespaces: "+
			"use what changes the root by pivot_root: bwrap, systemd-nspawn, a container")
	}
	if len(known) > 0 {
		return strings.Join(known, "; ")
	}
	return "user namespaces are needed: sysctl user.max_user_namespaces high enough; " +
		"kernel.unprivileged_userns_clone=1 on Debian; on Ubuntu the AppArmor profile packaging/apparmor/mcp-sandbox, or " +
		"kernel.apparmor_restrict_unprivileged_userns=0; not in a chroot; " +
		"in a container " + containerRemedy + ", or --cap-add SYS_ADMIN"
}

// hasRoot reports whether a mount hangs at / of those that a process sees: not so in a chroot.
func hasRoot(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" {
			return true
		}
	}
	return false
}
