//go:build !linux

package srt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread are the places of people and their data, and of what other programs keep: of the
// system's own libraries no complete list is known here.
var unread = []string{
	"/Users", "/Volumes", "/Network", "/home", "/opt", "/srv", "/private/tmp", "/private/var/folders", "/private/var/root",
	"/private/var/db", "/private/var/log", "/private/var/run", "/private/var/spool", "/Library/Keychains", "/Library/Application Support",
}

// systemReads are what of these a guest sees all the same.
var systemReads []string

// sharedMemory has no place among the files.
var sharedMemory []string

func canConfine() error { return nil }

func namespaceRemedy() string { return "" }

// findInside believes the child: there are no PID namespaces, and nothing of the guest's runs yet.
func findInside(_, number int, _ string) (kin, error) {
	if number <= 1 {
		return kin{}, fmt.Errorf("the child inside says that it is process %d", number)
	}
	return kin{first: number}, nil
}

func (*srtEnds) take(kin) error { return nil }

func proxySocket() (int, error) { return -1, errNoProxy }

func (*srtStart) openProxy(*cage, *srtEnds, int, int) error { return errNoProxy }

var errNoProxy = errors.New("on this system the server's proxy can't listen inside")

func killHandle(*os.File) {}

// press kills the keeper's session as far as it is one group.
func (e *srtEnds) press() { _ = syscall.Kill(-e.keeper, syscall.SIGKILL) }

func adoptOrphans() error { return nil }

// endDescendants has nothing to do: the group of srt has been killed, and what has left it
// can't be found.
func endDescendants() {}

func dup(from, to int) error { return unix.Dup2(from, to) }

// BeChild is the hidden half of the binary: cmd calls it with what follows "be-child" on
// the command line and exits with what it returns. Called by a person it does no harm.
func BeChild(args []string) int {
	runtime.LockOSThread()
	switch {
	case len(args) == 1 && args[0] == verbInside:
		return runInside(insideConfig.become)
	case len(args) > 1 && args[0] == verbKeep:
		return keepChild(args[1:])
	}
	fmt.Fprintln(os.Stderr, "be-child is for mcp-sandbox itself")
	return 2
}

// become sets the limits that this system has, and execs.
func (c insideConfig) become(report int) error {
	unix.Umask(0o022)
	fds, err := c.open()
	if err != nil {
		return failed(layerExec, err)
	}
	if err := unix.Chdir(c.Dir); err != nil {
		return failed(layerWorkspace, fmt.Errorf("enter %s: %w", c.Dir, err))
	}
	p := c.Policy
	for _, l := range []struct {
		name     string
		resource int
		limit    uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"fsize", unix.RLIMIT_FSIZE, uint64(p.FileSize)},
		{"nofile", unix.RLIMIT_NOFILE, uint64(p.OpenFiles)},
		{"data", unix.RLIMIT_DATA, uint64(p.Memory)},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return failed(layerRlimits, fmt.Errorf("%s: %w", l.name, err))
		}
		set := unix.Rlimit{Cur: min(l.limit, now.Max), Max: min(l.limit, now.Max)}
		if err := unix.Setrlimit(l.resource, &set); err != nil {
			return failed(layerRlimits, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	var b [1]byte
	if err := readFull(0, b[:]); err != nil || b[0] != goAhead {
		return failed(layerExec, errors.Join(errors.New("the server does not go ahead"), err))
	}
	if err := arrange(fds); err != nil {
		return failed(layerExec, err)
	}
	for fd := len(fds); fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
	if _, err := unix.Write(report, []byte(ready)); err != nil {
		return failed(layerExec, err)
	}
	return failed(layerExec, fmt.Errorf("%s: %w", c.Path, syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)))
}
