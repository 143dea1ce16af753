package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var _ wall = (*srtWall)(nil)

// srtConfig says how the srt command is found and run. The zero value is right for every
// server.
type srtConfig struct {
	Command string // "" = srt of Path
	Path    string // directories in which it finds its own helpers; "" = PATH of Config.PythonEnv
}

// srtWall makes cages by Anthropic's Sandbox Runtime, the command srt. What that leaves
// open, be-child closes inside: resources, Landlock, a stricter system call filter. It is
// safe for concurrent use.
//
// A guest finds everything where the host has it. Each cage has a directory of its own in
// the wall's: settings, pipes, the guest's temporary files, and those of srt.
type srtWall struct {
	tool    srtTool
	exe     string      // this very binary, by a path that is there inside too
	is      os.FileInfo // what lies at exe, and must go on to
	dir     string
	cgroups *cgroups // nil where no group can be made
	held    string   // what holds the limits of memory and tasks, in words
	serial  atomic.Int64

	mu     sync.Mutex
	kernel map[string]string // files of the kernel that have been written, by path
}

const layerSRT = "srt" // the srt command, and what it needs

// newSRT looks for the command and its helpers, and asks for versions. dir is for the wall
// to make, and to remove.
func newSRT(ctx context.Context, cfg Config, dir string) (*srtWall, error) {
	if os.Geteuid() == 0 {
		return nil, &LayerError{Layer: layerSRT,
			Err:    errors.New("behind it a command that root starts keeps root's capabilities"),
			Remedy: "run the server as an ordinary user"}
	}
	w := &srtWall{dir: dir, kernel: map[string]string{}}
	if err := w.findSelf(cfg.native.Executable); err != nil {
		return nil, failed(layerSRT, err)
	}
	if err := canConfine(); err != nil {
		return nil, err
	}
	var err error
	if w.tool, err = findSRT(ctx, cfg); err != nil {
		return nil, err
	}
	proc := cfg.native.Proc
	if proc == "" {
		proc = "/proc/self"
	}
	w.cgroups, w.held = findCgroups(proc)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, failed(layerSRT, err)
	}
	return w, nil
}

// findSelf takes the name of this very binary: what /proc/self/exe leads to is another
// program inside.
func (w *srtWall) findSelf(exe string) (err error) {
	given := exe != ""
	if !given {
		if exe, err = os.Executable(); err != nil {
			return err
		}
	}
	if w.exe, err = resolved(exe); err != nil {
		return fmt.Errorf("this binary: %w", err)
	}
	if w.is, err = os.Stat(w.exe); err != nil {
		return fmt.Errorf("this binary: %w", err)
	}
	if self, err := os.Stat(selfExe); err == nil && !given && !os.SameFile(self, w.is) {
		return fmt.Errorf("this binary: %w", errReplaced)
	}
	return nil
}

func (*srtWall) name() string { return WallSRT }

func (w *srtWall) limitsMemory() bool { return w.cgroups != nil }

// concedes: the bounding set of srt's user namespace is full, and can be emptied by nobody
// who has no capability in it. It bounds what an exec may give, and no_new_privs lets none
// give anything.
func (*srtWall) concedes() []string { return []string{"CapBnd"} }

func (*srtWall) lesser(cfg Config) []string {
	less := []string{
		"there are no Unix sockets, and so no multiprocessing.Manager",
		"the limits of /dev/shm and of the temporary directory are watched, and not held by the kernel",
	}
	if cfg.Commands != nil {
		less = append(less, "commands: the allowlist and the read-only workspace hold; there is no root of their programs alone, and no noexec")
	}
	if runtime.GOOS != "linux" {
		less = append(less, "processes that leave their process group may outlive their session")
	}
	return less
}

func (*srtWall) hostIDs() (uid, gid int) { return os.Geteuid(), os.Getegid() }

func (w *srtWall) close() error { return removeAll(w.dir) }

// admits: what is seen is seen at its place on the host, and at no other.
func (*srtWall) admits(cfg Config, prefixes []string) error {
	errs := []error{hostPlaced(cfg, WallSRT), noPatterns(cfg, prefixes)}
	if runtime.GOOS != "linux" { // where there is no network of the guest's in which the proxy could listen
		errs = append(errs, noNetwork(cfg, WallSRT))
	}
	return errors.Join(errs...)
}

