package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// rotated is a file that is renamed to NAME.1, NAME.2, … when it is full. It is for
// one writer.
type rotated struct {
	name string
	most int64 // bytes of a file
	keep int   // files besides the one that is written

	f    *os.File
	size int64
}

// openRotated opens name for appending. Whoever could put a link or a pipe there could
// have us write elsewhere, or nowhere: both are refused.
func openRotated(name string, most int64, keep int) (*rotated, error) {
	r := &rotated{name: name, most: most, keep: keep}
	return r, r.open()
}

func (r *rotated) open() error {
	// Without O_NONBLOCK the opening of a pipe waits for its reader.
	f, err := os.OpenFile(r.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s is a symbolic link", r.name)
	case errors.Is(err, syscall.ENXIO):
		return fmt.Errorf("%s is no regular file", r.name)
	case err != nil:
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", r.name)
	case info.Mode().Perm()&0o022 != 0:
		err = fmt.Errorf("%s can be written by others: chmod 600 it", r.name)
	default:
		err = r.own(info)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r.f, r.size = f, info.Size()
	return nil
}

// own refuses a file that somebody else has put there, under whatever names.
func (r *rotated) own(info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: its owner can't be told", r.name)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", r.name)
	case st.Nlink != 1:
		return fmt.Errorf("%s has other names besides: hard links", r.name)
	}
	return nil
}

// Write appends one line whole, or not at all.
func (r *rotated) Write(line []byte) (int, error) {
	if r.f == nil { // the last rotation did not end well
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	if r.size > 0 && r.size+int64(len(line)) > r.most {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := r.f.Write(line)
	if err != nil && n > 0 { // half a line would spoil the next
		if r.f.Truncate(r.size) == nil {
			n = 0
		}
	}
	r.size += int64(n)
	return n, err
}

func (r *rotated) rotate() error {
	err := r.f.Close()
	r.f = nil
	if err != nil {
		return err
	}
	for i := r.keep; i > 0; i-- {
		from := r.name
		if i > 1 {
			from = r.nth(i - 1)
		}
		if err := os.Rename(from, r.nth(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if r.keep == 0 {
		if err := os.Remove(r.name); err != nil {
			return err
		}
	}
	return r.open()
}

func (r *rotated) nth(i int) string { return fmt.Sprintf("%s.%d", r.name, i) }

func (r *rotated) Sync() error {
	if r.f == nil {
		return nil
	}
	return r.f.Sync()
}

func (r *rotated) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
