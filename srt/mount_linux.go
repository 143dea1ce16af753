package srt

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// A detached mount is a descriptor of a mount that hangs nowhere yet. All of the guest's
// root is made of them: they are taken while the host's tree is still to be seen, and the
// attributes are set before anything could be reached through them.

// look is the set of attributes a mount of the guest's gets.
type look struct {
	writable  bool
	exec      bool
	device    bool // a device node: without it, nodev
	recursive bool // mounts below come along, with the same attributes
	idmap     int  // user namespace whose maps translate owners; 0: none
}

// attr are the attributes of l. Set-uid bits never count, and mount events of the host
// never arrive: a later mount there must not appear inside.
func (l look) attr() *unix.MountAttr {
	a := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if !l.writable {
		a.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if !l.exec {
		a.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	if !l.device {
		a.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if l.idmap > 0 {
		a.Attr_set |= unix.MOUNT_ATTR_IDMAP
		a.Userns_fd = uint64(l.idmap)
	}
	return a
}

// clone detaches a copy of the tree at name, which is looked up from dir. An empty name
// means dir itself.
func clone(dir int, name string, l look) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if l.recursive {
		flags |= unix.AT_RECURSIVE
	}
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, name, flags)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	set := uint(unix.AT_EMPTY_PATH)
	if l.recursive {
		set |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(fd, "", set, l.attr()); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("mount_setattr: %w", err)
	}
	return fd, nil
}

// option is one key=value of a file system, or a flag where the value is empty.
type option struct{ key, value string }

// fresh makes a new file system, detached.
func fresh(fstype string, l look, options ...option) (int, error) {
	ctx, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", fstype, err)
	}
	defer unix.Close(ctx)
	for _, o := range options {
		if err := unix.FsconfigSetString(ctx, o.key, o.value); err != nil {
			return -1, fmt.Errorf("%s %s=%s: %w", fstype, o.key, o.value, err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("create %s: %w", fstype, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, int(l.attr().Attr_set))
	if err != nil {
		return -1, fmt.Errorf("fsmount %s: %w", fstype, err)
	}
	return fd, nil
}

// rootTree is the root being built, by a descriptor: no path is ever walked from the host's
// root, and none through a symbolic link that an earlier guest may have left in a
// workspace.
type rootTree struct{ fd int }

// inside are the rules for every look-up below the root.
const inside = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

func (t rootTree) open(guest string, flags uint64) (int, error) {
	name := strings.TrimPrefix(guest, "/")
	return unix.Openat2(t.fd, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: inside})
}

// mkdir makes guest and the directories above it where they are missing.
func (t rootTree) mkdir(guest string) error {
	if guest == "/" {
		return nil
	}
	fd, err := t.open(guest, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", guest, err)
	}
	parent, name := path.Split(guest)
	at := t.fd
	if parent = path.Clean(parent); parent != "/" {
		if err := t.mkdir(parent); err != nil {
			return err
		}
		if at, err = t.open(parent, unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return fmt.Errorf("%s: %w", parent, err)
		}
		defer unix.Close(at)
	}
	if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("mkdir %s: %w", guest, err)
	}
	return nil
}

// write makes a small read-only file; it must not exist yet.
func (t rootTree) write(guest string, content []byte) error {
	if err := t.mkdir(path.Dir(guest)); err != nil {
		return err
	}
	how := &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: 0o444, Resolve: inside}
	fd, err := unix.Openat2(t.fd, strings.TrimPrefix(guest, "/"), how)
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(fd)
	for len(content) > 0 {
		n, err := unix.Write(fd, content)
		if err != nil {
			return fmt.Errorf("%s: %w", guest, err)
		}
		content = content[n:]
	}
	return nil
}

func (t rootTree) symlink(target, guest string) error {
	if err := t.mkdir(path.Dir(guest)); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, t.fd, strings.TrimPrefix(guest, "/")); err != nil {
		return fmt.Errorf("symlink %s: %w", guest, err)
	}
	return nil
}

// attach hangs a detached mount at guest, making the place for it, and closes it.
func (t rootTree) attach(mount int, guest string) error {
	defer unix.Close(mount)
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = t.mkdir(guest)
	} else if err = t.write(guest, nil); errors.Is(err, unix.EEXIST) {
		err = nil
	}
	if err != nil {
		return err
	}
	return t.cover(mount, guest)
}

// cover hangs a detached mount over a place that is there. It does not close it.
func (t rootTree) cover(mount int, guest string) error {
	at, err := t.open(guest, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(at)
	if err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount %s: %w", guest, err)
	}
	return nil
}
