package srt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// The server's half and the child's half agree on these descriptors. What the guest
// inherits follows, then the detached mounts that the server made.
const (
	childConfigFD = 3 // the child reads a childConfig, and later goAhead
	childReportFD = 4 // the child writes ready, or a childReport; the exec closes it
	childExtraFD  = 5 // the first of command.Extra
	guestExtraFD  = 3 // where the guest finds it
)

// childConfig is all the child is told. It comes by a pipe: arguments and environments
// can be read by others on the host, and the environment of PID 1 by the guest.
type childConfig struct {
	Policy     Policy
	Sources    []source
	Files      map[string][]byte
	Filter     []byte // the assembled seccomp program
	DropGroups bool   // the server could, so it must
	Path, Dir  string
	Args, Env  []string
	Extra      int  // descriptors to pass on
	OOMFD      bool // and after them one of /proc/self/oom_score_adj
	SocketsFD  int  // where TCP sockets of this network are sent; 0 = nowhere
	ProxyFD    int  // where the socket is sent on which the server's proxy listens; 0 = nowhere
}

// BeChild is the hidden half of the binary: cmd calls it with what follows "be-child" on
// the command line and exits with what it returns. Called by a person it does no harm.
func BeChild(args []string) int {
	if len(args) == 1 && args[0] == verbWarden {
		return wardenChild()
	}
	// Namespaces, capabilities, Landlock and seccomp belong to a thread. This one builds the
	// wall and execs; the others end with the exec.
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // a life of milliseconds

	switch {
	case len(args) == 1 && args[0] == verbCage:
		return cageChild()
	case len(args) == 1 && args[0] == verbConfine:
		return confineChild()
	case len(args) == 1 && args[0] == verbGuard:
		return guardChild()
	case len(args) == 1 && args[0] == verbEnter:
		return enterChild()
	case len(args) == 1 && args[0] == verbInside:
		return insideChild()
	case len(args) > 1 && args[0] == verbKeep:
		return keepChild(args[1:])
	case len(args) == 1 && args[0] == verbIdle:
		io.Copy(io.Discard, os.Stdin) // holds its namespace until the server has it
		return 0
	}
	fmt.Fprintln(os.Stderr, "be-child is for mcp-sandbox itself")
	return 2
}

const (
	verbCage = "cage"
	verbIdle = "idle"
)

// onFirstThread starts this process anew if the calling thread is not its first, which the
// runtime promises to nobody. /proc/self speaks of the first thread alone, whose ids would
// not have changed. A descriptor of /proc/thread-self would be one of a thread that the
// last exec makes another.
func onFirstThread(verb string) error {
	if unix.Gettid() == unix.Getpid() {
		return nil
	}
	return syscall.Exec("/proc/self/exe", []string{"mcp-sandbox", "be-child", verb}, nil)
}

// cageChild returns only if the wall could not be built; otherwise it has become the guest.
func cageChild() int {
	var config childConfig
	err := onFirstThread(verbCage)
	if err == nil {
		err = readConfig(&config)
	}
	report := childReportFD
	if err == nil {
		report, err = setAside(config)
	}
	if err == nil {
		err = becomeGuest(config, report)
	}
	return reportFailure(report, err)
}

// reportFailure tells the server why the wall does not stand, and returns the exit code.
func reportFailure(report int, err error) int {
	var layer *LayerError
	if !errors.As(err, &layer) {
		layer = &LayerError{Layer: layerExec, Err: err}
	}
	r := childReport{Layer: layer.Layer, Error: layer.Err.Error(), Remedy: layer.Remedy}
	errors.As(layer.Err, &r.Errno)
	out, _ := json.Marshal(r) // strings and a number: can't fail
	unix.Write(report, out)   // nobody is left to tell if this fails; the server sees the end without ready
	return 1
}

// readConfig blocks until the server has mapped this process's ids: before that the server
// sends nothing.
func readConfig(config any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the configuration: %w", err)
		}
	}()
	return readJSON(childConfigFD, config)
}

// awaitGoAhead blocks until the server has put this process into its control group.
func awaitGoAhead() error {
	var b [1]byte
	if err := readFull(childConfigFD, b[:]); err != nil {
		return fmt.Errorf("wait for the control group: %w", err)
	}
	if b[0] != goAhead {
		return fmt.Errorf("wait for the control group: got %q", b[0])
	}
	return nil
}

// setAside moves the report out of the way of the guest's numbers.
func setAside(config childConfig) (int, error) {
	fd, err := unix.FcntlInt(childReportFD, unix.F_DUPFD_CLOEXEC, config.firstFree())
	if err != nil {
		return childReportFD, fmt.Errorf("move the report: %w", err)
	}
	return fd, nil
}

