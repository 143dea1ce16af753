package srt

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// supervisorAllowance is added to the session's memory, for the supervisor and what the
// kernel accounts for the processes themselves: the limit a user sets is for their code.
const supervisorAllowance = 32 * mib

// groupControls is how one version of control groups is spoken to.
type groupControls struct {
	version int
	usage   string // the file that tells the memory accounted to a group
	events  string // the file with the count of oom_kill
	total   string // begins the names in memory.stat that mean a group with all below it
	limit   func(*cgroup, Policy) error
}

// cgroup is one session's group. A nil one stands for a host without.
type cgroup struct {
	fs    hierarchy
	files *groupControls
	dirs  []string // as in [cgroups]

	mu      sync.Mutex
	events  *os.File // the counter's file, open since it was first asked: every call asks
	removed bool
	kills   int64 // as counted when it was removed
}

// place puts pid into the group. It must not have run anything of the guest's yet: what
// it has allocated before stays with the server's group.
func (c *cgroup) place(pid int) error {
	if c == nil {
		return nil
	}
	for _, dir := range c.dirs {
		if err := c.fs.write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// open returns the group's directory for a clone directly into it, which v2 alone has; nil
// where the process must be placed instead.
func (c *cgroup) open() (*os.File, error) {
	if c == nil || c.files != cgroupV2 {
		return nil, nil
	}
	return os.OpenFile(c.dirs[0], unix.O_PATH|unix.O_DIRECTORY, 0)
}

// oomKills counts the processes that the kernel killed at the memory limit.
func (c *cgroup) oomKills() (int64, bool) {
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return c.kills, true
	}
	return c.countKills()
}

func (c *cgroup) countKills() (int64, bool) {
	if c.events == nil {
		var err error
		if c.events, err = os.Open(filepath.Join(c.dirs[0], c.files.events)); err != nil {
			return 0, false
		}
	}
	text := make([]byte, 4096)
	n, err := c.events.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	kills, err := field(string(text[:n]), "oom_kill")
	return kills, err == nil
}

// usage is the memory accounted to the group, in bytes, without the cache of files, which
// the kernel gives up before it kills. Memory files, /tmp and /dev/shm count: they can't be
// written back anywhere, and the kernel keeps them apart from the lists of files.
func (c *cgroup) usage() (int64, error) {
	text, err := os.ReadFile(filepath.Join(c.dirs[0], c.files.usage))
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join(c.dirs[0], "memory.stat"))
	if err != nil {
		return 0, err
	}
	for _, cache := range []string{"inactive_file", "active_file"} {
		n, err := field(string(stat), c.files.total+cache)
		if err != nil {
			return 0, err
		}
		used -= n
	}
	return max(used, 0), nil // the two files are not of one moment
}

// remove takes the group away. Its processes must be dead.
func (c *cgroup) remove() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return nil
	}
	if len(c.dirs) > 0 {
		c.kills, _ = c.countKills()
	}
	c.removed = true
	if c.events != nil {
		c.events.Close()
	}
	var errs []error
	for _, dir := range c.dirs {
		errs = append(errs, c.fs.rmdir(dir))
	}
	return errors.Join(errs...)
}