// hostPlaced returns all mounts that a wall which shows the host's own paths can't give.
func hostPlaced(cfg Config, wall string) error {
	var faults []error
	for i, m := range cfg.Mounts {
		fault := func(format string, a ...any) {
			faults = append(faults, fmt.Errorf("mount: %s at %s: %w", m.Host, m.Guest, fmt.Errorf(format, a...)))
		}
		if m.Guest != m.Host {
			fault("behind the wall %s everything is seen where the host has it: --mount %s:%s", wall, m.Host, m.Host)
		}
		if cfg.Workspace != "" && within(m.Host, cfg.Workspace) {
			fault("that lies in the workspace: name a place beside it")
		}
		for _, other := range cfg.Mounts[:i] {
			if within(m.Host, other.Host) || within(other.Host, m.Host) {
				fault("%s is shown too, and one lies in the other", other.Host)
			}
		}
	}
	return errors.Join(faults...)
}

// noPatterns returns all places whose names srt would take for patterns.
func noPatterns(cfg Config, prefixes []string) error {
	all := slices.Clone(prefixes)
	if cfg.Workspace != "" {
		all = append(all, cfg.Workspace)
	}
	for _, m := range cfg.Mounts {
		all = append(all, m.Host)
	}
	var faults []error
	for _, p := range all {
		faults = append(faults, noPattern(p))
	}
	return errors.Join(faults...)
}

func noPattern(p string) error {
	if strings.ContainsAny(p, `*?[]{}\`) {
		return fmt.Errorf("%s: srt takes such a name for a pattern of many", p)
	}
	return nil
}

// places are the host's own.
func (w *srtWall) places(workspace string) places {
	dir := filepath.Join(w.dir, strconv.FormatInt(w.serial.Add(1), 10))
	at := places{
		Workspace: workspace, Kernel: filepath.Join(w.dir, "kernel") + "/", Warden: w.exe,
		Tmp: filepath.Join(dir, "tmp"), Host: true, dir: dir,
	}
	at.Scratch = append([]string{at.Tmp}, sharedMemory...)
	return at
}

// pipe makes a named pipe in the directory of a cage: of the descriptors that srt is
// started with only the standard ones come through to what it starts. They would do for
// the kernel's channel, but then its output could not be told from srt's own words, nor
// its end from that of the helpers which hold them too.
func (w *srtWall) pipe(at places, name string, serverReads bool) (server, guest *os.File, err error) {
	path := filepath.Join(at.dir, "pipes", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, err
	}
	return namedPipe(path, serverReads)
}

// namedPipe makes a named pipe and opens both ends of it; each is called by its path.
func namedPipe(path string, serverReads bool) (server, guest *os.File, err error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	open := func(flag int) *os.File {
		var fd int
		if err == nil {
			// Without O_NONBLOCK an end waits for the other. Not by os.OpenFile, which on some
			// systems would not let a read of it be interrupted.
			fd, err = unix.Open(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			return nil
		}
		return os.NewFile(uintptr(fd), path)
	}
	r := open(unix.O_RDONLY) // first: there is no writing end without it
	w := open(unix.O_WRONLY)
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, nil, err
	}
	if serverReads {
		return r, w, nil
	}
	return w, r, nil
}

// describe tells what srt and be-child make of p.
func (w *srtWall) describe(p Policy) string {
	p = p.withDefaults()
	var lines []string
	line := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	line("wall: Anthropic's Sandbox Runtime (srt %s)", w.tool.Version)
	mode := map[bool]string{false: "read-only", true: "writable"}
	if p.Workspace.Host == "" {
		line("workspace: none")
	} else {
		line("workspace: %s, %s", p.Workspace.Host, mode[p.Workspace.Writable])
	}
	for _, m := range p.Mounts {
		line("mount: %s, %s", m.Host, mode[m.Writable])
	}
	line("read-only: %s", strings.Join(append([]string{"/usr", "a few files of /etc"}, p.ReadOnly...), ", "))
	line("private: a directory for temporary files (%s, %d files), the host's to hold", size(p.Disk), p.Inodes)
	if p.Network.Empty() {
		line("network: loopback alone, with srt's proxy, which lets nothing out; no Unix sockets")
	} else {
		line("network: loopback alone; through the server's proxy there: %v; no Unix sockets", p.Network)
	}
	line("limits: memory %s, %d tasks, %d open files, files of %s", size(p.Memory), p.Tasks, p.OpenFiles, size(p.FileSize))
	line("limits held: %s", w.held)
	line("identity: the server's own user without capabilities, who can gain none")
	return strings.Join(lines, "\n")
}
