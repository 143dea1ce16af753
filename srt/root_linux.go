package srt

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// source is a place of the host that goes into the guest's root. Where the mapped user
// could not reach it (a prefix below root's 0700 home), the server made the detached mount and
// FD is its descriptor here; otherwise FD is 0 and Host is taken by path.
type source struct {
	Host, Guest string
	Layer       string  // whose failure it is
	Is          placeID // what must lie at Host; zero: whatever lies there
	FD          int
	Writable    bool
	Exec        bool
	Sockets     []string // guest paths of sockets in it, to be covered
}

func (s source) look() look {
	return look{writable: s.Writable, exec: s.Exec, recursive: true}
}

// closedRemedy is for a place that the user as whom guests run can't enter.
const closedRemedy = "guests of root run as another user, who can't go there; root needs CAP_SYS_ADMIN to show it all the same: " +
	"docker run --cap-add SYS_ADMIN, or run the server as an ordinary user: --user 1000:1000"

// untaken is the error of a place that could not be taken.
func (s source) untaken(err error) error {
	err = fmt.Errorf("%s: %w", s.Host, err)
	failed := &LayerError{Layer: s.Layer, Err: err, Remedy: callRemedy(s.Layer, err)}
	switch {
	case s.Layer == layerMounts && errors.Is(err, unix.ENOENT):
		failed.Remedy = "if it has been upgraded or removed since the server started, restart the server"
	case errors.Is(err, unix.EACCES):
		failed.Remedy = closedRemedy
	}
	return failed
}

// pending is a detached mount and the place it will be hung.
type pending struct {
	mount int
	guest string
	layer string
}

// buildRoot leaves the calling process in a root of its own: nothing of the host's tree
// is there but what the policy names. The order is what makes it safe:
// first everything of the host is taken as detached mounts, then the new root is built
// beside the old one, then the old one goes, and last the new one becomes read-only.
func buildRoot(p Policy, sources []source, files map[string][]byte) error {
	// Before anything else, or what follows would be seen in the host's tree. That it is the
	// first privileged step makes it the one that fails where namespaces were granted
	// without the capabilities in them.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return userns(fmt.Errorf("make mounts private: %w", err))
	}
	mounts, err := takeHost(slices.Concat(systemSources(p), sources))
	if err != nil {
		return err
	}
	root, err := newRoot()
	if err != nil {
		return failed(layerMounts, err)
	}
	if err := furnish(root, p, files); err != nil {
		return failed(layerMounts, err)
	}
	for _, m := range mounts {
		if err := root.attach(m.mount, m.guest); err != nil {
			return failed(m.layer, err)
		}
	}
	for _, s := range sources {
		for _, guest := range s.Sockets {
			if err := coverSocket(root, guest); err != nil {
				return failed(s.Layer, err)
			}
		}
	}
	if !p.bare() {
		if err := raiseProc(root); err != nil {
			return err
		}
	}
	return failed(layerMounts, enter(root))
}

// takeHost takes all that is shown of the host, in the order in which it is to be hung:
// parents before what lies in them.
func takeHost(sources []source) ([]pending, error) {
	all, err := takeSelf(sources)
	if err != nil {
		return nil, failed(layerMounts, fmt.Errorf("this binary: %w", err))
	}
	for _, s := range sources {
		if s.isSelf() {
			continue
		}
		mount := s.FD
		if mount == 0 {
			var err error
			if mount, err = s.take(); err != nil {
				return nil, s.untaken(err)
			}
		}
		all = append(all, pending{mount, s.Guest, s.Layer})
	}
	for _, d := range devices {
		mount, err := takeDevice(d)
		if err != nil {
			return nil, failed(layerMounts, fmt.Errorf("%s: %w", d.path, err))
		}
		all = append(all, pending{mount, d.path, layerMounts})
	}
	slices.SortStableFunc(all, func(a, b pending) int { return len(a.guest) - len(b.guest) })
	return all, nil
}

// systemSources are the parts of the host's system that a guest sees, but for this very
// binary, which may lie where the guest's id can't go.
func systemSources(p Policy) []source {
	var all []source
	if p.bare() {
		for _, s := range p.Programs {
			if s.Host != selfExe {
				all = append(all, source{Host: s.Host, Guest: s.Guest, Layer: layerMounts, Exec: s.Exec})
			}
		}
		return all
	}
	for _, d := range systemDirs {
		if fi, err := os.Lstat(d); err == nil && fi.IsDir() { // a link into /usr is made anew by furnish
			all = append(all, source{Host: d, Guest: d, Layer: layerMounts, Exec: true})
		}
	}
	for _, pattern := range etc {
		found, _ := filepath.Glob(pattern) // the patterns are constants; ErrBadPattern can't be
		for _, f := range found {
			all = append(all, source{Host: f, Guest: f, Layer: layerMounts})
		}
	}
	return all
}

// device is a node that is shown from the host's /dev.
type device struct {
	path         string
	major, minor uint32
}

