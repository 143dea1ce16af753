package srt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// scratchFor is how long the removal of what a line has left may take. A million
// files would take longer, and then the wall is ended, which removes them at once.
const scratchFor = 250 * time.Millisecond

// openScratch opens the directories that are emptied after each line.
func openScratch(paths []string) ([]*os.File, error) {
	var dirs []*os.File
	for _, path := range paths {
		dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// empty removes all that lies in dirs: what a sort that was killed has spilt stays
// otherwise, counts as memory, and nothing on the list could delete it. Programs
// of the list leave plain files in one directory; a tree is somebody else's doing,
// and not taken down here. Nothing may run that could write to dirs.
func empty(dirs []*os.File) error {
	until := time.Now().Add(scratchFor)
	for _, dir := range dirs {
		for again := true; again; { // until it is read from its beginning and found empty
			again = false
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
			for {
				names, err := dir.Readdirnames(256)
				if len(names) == 0 && errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
				again = true
				if err := unlink(dir, names, until); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func unlink(dir *os.File, names []string, until time.Time) error {
	for _, name := range names {
		err := unix.Unlinkat(int(dir.Fd()), name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
		}
		if err != nil {
			return fmt.Errorf("%s/%.300q: %w", dir.Name(), name, err)
		}
	}
	if time.Now().After(until) {
		return fmt.Errorf("%s: more than can be removed within %v", dir.Name(), scratchFor)
	}
	return nil
}
