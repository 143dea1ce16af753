package srt

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// guestID is the only user and group inside.
const guestID = 1000

// nobody is the host's id of a guest when the server is run by root. Root's own would not
// do: the kernel does not count tasks of global root against RLIMIT_NPROC, and
// a sysctl asks for the id alone, not for capabilities.
const nobody = 65534

// idMap is the one line of a user namespace's map.
type idMap struct{ inside, outside int }

// mapIDs gives the user namespace of pid its ids. The server does it itself, not by
// SysProcAttr: os/exec loses two descriptors at every clone that fails with mappings
// asked for (Go 1.26), and then could not start a binary that root alone may execute.
func mapIDs(pid int, uid, gid idMap, setgroups bool) error {
	file := func(name, text string) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, name), []byte(text), 0)
	}
	line := func(m idMap) string { return fmt.Sprintf("%d %d 1", m.inside, m.outside) }
	if !setgroups { // or the kernel lets no ordinary user write the map
		if err := file("setgroups", "deny"); err != nil {
			return err
		}
	}
	if err := errors.Join(file("gid_map", line(gid)), file("uid_map", line(uid))); err != nil {
		return fmt.Errorf("%w; are %d and %d known in the server's own user namespace?", err, uid.outside, gid.outside)
	}
	return nil
}

// takeID makes the calling thread the guest's user. It keeps its capabilities: only a
// change away from an id 0 inside, which there is not, would cost them.
func takeID(dropGroups bool) error {
	// Raw, since the wrappers change all threads; only this one will be left.
	call := func(name string, nr, a, b, c uintptr) error {
		if _, _, e := unix.RawSyscall(nr, a, b, c); e != 0 {
			return fmt.Errorf("%s: %w", name, e)
		}
		return nil
	}
	if dropGroups {
		if err := call("setgroups", unix.SYS_SETGROUPS, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := call("setresgid", unix.SYS_SETRESGID, guestID, guestID, guestID); err != nil {
		return err
	}
	if err := call("setresuid", unix.SYS_SETRESUID, guestID, guestID, guestID); err != nil {
		return err
	}
	// The kernel takes both back when ids change. Without the first /proc/self would
	// belong to nobody here, the second ends this process with the server.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	return dieWithServer()
}

// dieWithServer asks for SIGKILL when the server's thread that started this process ends.
func dieWithServer() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("parent death signal: %w", err)
	}
	return nil
}
