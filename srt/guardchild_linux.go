package srt

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The first process of a wall without namespaces goes through three executions of this
// binary: be-child confine raises the outer domain, since that of a thread comes to be that
// of a whole process by an exec alone; be-child guard, in it, is the guardian, which starts
// be-child enter, which becomes the guest's program.

// What the server gives be-child confine, and that the guardian.
const (
	guardConfigFD = 3 // a guardConfig: first a pipe, then a file in memory
	guardReportFD = 4 // ready and a number, or a childReport; the exec of the guest's program closes it
	guardLifeFD   = 5 // the other end is the server's alone: its end is the session's
	guardInnerFD  = 6 // the ruleset of the inner domain; at first nothing
	guardExtraFD  = 7 // the first of command.Extra
)

// What be-child enter has.
const (
	enterConfigFD = 3
	enterReportFD = 4
	enterInnerFD  = 5
	enterExtraFD  = 6

	enterFree = enterExtraFD + maxExtra // above all that is handed on
)

const (
	verbConfine = "confine"
	verbGuard   = "guard"
	verbEnter   = "enter"
)

// guardConfig is all that the three are told.
type guardConfig struct {
	Domain    domain
	Tasks     int    // RLIMIT_NPROC, which counts all that the user runs
	Filter    []byte // the assembled seccomp program
	Path, Dir string
	Args, Env []string
	Extra     int // descriptors to pass on

	// Supervisor says that the program raises the inner domain by itself, in what it forks.
	// After Extra it gets its own oom_score_adj, open for writing, and the ruleset.
	Supervisor bool
}

// confineChild returns only if the outer domain could not be raised; otherwise it has become the guardian.
func confineChild() int {
	err := onFirstThread(verbConfine)
	var config guardConfig
	if err == nil {
		err = readConfig(&config)
	}
	if err == nil {
		err = becomeGuardian(config)
	}
	return reportFailure(guardReportFD, err)
}

func becomeGuardian(config guardConfig) error {
	unix.Umask(0o022) // what the guest makes does not depend on how the server was started
	outer, flags, err := config.Domain.outer()
	if err != nil {
		return failed(layerLandlock, err)
	}
	inner, _, err := config.Domain.inner()
	if err != nil {
		return failed(layerLandlock, err)
	}
	text, err := memoryFile(config)
	if err != nil {
		return failed(layerExec, err)
	}
	p := config.Domain.Policy
	p.Tasks = config.Tasks
	if err := setRlimits(p); err != nil {
		return failed(layerRlimits, err)
	}
	if err := dropOwnCaps(); err != nil {
		return failed(layerCaps, err)
	}
	if err := ll.LandlockRestrictSelf(outer, flags); err != nil {
		return failed(layerLandlock, err)
	}
	if err := proveScoped(); err != nil {
		return failed(layerLandlock, err)
	}
	if err := awaitGoAhead(); err != nil {
		return failed(layerCgroup, err)
	}
	for _, move := range [][2]int{{text, guardConfigFD}, {inner, guardInnerFD}} {
		if err := unix.Dup3(move[0], move[1], 0); err != nil {
			return failed(layerExec, fmt.Errorf("descriptor %d: %w", move[1], err))
		}
	}
	if err := unix.CloseRange(uint(guardExtraFD+config.Extra), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return failed(layerExec, err)
	}
	err = syscall.Exec(selfExe, []string{"mcp-sandbox", "be-child", verbGuard}, []string{})
	return failed(layerExec, fmt.Errorf("%s: %w", selfExe, err))
}

// memoryFile holds the configuration for the executions to come. Its descriptor is above
// all that is handed on.
func memoryFile(config guardConfig) (int, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("mcp-sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	for rest := text; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			return -1, fmt.Errorf("the configuration: %w", err)
		}
		rest = rest[n:]
	}
	return fd, nil
}

// recall reads what memoryFile wrote.
func recall(fd int) (config guardConfig, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return config, err
	}
	text := make([]byte, st.Size)
	if n, err := unix.Pread(fd, text, 0); err != nil || n != len(text) {
		return config, fmt.Errorf("read the configuration: %d bytes of %d, %v", n, len(text), err)
	}
	return config, json.Unmarshal(text, &config)
}

