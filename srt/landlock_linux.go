package srt

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// minLandlock is the oldest Landlock that is taken for a layer: before ABI 3 (Linux 6.2)
// a file could be truncated through it.
const minLandlock = 3

const (
	readRights  = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	execRights  = landlock.AccessFSSet(ll.AccessFSExecute)
	deviceRight = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate)

	// Everything but devices, which no guest makes, ioctl on them, and a connect to sockets
	// of servers outside, which a mount may hold. Only from ABI 9 (Linux 7.1) on does the
	// kernel know the last; before, what findSockets finds is covered, and no more.
	writeRights = landlock.AccessFSSet(ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRefer |
		ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg |
		ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock)
)

// landlockABI is the version the kernel has; an error says that it has none.
func landlockABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, fmt.Errorf("this kernel was built without Landlock, or a container's seccomp profile hides it: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, errors.New("the kernel has Landlock switched off: add landlock to the kernel's lsm= parameter")
	case err != nil:
		return 0, fmt.Errorf("landlock_create_ruleset: %w", err)
	case abi < minLandlock:
		return abi, fmt.Errorf("the kernel has Landlock ABI %d, at least %d is needed: Linux 6.2 or later", abi, minLandlock)
	}
	return abi, nil
}

// landlockRuleset renders the root that has just been built as rules, so that a guest who
// got hold of a path or descriptor outside it, or of a mount wrongly left writable, still
// could not use it. It must be called after the pivot; applying it is the caller's.
//
// No place in /proc is writable, its own oom_score_adj included. TCP and UDP are not
// handled: the network namespace has loopback alone, and port rules would only take that
// away. Where the kernel knows them, signals and abstract sockets (ABI 6) and sockets with
// a path (ABI 9) are confined too: a guest reaches those of its own session alone.
func landlockRuleset(p Policy) (fd int, flags uint32, err error) {
	if _, err := landlockABI(); err != nil {
		return -1, 0, err
	}
	rules := []landlock.Rule{
		landlock.PathAccess(readRights, "/"), // the root is ours: whatever is in it is meant to be read
		landlock.PathAccess(execRights, p.executable()...).IgnoreIfMissing(),
		landlock.PathAccess(writeRights, "/tmp", "/dev/shm"),
		landlock.PathAccess(deviceRight, devicePaths()...),
	}
	if p.AllowExec {
		rules = append(rules, landlock.PathAccess(execRights, "/tmp"))
	}
	for _, m := range p.shown() {
		if m.Writable {
			rules = append(rules, landlock.PathAccess(writable(m.Guest), m.Guest))
		}
		if p.AllowExec {
			rules = append(rules, landlock.PathAccess(execRights, m.Guest))
		}
	}
	config := landlock.V11.BestEffort() // what the kernel has, from minLandlock on
	config.HandledAccessNet = 0
	fd, flags, err = config.NewRulesetFD(rules...)
	if err == nil && fd < 0 {
		err = errors.New("the ruleset came out empty")
	}
	return fd, flags, err
}

// executable are the places of the system that hold programs.
func (p Policy) executable() []string {
	if !p.bare() {
		return slices.Concat(systemDirs, p.ReadOnly)
	}
	var all []string
	for _, s := range p.Programs {
		if s.Exec {
			all = append(all, s.Guest)
		}
	}
	return all
}

// writable are the rights of a writable mount; the kernel refuses rights of directories
// on a plain file.
func writable(guest string) landlock.AccessFSSet {
	if fi, err := os.Stat(guest); err == nil && !fi.IsDir() {
		return writeRights & deviceRight
	}
	return writeRights
}
