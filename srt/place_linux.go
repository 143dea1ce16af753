package srt

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openPlace opens what lies at host, for its identity and for mounts alone. No part of the
// path may be a link: it was resolved when the server started, and what has become one
// since may be of a guest's making.
func openPlace(host string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, host, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS, // with O_NOFOLLOW a link itself would be opened
	})
	if errors.Is(err, unix.ELOOP) {
		return -1, errors.New("a part of the path is a symbolic link")
	}
	return fd, err
}

func holdPlace(host string) (*os.File, error) {
	fd, err := openPlace(host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", host, err)
	}
	return os.NewFile(uintptr(fd), host), nil
}

// placeID names a file for as long as it is there, or is held.
type placeID struct{ Dev, Ino uint64 }

func placeIDOf(st unix.Stat_t) placeID { return placeID{uint64(st.Dev), st.Ino} }

// open opens the place of s and makes sure that it is the one that is meant.
func (s source) open() (int, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := openPlace(s.Host)
	if err != nil {
		return -1, st, err
	}
	err = unix.Fstat(fd, &st)
	if err == nil && s.Is != (placeID{}) && placeIDOf(st) != s.Is {
		err = errReplaced
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// samePlaces refuses places of the operator's of which one is no longer what New saw.
func (l *Local) samePlaces() error {
	for _, m := range l.policy(l.cfg.Workspace, l.wall.places(l.cfg.Workspace)).shown() {
		is, err := identityOf(m.held)
		if err == nil && is != (placeID{}) {
			var fd int
			if fd, _, err = (source{Host: m.Host, Is: is}).open(); err == nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Host, err)
		}
	}
	return nil
}

// identityOf is what f is; the zero value for none.
func identityOf(f *os.File) (placeID, error) {
	if f == nil {
		return placeID{}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return placeID{}, err
	}
	return placeIDOf(st), nil
}

// take detaches the mount of s. The descriptor that is cloned is the one that was looked at.
func (s source) take() (int, error) {
	if s.Layer != layerWorkspace {
		return clone(unix.AT_FDCWD, s.Host, s.look())
	}
	at, _, err := s.open()
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return clone(at, "", s.look())
}
