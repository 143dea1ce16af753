package srt

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// insideChild is what srt executes behind its wall. It returns only if a layer could not be
// raised; otherwise it has become the guest's program.
func insideChild() int {
	if err := onFirstThread(verbInside); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox:", err)
		return 1
	}
	return runInside(insideConfig.become)
}

// become raises every layer in turn and execs.
func (c insideConfig) become(report int) error {
	unix.Umask(0o022)
	p := c.Policy
	p.supervisor, p.sharesIPC = os.Getpid(), true
	filter, err := seccompFilter(p)
	if err != nil {
		return err
	}
	fds, err := c.open()
	if err != nil {
		return failed(layerExec, err)
	}
	if err := unix.Chdir(c.Dir); err != nil {
		return failed(layerWorkspace, fmt.Errorf("enter %s: %w", c.Dir, err))
	}
	ruleset, flags, err := hostRuleset(p, c.Path, c.Kernel)
	if err != nil {
		return failed(layerLandlock, err)
	}
	if err := setRlimits(p); err != nil {
		return failed(layerRlimits, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed(layerCaps, fmt.Errorf("no_new_privs: %w", err))
	}
	if err := ll.LandlockRestrictSelf(ruleset, flags); err != nil {
		return failed(layerLandlock, err)
	}
	var b [1]byte
	if err := readFull(0, b[:]); err != nil || b[0] != goAhead {
		return failed(layerCgroup, fmt.Errorf("wait for the control group: got %q, %w", b[0], err))
	}
	if err := arrange(fds); err != nil {
		return failed(layerExec, err)
	}
	if err := unix.CloseRange(uint(len(fds)), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return failed(layerExec, fmt.Errorf("close on exec: %w", err))
	}
	if err := loadSeccomp(filter); err != nil {
		return failed(layerSeccomp, err)
	}
	if err := proveInside(); err != nil {
		return failed(layerCaps, err)
	}
	if _, err := unix.Write(report, []byte(ready)); err != nil {
		return failed(layerExec, err)
	}
	return failed(layerExec, fmt.Errorf("%s: %w", c.Path, syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)))
}

// hostRuleset is the ruleset of a guest who finds things where the host has them: what of
// the host's tree may be read at all is named, the program and the kernel's files among it.
func hostRuleset(p Policy, program, kernel string) (fd int, flags uint32, err error) {
	if _, err := landlockABI(); err != nil {
		return -1, 0, err
	}
	var rules []landlock.Rule
	allow := func(rights landlock.AccessFSSet, paths ...string) {
		for _, path := range paths {
			of := rights
			if fi, err := os.Stat(path); err != nil {
				continue // what is not there needs no rule
			} else if !fi.IsDir() {
				of &= deviceRight | execRights
			}
			rules = append(rules, landlock.PathAccess(of, path))
		}
	}
	allow(deviceRight, devicePaths()...)
	allow(readRights|writeRights, p.Tmp)
	allow(readRights|execRights, program)
	if p.bare() {
		for _, s := range p.Programs {
			of := readRights
			if s.Exec {
				of |= execRights
			}
			if s.Host != selfExe {
				allow(of, s.Guest)
			}
		}
	} else {
		allow(readRights, present(systemReads)...)
		allow(readRights|execRights, slices.Concat(systemDirs, p.ReadOnly)...)
		allow(readRights, kernel, "/proc")
		allow(readRights|writeRights, sharedMemory...)
	}
	for _, m := range p.shown() {
		of := readRights
		if m.Writable {
			of |= writeRights
		}
		if p.AllowExec {
			of |= execRights
		}
		allow(of, m.Host)
	}
	if p.AllowExec {
		allow(execRights, p.Tmp)
	}
	config := landlock.V11.BestEffort()
	config.HandledAccessNet = 0
	fd, flags, err = config.NewRulesetFD(rules...)
	if err == nil && fd < 0 {
		err = errors.New("the ruleset came out empty")
	}
	return fd, flags, err
}

// proveInside is proveConfined where srt has built the wall: the bounding set is the
// namespace's, which no_new_privs leaves without a use, and can't be emptied without
// capabilities.
func proveInside() error {
	if err := proveNoCaps(); err != nil {
		return err
	}
	for _, want := range []struct {
		name    string
		ask, is int
	}{
		{"no_new_privs", unix.PR_GET_NO_NEW_PRIVS, 1},
		{"the mode of seccomp", unix.PR_GET_SECCOMP, unix.SECCOMP_MODE_FILTER},
	} {
		if got, err := unix.PrctlRetInt(want.ask, 0, 0, 0, 0); err != nil || got != want.is {
			return fmt.Errorf("%s is %d, not %d (%v)", want.name, got, want.is, err)
		}
	}
	return nil
}
