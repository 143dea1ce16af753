package srt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// hierarchy is a tree of control groups that can be changed. The kernel's is [cgroupfs];
// tests have one that does as the kernel of version 2 does, on an ordinary directory.
type hierarchy interface {
	mkdir(dir string) error
	write(dir, file, value string) error
	rmdir(dir string) error
}

// cgroupfs is the kernel's own.
type cgroupfs struct{}

func (cgroupfs) mkdir(dir string) error { return os.Mkdir(dir, 0o755) }

func (cgroupfs) write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // never created: the kernel makes these files
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// removeFor is how long the kernel may take to notice that a group's last process is gone.
const removeFor = 2 * time.Second

func (cgroupfs) rmdir(dir string) error {
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

// has reports whether the list in a control file names word.
func has(dir, file, word string) bool {
	list, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(list)), word)
}

// ifThere forgives a control file that this kernel does not have.
func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
