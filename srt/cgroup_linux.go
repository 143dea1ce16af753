package srt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A control group is what bounds a session's memory as a whole: its processes together,
// shared mappings, memory files and the private /tmp and /dev/shm. It is used where the
// server may make groups below its own, which root may, and a service with delegation.
// Elsewhere RLIMIT_DATA bounds each process and the server's watchdog the sum.

// supervisorAllowance is added to the session's memory, for the supervisor and what the
// kernel accounts for the processes themselves: the limit a user sets is for their code.
const supervisorAllowance = 32 * mib

// groupPrefix begins the name of every group a server makes:
// mcp-sandbox.<server's pid>.<its start time>.<number>. Pid and start time together tell
// a later server whether the maker is alive.
const groupPrefix = "mcp-sandbox."

// serverLeaf ends the name of the group a server moves itself into; see [cgroups.delegate].
const serverLeaf = ".server"

// cgroups makes groups. It is safe for concurrent use.
type cgroups struct {
	version int
	dirs    []string // where a group is made: v2 one directory; v1 that of memory, then, where mounted, of pids
	prefix  string
	serial  atomic.Int64
}

// findCgroups looks where groups can be made and proves it by making one. The sentence
// says what was found, or why there are none.
func findCgroups(proc string) (*cgroups, string) {
	g, err := locateCgroups(proc)
	if err == nil && g.version == 2 {
		err = g.delegate(proc)
	}
	if err == nil {
		err = g.prove()
	}
	if err != nil {
		return nil, fmt.Sprintf("memory: RLIMIT_DATA and watchdog (no writable cgroup: %v)", err)
	}
	return g, fmt.Sprintf("memory: cgroup v%d at %s", g.version, g.dirs[0])
}

// locateCgroups finds the server's own group in the hierarchy that has the memory
// controller. It changes nothing.
func locateCgroups(proc string) (*cgroups, error) {
	prefix, err := groupsOf(proc)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	g := &cgroups{version: 1, prefix: prefix}
	memory, err := ownGroup(string(own), string(mounts), "memory")
	if err != nil {
		return nil, err
	}
	if memory != "" {
		g.dirs = []string{memory}
		if pids, err := ownGroup(string(own), string(mounts), "pids"); err == nil && pids != "" {
			g.dirs = append(g.dirs, pids)
		}
		return g, nil
	}
	unified, err := ownGroup(string(own), string(mounts), "")
	if err != nil {
		return nil, err
	}
	if unified == "" {
		return nil, errors.New("no memory controller is mounted")
	}
	if name := filepath.Base(unified); strings.HasPrefix(name, groupPrefix) && strings.HasSuffix(name, serverLeaf) {
		unified = filepath.Dir(unified) // this server has moved itself already
	}
	g.version, g.dirs = 2, []string{unified}
	return g, nil
}

