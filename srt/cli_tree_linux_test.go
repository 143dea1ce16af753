package srt

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// walked are the paths of dir and all that is in it.
func walked(t testing.TB, dir string) iter.Seq[string] {
	t.Helper()
	return func(yield func(string) bool) {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && !yield(path) {
				return filepath.SkipAll
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// treeState is what a tree holds: kind, rights, owner, time and content of every name.
// Times of reading are left out, times of directories are not: a file that was made and
// deleted again shows there.
func treeState(t testing.TB, dir string) map[string]string {
	t.Helper()
	state := map[string]string{}
	for path := range walked(t, dir) {
		info, err := os.Lstat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		is := fmt.Sprintf("%v %d:%d %d links, of %v", info.Mode(), st.Uid, st.Gid, st.Nlink, info.ModTime().UnixNano())
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			is += fmt.Sprintf(" %x", sha256.Sum256(content))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				t.Error(err)
			}
			is += " to " + to
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			t.Error(err)
		}
		state[name] = is
	}
	return state
}
