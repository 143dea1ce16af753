package srt

import (
	"fmt"
	"os"
)

// removeAll removes a tree that a guest has made, in which nothing of the guest
// runs any more. The guest may have taken its own permissions away, or have
// made a tree deeper than the server may open files.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	for pass := 0; err != nil && pass < maxPasses; pass++ {
		moved, failed := flatten(path, pass)
		if failed != nil {
			return failed
		}
		if err = os.RemoveAll(path); err != nil && moved == 0 {
			return fmt.Errorf("remove %s: %w", path, shorten(err))
		}
	}
	return err
}

const (
	levels    = 50     // that are left below the top in one pass
	maxPasses = 10_000 // enough for any number of inodes that a session may have
)

// flatten gives the owner's rights back, and moves what lies deeper than some
// levels to the top. It never leaves the tree, nor follows a link.
func flatten(path string, pass int) (moved int, err error) {
	if err := os.Chmod(path, 0o700); err != nil {
		return 0, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		_ = root.Chmod(dir, 0o700) // what can't be mended shows in the next attempt
		f, err := root.Open(dir)
		if err != nil {
			return
		}
		entries, _ := f.ReadDir(-1)
		f.Close()
		for _, e := range entries {
			switch below := dir + "/" + e.Name(); {
			case !e.IsDir():
			case depth < levels:
				walk(below, depth+1)
			default:
				_ = root.Chmod(below, 0o700)
				if root.Rename(below, fmt.Sprintf(".flat-%d-%d", pass, moved)) == nil {
					moved++
				}
			}
		}
	}
	walk(".", 0)
	return moved, nil
}

// shorten keeps an error from naming thousands of directories.
func shorten(err error) error {
	if p, ok := err.(*os.PathError); ok && len(p.Path) > 300 {
		return &os.PathError{Op: p.Op, Path: p.Path[:300] + "…", Err: p.Err}
	}
	return err
}