// ownGroup is the directory of the process's group in the v1 hierarchy with controller, or
// with "" in the v2 hierarchy; "" if there is no such hierarchy.
func ownGroup(own, mounts, controller string) (string, error) {
	group, ok := "", false
	for line := range strings.Lines(own) { // id:controllers:path
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) && (controller != "" || f[0] == "0") {
			group, ok = f[2], true
		}
	}
	if !ok {
		return "", nil
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f, fs := strings.Fields(before), strings.Fields(after) // … root point options…, type source superoptions
		if len(f) < 5 || len(fs) < 3 {
			continue
		}
		if v2 := controller == ""; v2 && fs[0] != "cgroup2" ||
			!v2 && (fs[0] != "cgroup" || !slices.Contains(strings.Split(fs[2], ","), controller)) {
			continue
		}
		// In a container the hierarchy may be mounted from the container's group on.
		below, err := filepath.Rel(unescape(f[3]), group)
		if err != nil || strings.HasPrefix(below, "..") {
			return "", fmt.Errorf("the server's group %s is not below %s", group, f[3])
		}
		return filepath.Join(unescape(f[4]), below), nil
	}
	return "", nil
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// groupsOf is how the names of the groups of the process at proc begin.
func groupsOf(proc string) (string, error) {
	pid, start, err := identity(filepath.Join(proc, "stat"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%s.%s.", groupPrefix, pid, start), nil
}

// identity reads a process's number and start time, which together name it for good.
func identity(stat string) (pid, start string, err error) {
	line, err := os.ReadFile(stat)
	if err != nil {
		return "", "", err
	}
	text := string(line)
	// The name in the second field may hold anything, a bracket and spaces too.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return "", "", fmt.Errorf("%s: %d fields", stat, len(f))
	}
	return strings.Fields(text)[0], f[19], nil
}

// delegate makes the memory controller usable below the server's group. cgroup v2 gives a
// group with processes in it no controllers to hand down, so where the server is alone in
// its group, as a service with delegation, it moves itself one down. With others in it, a
// user's shell for instance, that is not ours to do.
func (g *cgroups) delegate(proc string) error {
	dir := g.dirs[0]
	if has(dir, "cgroup.subtree_control", "memory") {
		return nil
	}
	if !has(dir, "cgroup.controllers", "memory") {
		return fmt.Errorf("no memory controller in %s", dir)
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	self := strings.Split(g.prefix, ".")[1]
	if members := strings.Fields(string(procs)); len(members) > 1 || len(members) == 1 && members[0] != self {
		return fmt.Errorf("%d processes share the server's group %s; "+
			"run it by itself: systemd-run --user --scope -p Delegate=yes", len(members), dir)
	}
	leaf := filepath.Join(dir, strings.TrimSuffix(g.prefix, ".")+serverLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	if err = write(leaf, "cgroup.procs", self); err == nil {
		if err = write(dir, "cgroup.subtree_control", "+memory"); err == nil {
			if has(dir, "cgroup.controllers", "pids") {
				err = write(dir, "cgroup.subtree_control", "+pids")
			}
			return err
		}
		err = errors.Join(err, write(dir, "cgroup.procs", self))
	}
	return errors.Join(err, os.Remove(leaf))
}

// has reports whether the list in a control file names word.
func has(dir, file, word string) bool {
	list, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(list)), word)
}

func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // never created: the kernel makes these files
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// prove makes a group with limits and takes it away again.
func (g *cgroups) prove() error {
	c, err := g.create(Policy{}.withDefaults())
	if err != nil {
		return err
	}
	return c.remove()
}

// cgroup is one session's group. A nil one stands for a host without.
type cgroup struct {
	version int
	dirs    []string

	mu      sync.Mutex
	events  *os.File // the counter's file, open since it was first asked: every call asks
	removed bool
	kills   int64 // as counted when it was removed
}

// create makes a group with the limits of p. A nil g makes none.
func (g *cgroups) create(p Policy) (_ *cgroup, err error) {
	if g == nil {
		return nil, nil
	}
	c := &cgroup{version: g.version}
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
	return c, c.limit(p)
}

// mkdir makes a group of a name that is free: another wall in this server counts too.
func (g *cgroups) mkdir(parent string) (string, error) {
	for {
		dir := filepath.Join(parent, g.prefix+strconv.FormatInt(g.serial.Add(1), 10))
		if err := os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

func (c *cgroup) limit(p Policy) error {
	memory := strconv.FormatInt(p.Memory+supervisorAllowance, 10)
	tasks := strconv.Itoa(p.Tasks)
	if c.version == 2 {
		return errors.Join(
			write(c.dirs[0], "memory.max", memory),
			ifThere(write(c.dirs[0], "memory.swap.max", "0")),
			// One process too big must not take the supervisor and the standby with it.
			ifThere(write(c.dirs[0], "memory.oom.group", "0")),
			ifThere(write(c.dirs[0], "pids.max", tasks)),
		)
	}
	err := errors.Join(
		write(c.dirs[0], "memory.limit_in_bytes", memory),
		ifThere(write(c.dirs[0], "memory.memsw.limit_in_bytes", memory)),
	)
	if len(c.dirs) > 1 {
		err = errors.Join(err, write(c.dirs[1], "pids.max", tasks))
	}
	return err
}

// ifThere forgives a control file that this kernel does not have.
func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// place puts pid into the group. It must not have run anything of the guest's yet: what
// it has allocated before stays with the server's group.
func (c *cgroup) place(pid int) error {
	if c == nil {
		return nil
	}
	for _, dir := range c.dirs {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// open returns the group's directory for a clone directly into it, which v2 alone has; nil
// where the process must be placed instead.
func (c *cgroup) open() (*os.File, error) {
	if c == nil || c.version != 2 {
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
	file := "memory.events"
	if c.version == 1 {
		file = "memory.oom_control"
	}
	if c.events == nil {
		var err error
		if c.events, err = os.Open(filepath.Join(c.dirs[0], file)); err != nil {
			return 0, false
		}
	}
	text := make([]byte, 4096)
	n, err := c.events.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	for line := range strings.Lines(string(text[:n])) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// usage is the memory accounted to the group, in bytes, without the cache of files, which
// the kernel gives up before it kills. Memory files, /tmp and /dev/shm count: they can't be
// written back anywhere, and the kernel keeps them apart from the lists of files.
func (c *cgroup) usage() (int64, error) {
	file, of := "memory.current", ""
	if c.version == 1 {
		file, of = "memory.usage_in_bytes", "total_"
	}
	text, err := os.ReadFile(filepath.Join(c.dirs[0], file))
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
		n, err := field(string(stat), of+cache)
		if err != nil {
			return 0, err
		}
		used -= n
	}
	return max(used, 0), nil // the two files are not of one moment
}

// removeFor is how long the kernel may take to notice that a group's last process is gone.
const removeFor = 2 * time.Second

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
		errs = append(errs, rmdir(dir))
	}
	return errors.Join(errs...)
}

func rmdir(dir string) error {
	for deadline := time.Now().Add(removeFor); ; time.Sleep(time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}