// There is no ptmx and no /dev/pts: a session has no terminal, and terminals are how text
// gets typed into somebody else's (TIOCSTI). Programs that ask for one are told that
// there is none.
var devices = []device{
	{"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9},
}

func devicePaths() []string {
	var paths []string
	for _, d := range devices {
		paths = append(paths, d.path)
	}
	return paths
}

// takeDevice detaches the node, and makes sure it is what its name says: a host's /dev that was
// tampered with must not put a file of somebody's choice there.
func takeDevice(d device) (int, error) {
	mount, err := clone(unix.AT_FDCWD, d.path, look{device: true})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(mount, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(d.major, d.minor)) {
		err = fmt.Errorf("not the device %d:%d", d.major, d.minor)
	}
	if err != nil {
		unix.Close(mount)
		return -1, err
	}
	return mount, nil
}

// beside is where the new root is hung while it is being built. Any directory would do:
// only this mount namespace sees it, and the host's tree is not looked at any more. /usr
// is the one that must exist.
const beside = "/usr"

// newRoot hangs an empty, bounded tmpfs beside the host's tree. It will hold mount points
// and the few small files of furnish, and is read-only before the guest runs.
func newRoot() (rootTree, error) {
	fd, err := fresh("tmpfs", look{writable: true},
		option{"size", "16m"}, option{"nr_inodes", "4096"}, option{"mode", "0755"})
	if err != nil {
		return rootTree{}, err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, beside, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return rootTree{}, fmt.Errorf("move_mount %s: %w", beside, err)
	}
	return rootTree{fd}, nil
}

// furnish puts everything into the root that is not the host's.
func furnish(root rootTree, p Policy, files map[string][]byte) error {
	for guest, content := range ownFiles {
		if err := root.write(guest, []byte(content)); err != nil {
			return err
		}
	}
	for guest, content := range files {
		if err := root.write(guest, content); err != nil {
			return err
		}
	}
	for _, d := range systemDirs {
		if target, err := os.Readlink(d); err == nil {
			if err := root.symlink(target, d); err != nil {
				return err
			}
		}
	}
	for guest, target := range ownLinks {
		if p.bare() && within(target, "/proc") {
			continue
		}
		if err := root.symlink(target, guest); err != nil {
			return err
		}
	}
	return errors.Join(
		private(root, "/tmp", p.Disk, p.Inodes, p.AllowExec),
		private(root, "/dev/shm", p.Shm, p.Inodes, false),
	)
}

var ownLinks = map[string]string{
	"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
	"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	"/etc/mtab": "/proc/self/mounts", "/etc/os-release": "../usr/lib/os-release", "/var/tmp": "/tmp",
}

// private hangs an empty tmpfs at guest. Its size bounds bytes alone, hence the inodes:
// empty files cost kernel memory too.
func private(root rootTree, guest string, bytes int64, inodes int, exec bool) error {
	fd, err := fresh("tmpfs", look{writable: true, exec: exec}, option{"mode", "1777"},
		option{"size", strconv.FormatInt(bytes, 10)}, option{"nr_inodes", strconv.Itoa(inodes)})
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	return root.attach(fd, guest)
}

// enter makes root the root of this process and leaves nothing of the old one.
func enter(root rootTree) error {
	if err := unix.Fchdir(root.fd); err != nil {
		return err
	}
	// With both the same directory the old root ends up on top of the new one, and one
	// umount takes it away: no place inside the new root is needed for it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, look{}.attr()); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	unix.Close(root.fd)
	return nil
}

// raiseProc gives the guest a /proc of its own PID namespace. It is a whole one, since
// free, uptime and /proc/cpuinfo need it; what concerns the machine is covered.
func raiseProc(root rootTree) error {
	fd, err := fresh("proc", look{writable: true})
	if err != nil {
		// The kernel grants a whole /proc only where the one outside is whole.
		return &LayerError{Layer: layerProc, Err: err,
			Remedy: "in a container, its /proc must not be masked: docker run --security-opt systempaths=unconfined, " +
				"or procMount: Unmasked in Kubernetes"}
	}
	if err := root.attach(fd, "/proc"); err != nil {
		return failed(layerProc, err)
	}
	null, err := root.open("/dev/null", unix.O_PATH)
	if err != nil {
		return failed(layerProc, err)
	}
	defer unix.Close(null)
	for _, name := range procMasked {
		if err := mask(root, null, path.Join("/proc", name)); err != nil {
			return failed(layerProc, err)
		}
	}
	for _, name := range procReadOnly {
		if err := readOnly(root, path.Join("/proc", name)); err != nil {
			return failed(layerProc, err)
		}
	}
	return nil
}

// procMasked tell about the machine, its kernel and other users' keys, or command it.
// The list is the one of container runtimes, and what has come since.
var procMasked = []string{
	"kcore", "kmsg", "kallsyms", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug",
	"sysrq-trigger", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo",
	"iomem", "ioports", "interrupts",
	"acpi", "asound", "bus", "driver", "fs", "irq", "scsi",
}

// procReadOnly is checked by its own rules too; a read-only mount does not depend on them.
var procReadOnly = []string{"sys"}

// mask covers a file with /dev/null and a directory with an empty one. A place that this
// kernel does not have needs no cover.
func mask(root rootTree, null int, guest string) error {
	at, err := root.open(guest, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	var cover int
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		cover, err = fresh("tmpfs", look{}, option{"size", "4k"}, option{"nr_inodes", "1"}, option{"mode", "0555"})
	} else {
		cover, err = clone(null, "", look{device: true})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(cover)
	return root.cover(cover, guest)
}

// readOnly mounts guest over itself, read-only.
func readOnly(root rootTree, guest string) error {
	at, err := root.open(guest, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(at)
	same, err := clone(at, "", look{recursive: true})
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(same)
	return root.cover(same, guest)
}
