package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Where there are no namespaces, Landlock is the wall, by domains, one in the other:
//
//   - the outer one is the guardian's. Processes of the host can't be signalled from it, so
//     that the guardian's kill(-1) ends the session and nothing else.
//   - the supervisor's may do the same, but for signals to the guardian.
//   - the inner one is the guest's. It has no /proc but a few files about the machine, and
//     its signals reach neither the guardian nor the supervisor.

// minScoped is the oldest Landlock that can be a wall by itself: before ABI 6 (Linux 6.12)
// a guest could signal every process of the server's user, the server first.
const minScoped = 6

// scopedABI says why this kernel's Landlock is not enough without namespaces.
func scopedABI() error {
	abi, err := landlockABI()
	if err == nil && abi < minScoped {
		err = fmt.Errorf("the kernel has Landlock ABI %d; without namespaces at least %d is needed (Linux 6.12), "+
			"or a guest could signal every process of this user", abi, minScoped)
	}
	return err
}

// procFiles tell of the machine what its programs ask for, and nothing of who runs on it.
var procFiles = []string{
	"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version",
}

// domain is what a guest without namespaces may reach, by the host's own paths.
type domain struct {
	Policy Policy
	Places []source // the workspace and the mounts, looked at once more before they become rules
	Read   []string // further directories of the session's own, to be read
	Write  []string // and to be written
}

// outer is the ruleset of the guardian and the supervisor: all that the guest may reach,
// this very binary, and /proc, in which the supervisor finds what the guest has started.
func (d domain) outer() (fd int, flags uint32, err error) {
	return d.ruleset(
		landlock.PathAccess(readRights|ll.AccessFSWriteFile, "/proc"), // to write its own oom_score_adj
		landlock.PathAccess(execRights|ll.AccessFSReadFile, selfExe),
	)
}

// inner is the ruleset of whatever runs for the guest.
func (d domain) inner() (fd int, flags uint32, err error) {
	if d.Policy.bare() {
		return d.ruleset(landlock.PathAccess(execRights|ll.AccessFSReadFile, selfExe)) // which starts the commands
	}
	return d.ruleset(landlock.PathAccess(ll.AccessFSReadFile, procFiles...).IgnoreIfMissing())
}

// ruleset denies all TCP, abstract sockets and signals beyond the domain, and in the tree of
// files whatever no rule allows.
func (d domain) ruleset(rules ...landlock.Rule) (fd int, flags uint32, err error) {
	if err := scopedABI(); err != nil {
		return -1, 0, err
	}
	rules = append(rules, landlock.PathAccess(deviceRight, devicePaths()...))
	rules = append(rules, d.system()...)
	for _, dir := range d.Read {
		rules = append(rules, landlock.PathAccess(readRights, dir))
	}
	for _, dir := range d.Write {
		rules = append(rules, landlock.PathAccess(d.rights(readRights|writeRights), dir))
	}
	var opened []int
	defer func() {
		for _, at := range opened {
			unix.Close(at)
		}
	}()
	for _, s := range d.Places {
		at, st, err := s.open()
		if err != nil {
			return -1, 0, s.untaken(err)
		}
		opened = append(opened, at)
		rights := readRights
		if s.Writable {
			rights |= writeRights
		}
		rights = d.rights(rights)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= deviceRight | execRights // the kernel refuses rights of directories on a plain file
		}
		rules = append(rules, landlock.PathAccess(rights, fmt.Sprintf("/proc/self/fd/%d", at)))
	}
	fd, flags, err = landlock.V11.BestEffort().NewRulesetFD(rules...) // what the kernel has, from minScoped on
	if err == nil && fd < 0 {
		err = errors.New("the ruleset came out empty")
	}
	return fd, flags, err
}

// rights adds the right to execute, if the policy gives it.
func (d domain) rights(r landlock.AccessFSSet) landlock.AccessFSSet {
	if d.Policy.AllowExec {
		r |= execRights
	}
	return r
}

// system is the part of the host's system that the guest sees.
func (d domain) system() []landlock.Rule {
	if d.Policy.bare() {
		var rules []landlock.Rule
		for _, s := range d.Policy.Programs {
			if s.Host == selfExe {
				continue
			}
			rights := readRights
			if s.Exec {
				rights |= execRights
			}
			if fi, err := os.Stat(s.Host); err == nil && !fi.IsDir() {
				rights &= deviceRight | execRights
			}
			rules = append(rules, landlock.PathAccess(rights, s.Host))
		}
		return rules
	}
	rules := []landlock.Rule{
		landlock.PathAccess(readRights|execRights, systemDirs...).IgnoreIfMissing(),
		landlock.PathAccess(readRights|execRights, d.Policy.ReadOnly...),
	}
	for _, pattern := range etc {
		found, _ := filepath.Glob(pattern) // the patterns are constants; ErrBadPattern can't be
		for _, f := range found {
			rights := readRights
			if fi, err := os.Stat(f); err == nil && !fi.IsDir() {
				rights = ll.AccessFSReadFile
			}
			rules = append(rules, landlock.PathAccess(rights, f).IgnoreIfMissing())
		}
	}
	return rules
}

// proveScoped makes sure that this process is in a domain that its parent is not in: its
// signals reach no process of the host's, though the user is the same, and it can't list the
// root. Without that, kill(-1) would end all that the user runs.
func proveScoped() error {
	if err := unix.Kill(os.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("signals are not confined: %v", err)
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	if !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("files are not confined: %v", err)
	}
	return nil
}
