package srt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// usage is what a workspace holds.
type usage struct {
	bytes  int64 // taken on the disk: a sparse file takes little
	inodes int
	blind  string // the first directory that could not be looked into; "" if none
}

func (u usage) plus(v usage) usage {
	return usage{bytes: u.bytes + v.bytes, inodes: u.inodes + v.inodes, blind: u.blind}
}

// beyond reports whether u has more of anything than limit.
func (u usage) beyond(limit usage) bool {
	return u.bytes > limit.bytes || u.inodes > limit.inodes
}

// fileID names a file whatever its path.
type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

const (
	maxDepth   = 256     // of a workspace's directories: the walk holds a descriptor for each level
	maxEntries = 1 << 20 // of an operator's directory: about two seconds' walk
)

// walk adds up a directory by descending from descriptor to descriptor, so that a
// directory swapped for a link in between is not followed. It ends early where stop is
// passed: a flood of files can't keep it busy.
type walk struct {
	used  usage
	stop  usage
	spare map[fileID]struct{} // directories that could not be read before the session either
	links map[fileID]struct{} // files with several names that are counted already
	blind func(fileID)        // hears of each directory that could not be read; nil = nobody
}

// errEnough ends a walk that has seen more than stop.
var errEnough = errors.New("enough")

// measure walks dir. An error is the server's own fault, a want of descriptors for instance.
func measure(dir string, stop usage, spare map[fileID]struct{}) (usage, error) {
	w := &walk{stop: stop, spare: spare, links: map[fileID]struct{}{}}
	err := w.from(dir)
	return w.used, err
}

func (w *walk) from(dir string) error {
	fd, err := openDir(unix.AT_FDCWD, dir)
	switch {
	case errors.Is(err, unix.EACCES):
		w.unreadable("/", fileID{})
		return nil
	case err != nil:
		return fmt.Errorf("srt: workspace: %w", err)
	}
	if err := w.descend(fd, "/", 0); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (w *walk) unreadable(name string, id fileID) {
	if _, ok := w.spare[id]; ok {
		return
	}
	if w.blind != nil {
		w.blind(id)
	}
	if w.used.blind == "" {
		w.used.blind = name
	}
}

// descend owns fd.
func (w *walk) descend(fd int, name string, depth int) error {
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, entry := range names {
			if err := w.entry(fd, name, entry, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // read, or removed meanwhile
			return nil
		case err != nil:
			return fmt.Errorf("srt: workspace: %w", err)
		}
	}
}

func (w *walk) entry(fd int, parent, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EACCES): // the directory can be read, and not searched
		w.unreadable(parent, fileID{})
		return nil
	case err != nil:
		return nil // removed meanwhile
	}
	w.used.inodes++
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	counted := false
	if st.Nlink > 1 && !isDir {
		if _, counted = w.links[idOf(&st)]; !counted {
			w.links[idOf(&st)] = struct{}{}
		}
	}
	if !counted {
		w.used.bytes += st.Blocks * 512
	}
	if w.used.beyond(w.stop) {
		return errEnough
	}
	if !isDir {
		return nil
	}
	below := path.Join(parent, name)
	if depth == maxDepth {
		w.unreadable(below, idOf(&st))
		return nil
	}
	sub, err := openDir(fd, name)
	switch {
	case err == nil:
		return w.descend(sub, below, depth+1)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		w.unreadable(below, idOf(&st))
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// removed meanwhile, or swapped for something else
	default:
		return fmt.Errorf("srt: workspace: %w", err)
	}
	return nil
}