// dropOwnCaps empties the sets that an ordinary user's process may have. The bounding set
// stays, which only a privileged one could empty: with no_new_privs it is of no use.
func dropOwnCaps() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient set: %w", err)
	}
	return emptyCaps()
}

// enterChild returns only if the guest's program could not be executed.
func enterChild() int {
	report, err := unix.FcntlInt(enterReportFD, unix.F_DUPFD_CLOEXEC, enterFree)
	if err != nil {
		return reportFailure(enterReportFD, err)
	}
	config, err := recall(enterConfigFD)
	if err == nil {
		err = config.enter(report)
	}
	return reportFailure(report, err)
}

// enter takes the last steps and becomes the guest's program.
func (c guardConfig) enter(report int) error {
	guardian := os.Getppid()
	if err := dieWithServer(); err != nil {
		return failed(layerExec, err)
	}
	if os.Getppid() != guardian || guardian == 1 {
		return failed(layerExec, errors.New("the guardian is gone"))
	}
	if err := unix.Chdir(c.Dir); err != nil {
		return failed(layerWorkspace, fmt.Errorf("enter %s: %w", c.Dir, err))
	}
	inner, err := unix.FcntlInt(enterInnerFD, unix.F_DUPFD_CLOEXEC, enterFree)
	if err != nil {
		return failed(layerExec, err)
	}
	pass := 0
	for ; pass < c.Extra; pass++ { // upwards: each goes to a lower number than it has
		if err := unix.Dup3(enterExtraFD+pass, guestExtraFD+pass, 0); err != nil {
			return failed(layerExec, fmt.Errorf("descriptor %d: %w", pass, err))
		}
	}
	if c.Supervisor {
		oom, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return failed(layerProc, fmt.Errorf("oom_score_adj: %w", err))
		}
		for _, fd := range []int{oom, inner} {
			err := unix.Dup3(fd, guestExtraFD+pass, 0)
			if err != nil {
				return failed(layerExec, err)
			}
			pass++
		}
		if err := enclose(); err != nil {
			return failed(layerLandlock, err)
		}
	} else if err := ll.LandlockRestrictSelf(inner, 0); err != nil {
		return failed(layerLandlock, err)
	}
	if err := unix.CloseRange(uint(guestExtraFD+pass), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return failed(layerExec, err)
	}
	if err := loadSeccomp(c.Filter); err != nil {
		return failed(layerSeccomp, err)
	}
	if err := proveUnprivileged(); err != nil {
		return failed(layerCaps, err)
	}
	if _, err := unix.Write(report, []byte(ready+strconv.Itoa(os.Getpid()))); err != nil {
		return failed(layerExec, err)
	}
	err = syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)
	return failed(layerExec, fmt.Errorf("%s: %w", c.Path, err))
}

// enclose keeps the signals of this process, and of all that it will start, from the guardian:
// the supervisor's kill(-1) ends what it has started, and nothing else.
func enclose() error {
	fd, flags, err := landlock.Config{Scoped: landlock.V6.Scoped}.NewRulesetFD()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return err
	}
	return proveScoped()
}

// proveUnprivileged is proveConfined for a process that never had a privilege.
func proveUnprivileged() error {
	if err := proveNoCaps(); err != nil {
		return err
	}
	return provePrctl(unix.PR_GET_NO_NEW_PRIVS, 1, unix.PR_GET_SECCOMP, unix.SECCOMP_MODE_FILTER)
}

// provePrctl compares what the kernel says with what it must; asked are pairs of both.
func provePrctl(asked ...int) error {
	for i := 0; i < len(asked); i += 2 {
		if got, err := unix.PrctlRetInt(asked[i], 0, 0, 0, 0); err != nil || got != asked[i+1] {
			return fmt.Errorf("prctl %d is %d, not %d (%v)", asked[i], got, asked[i+1], err)
		}
	}
	return nil
}
