package srt

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// detachSelf makes the mount of this very binary for the child, or -1 if the child shall do
// so: whoever may start it as be-child can show it to a guest.
func (n *native) detachSelf(s source) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(n.exe, &st); err != nil {
		return -1, err
	}
	if n.root && int(st.Uid) != n.uid && st.Mode&0o5 != 0o5 {
		err := fmt.Errorf("user %d, as whom guests run, may not read and execute it", n.uid)
		return -1, &remedyError{err, "chmod a+rx the server's binary"}
	}
	if !n.detaches {
		return -1, nil
	}
	at, err := openSelf(n.exe)
	if err != nil {
		return -1, nil // the child will make a copy
	}
	defer unix.Close(at)
	return clone(at, "", s.look())
}

// isSelf reports whether s is this very binary, to be taken by the child.
func (s source) isSelf() bool { return s.Host == selfExe && s.FD == 0 }

// takeSelf is detachSelf in the child, for all places at which the binary is to be shown.
// Where it is not to be had by its name, a copy is.
func takeSelf(sources []source) (all []pending, err error) {
	var selves []source
	for _, s := range sources {
		if s.isSelf() {
			selves = append(selves, s)
		}
	}
	if len(selves) == 0 {
		return nil, nil
	}
	at, err := openSelf(selfExe)
	name := ""
	if err != nil {
		if at, name, err = copySelf(); err != nil {
			return nil, err
		}
	}
	defer unix.Close(at)
	if name != "" {
		defer func() { err = errors.Join(err, unix.Unmount(beside, unix.MNT_DETACH)) }()
	}
	for _, s := range selves {
		mount, err := clone(at, name, s.look())
		if err != nil {
			return nil, err
		}
		all = append(all, pending{mount, s.Guest, s.Layer})
	}
	return all, nil
}

// openSelf opens the binary at exe by a name in the tree of files. What /proc/self/exe leads
// to can't be mounted: to the child it lies in the server's mount namespace, and once the
// file has been replaced under a running server, in none. An error is one that has no such
// name any more, or lies where this process can't go.
func openSelf(exe string) (int, error) {
	var self, named unix.Stat_t
	if err := unix.Stat(exe, &self); err != nil {
		return -1, err
	}
	name, err := os.Readlink(exe)
	if err != nil { // an ordinary path
		name = exe
	}
	at, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Fstat(at, &named); err == nil && placeIDOf(named) != placeIDOf(self) {
		err = errReplaced
	}
	if err != nil {
		unix.Close(at)
		return -1, err
	}
	return at, nil
}

// copySelf makes a file system with a copy of this very binary, and returns its root and
// the name in it. Clones are to be had only of what hangs somewhere, so for a moment it
// hangs at beside, in this process's own view of the host's tree.
func copySelf() (dir int, name string, err error) {
	var self unix.Stat_t
	if err := unix.Stat(selfExe, &self); err != nil {
		return -1, "", err
	}
	from, err := unix.Open(selfExe, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", err
	}
	defer unix.Close(from)
	dir, err = fresh("tmpfs", look{writable: true, exec: true},
		option{"size", fmt.Sprint(self.Size + mib)}, option{"nr_inodes", "8"}, option{"mode", "0755"})
	if err != nil {
		return -1, "", err
	}
	defer func() {
		if err != nil {
			unix.Close(dir)
		}
	}()
	name = path.Base(guestWarden)
	if err := copyInto(dir, name, from, self.Size); err != nil {
		return -1, "", fmt.Errorf("copy: %w", err)
	}
	if err := unix.MoveMount(dir, "", unix.AT_FDCWD, beside, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, "", fmt.Errorf("move_mount %s: %w", beside, err)
	}
	return dir, name, nil
}

func copyInto(dir int, name string, from int, size int64) error {
	to, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o555)
	if err != nil {
		return err
	}
	for size > 0 {
		n, err := unix.Sendfile(to, from, nil, int(size))
		if err == nil && n == 0 {
			err = errors.New("it ended early")
		}
		if err != nil {
			return errors.Join(err, unix.Close(to))
		}
		size -= int64(n)
	}
	return unix.Close(to) // it could not be executed while somebody can write to it
}