// firstFree is above every number that was inherited or will be handed on.
func (c childConfig) firstFree() int {
	return max(childExtraFD+c.Extra+len(c.Sources), c.SocketsFD, c.ProxyFD) + 1
}

// becomeGuest raises every layer in turn and execs. Each step needs what the one before
// has not yet taken away.
func becomeGuest(config childConfig, report int) error {
	p := config.Policy
	if err := takeID(config.DropGroups); err != nil {
		return userns(err)
	}
	unix.Umask(0o022) // what the guest makes does not depend on how the server was started
	if err := buildRoot(p, config.Sources, config.Files); err != nil {
		return err
	}
	if !p.bare() { // where no socket can be made, nothing would use it
		if err := raiseLoopback(); err != nil {
			return failed(layerNetwork, err)
		}
		if err := config.sendSockets(); err != nil {
			return failed(layerNetwork, err)
		}
		if err := config.sendListener(); err != nil {
			return failed(layerNetwork, err)
		}
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return failed(layerMounts, fmt.Errorf("sethostname: %w", err))
	}
	// After the pivot, so that a workspace is entered where the guest sees it: a directory
	// entered earlier would be one of the host's tree.
	if err := unix.Chdir(config.Dir); err != nil {
		err = fmt.Errorf("enter %s: %w", config.Dir, err)
		if errors.Is(err, unix.EACCES) {
			return &LayerError{Layer: layerWorkspace, Err: err, Remedy: closedRemedy}
		}
		return failed(layerWorkspace, err)
	}
	// Before Landlock, which leaves no place in /proc writable.
	oom, err := config.openOOM()
	if err != nil {
		return failed(layerProc, err)
	}
	if err := confine(p); err != nil {
		return err
	}
	if err := awaitGoAhead(); err != nil {
		return failed(layerCgroup, err)
	}
	if err := config.arrangeFDs(oom); err != nil {
		return failed(layerExec, err)
	}
	return config.exec(report)
}

// confine takes away what the wall's builder still had: resources, rights, capabilities.
func confine(p Policy) error {
	ruleset, flags, err := landlockRuleset(p)
	if err != nil {
		return failed(layerLandlock, err)
	}
	if err := setRlimits(p); err != nil {
		return failed(layerRlimits, err)
	}
	if err := dropCaps(); err != nil {
		return failed(layerCaps, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return failed(layerCaps, fmt.Errorf("no_new_privs: %w", err))
	}
	if err := ll.LandlockRestrictSelf(ruleset, flags); err != nil {
		return failed(layerLandlock, err)
	}
	return nil
}

// openOOM opens this process's own oom_score_adj, which the supervisor will be. It stays
// usable across Landlock and the exec; the guest's worker has no way to another.
func (c childConfig) openOOM() (int, error) {
	if !c.OOMFD {
		return -1, nil
	}
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("oom_score_adj: %w", err)
	}
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, c.firstFree())
}

// arrangeFDs puts what the guest gets at 3 and up, and marks everything else to be closed
// by the exec.
func (c childConfig) arrangeFDs(oom int) error {
	pass := 0
	for ; pass < c.Extra; pass++ { // upwards: each goes to a lower number than it has
		if err := unix.Dup3(childExtraFD+pass, guestExtraFD+pass, 0); err != nil {
			return fmt.Errorf("descriptor %d: %w", pass, err)
		}
	}
	if oom >= 0 {
		if err := unix.Dup3(oom, guestExtraFD+pass, 0); err != nil {
			return fmt.Errorf("descriptor of oom_score_adj: %w", err)
		}
		pass++
	}
	return unix.CloseRange(uint(guestExtraFD+pass), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// exec takes the last steps and becomes the guest's program.
func (c childConfig) exec(report int) error {
	if err := dieWithServer(); err != nil { // again: credentials have changed since
		return failed(layerExec, err)
	}
	if orphaned(report) { // the server died before that could take effect
		return failed(layerExec, errors.New("the server is gone"))
	}
	if err := loadSeccomp(c.Filter); err != nil {
		return failed(layerSeccomp, err)
	}
	if err := proveConfined(); err != nil {
		return failed(layerCaps, err)
	}
	if _, err := unix.Write(report, []byte(ready)); err != nil {
		return failed(layerExec, err)
	}
	err := syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)
	return failed(layerExec, fmt.Errorf("%s: %w", c.Path, err))
}

// orphaned reports whether nobody holds the other end of the report any more. getppid
// can't tell: a parent outside the PID namespace is 0, dead or alive.
func orphaned(report int) bool {
	fds := []unix.PollFd{{Fd: int32(report)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
