package srt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// setRlimits bounds what one process of the guest may take. They are the floor that
// holds on every host; the session's sum is bounded by the cgroup, or by the server's
// watchdog where none can be written.
//
// RLIMIT_AS is left alone: it counts reservations, and allocators, thread pools and the
// Go runtime reserve far more than they use. RLIMIT_DATA counts what can be written.
func setRlimits(p Policy) error {
	limits := []struct {
		name       string
		resource   int
		soft, hard uint64
	}{
		// 1, not 0: where core_pattern is a pipe, the kernel starts the host's handler outside
		// the wall to read the dump whatever the limit, unless it is exactly 1; and for a file, 1
		// is too little. The filter keeps the guest from changing it.
		{"core", unix.RLIMIT_CORE, 1, 1},
		{"nice", unix.RLIMIT_NICE, 0, 0},
		{"rtprio", unix.RLIMIT_RTPRIO, 0, 0},
		{"msgqueue", unix.RLIMIT_MSGQUEUE, 0, 0}, // kernel memory that no other limit counts
		{"sigpending", unix.RLIMIT_SIGPENDING, 4096, 4096},
		{"memlock", unix.RLIMIT_MEMLOCK, 64 << 10, 64 << 10},
		{"stack", unix.RLIMIT_STACK, 8 * mib, 64 * mib},
		{"fsize", unix.RLIMIT_FSIZE, uint64(p.FileSize), uint64(p.FileSize)},
		{"nofile", unix.RLIMIT_NOFILE, uint64(p.OpenFiles), uint64(p.OpenFiles)},
		{"data", unix.RLIMIT_DATA, uint64(p.Memory), uint64(p.Memory)},
		// Counted for the user within this user namespace, so sessions don't share it; but
		// not for global root, which is why a server run by root maps another id.
		{"nproc", unix.RLIMIT_NPROC, uint64(p.Tasks), uint64(p.Tasks)},
	}
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Prlimit(0, l.resource, nil, &now); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		// Stricter than asked for, where the server itself is: raising is not ours to do.
		set := unix.Rlimit{Cur: min(l.soft, now.Max), Max: min(l.hard, now.Max)}
		if err := unix.Prlimit(0, l.resource, &set, nil); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}
