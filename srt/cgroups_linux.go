package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A control group is what bounds a session's memory as a whole: its processes together,
// shared mappings, memory files and the private /tmp and /dev/shm. It is used where the
// server may make groups below its own, which root may, and a service with delegation.
// Elsewhere RLIMIT_DATA bounds each process and the server's watchdog the sum.

// groupPrefix begins the name of every group a server makes:
// mcp-sandbox.<server's pid>.<its start time>.<number>. Pid and start time together tell
// a later server whether the maker is alive.
const groupPrefix = "mcp-sandbox."

// cgroups makes groups. It is safe for concurrent use.
type cgroups struct {
	fs     hierarchy
	files  *groupControls
	dirs   []string // where a group is made: v2 one directory; v1 that of memory, then, where mounted, of pids
	prefix string
	serial atomic.Int64
}

// findCgroups looks where groups can be made and proves it by making one. The sentence
// says what holds the limits of memory and tasks: these, or why not and what else.
func findCgroups(proc string) (*cgroups, string) { return findCgroupsIn(proc, cgroupfs{}) }

func findCgroupsIn(proc string, fs hierarchy) (*cgroups, string) {
	g, err := locateCgroups(proc)
	if err == nil {
		g.fs = fs
		if g.files == cgroupV2 {
			err = g.delegate()
		}
	}
	if err == nil {
		err = g.prove()
	}
	if err != nil && g != nil && len(g.dirs) > 1 { // given that of memory alone
		g.dirs = g.dirs[:1]
		err = g.prove()
	}
	if err != nil {
		return nil, fmt.Sprintf("memory by RLIMIT_DATA and watchdog (no writable cgroup: %v), tasks by RLIMIT_NPROC", err)
	}
	return g, g.String()
}

// String says which limits of a session are held here.
func (g *cgroups) String() string {
	where := fmt.Sprintf("cgroup v%d at %s", g.files.version, g.dirs[0])
	if g.files == cgroupV2 {
		where += " (whose limits were tested on an imitation of the kernel's tree alone)"
	}
	if g.countsTasks() {
		return "memory and tasks by " + where
	}
	return "memory by " + where + ", tasks by RLIMIT_NPROC"
}

// countsTasks reports whether the groups bound tasks too. RLIMIT_NPROC does in any case.
func (g *cgroups) countsTasks() bool {
	return len(g.dirs) > 1 || g.files == cgroupV2 && has(g.dirs[0], "cgroup.subtree_control", "pids")
}

// prove makes a group with limits and takes it away again.
func (g *cgroups) prove() error {
	c, err := g.create(Policy{}.withDefaults())
	if err != nil {
		return err
	}
	for _, dir := range c.dirs { // a directory may be given away without its files
		err = errors.Join(err, unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK))
	}
	if g.files == cgroupV2 { // who moves a process must be allowed to in the group above both places
		err = errors.Join(err, unix.Access(filepath.Join(g.dirs[0], "cgroup.procs"), unix.W_OK))
	}
	if err != nil {
		err = fmt.Errorf("processes can't be put into groups: cgroup.procs: %w", err)
	}
	return errors.Join(err, c.remove())
}

// create makes a group with the limits of p. A nil g makes none.
func (g *cgroups) create(p Policy) (_ *cgroup, err error) {
	if g == nil {
		return nil, nil
	}
	c := &cgroup{fs: g.fs, files: g.files}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	for _, parent := range g.dirs {
		dir, err := g.mkdir(parent)
		if err != nil {
			return nil, err
		}
		c.dirs = append(c.dirs, dir)
	}
	return c, c.files.limit(c, p)
}

// mkdir makes a group of a name that is free: another wall in this server counts too.
func (g *cgroups) mkdir(parent string) (string, error) {
	for {
		dir := filepath.Join(parent, g.prefix+strconv.FormatInt(g.serial.Add(1), 10))
		if err := g.fs.mkdir(dir); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}
