package srt

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// nativeEnds ends a PID namespace by its first process: when the kernel lets that be
// reaped, it has killed and reaped all the others.
type nativeEnds struct{ cmd *exec.Cmd }

// nativeCage takes over a started be-child, PID 1 of its namespace.
func nativeCage(cmd *exec.Cmd, group *cgroup, limit int64) *cage {
	return cageOf(cmd, kin{first: cmd.Process.Pid, namespace: true, disks: []string{guestWorkspace}}, nativeEnds{cmd}, group, limit)
}

func (e nativeEnds) kill() error {
	if err := e.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// press kills the others, too: PID 1 ends them once it runs, and on a starved machine they
// are in its way.
func (e nativeEnds) press() {
	for _, pid := range descendants(e.cmd.Process.Pid, nil) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is what we want
	}
}

func (nativeEnds) clear() error { return nil }
