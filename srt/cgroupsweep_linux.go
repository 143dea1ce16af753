package srt

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// sweepCgroups removes the groups that servers which were killed left behind: their
// processes died with them, the groups stay. Those of living servers, and those that are
// not empty, are left alone; nothing is killed.
func sweepCgroups() error { return sweepCgroupsOf("/proc") }

func sweepCgroupsOf(procfs string) error {
	g, err := locateCgroups(filepath.Join(procfs, "self"))
	if err != nil {
		return nil // no groups here, so none were left
	}
	var errs []error
	for _, dir := range g.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if e.IsDir() && abandoned(procfs, e.Name()) {
				errs = append(errs, notLeft(os.Remove(filepath.Join(dir, e.Name()))))
			}
		}
	}
	return errors.Join(errs...)
}

// abandoned reports whether name is a group whose maker no longer lives.
func abandoned(procfs, name string) bool {
	f := strings.Split(strings.TrimPrefix(name, groupPrefix), ".")
	if !strings.HasPrefix(name, groupPrefix) || len(f) != 3 {
		return false
	}
	if _, err := strconv.Atoi(f[0]); err != nil {
		return false
	}
	_, start, err := identity(filepath.Join(procfs, f[0], "stat"))
	return errors.Is(err, os.ErrNotExist) || err == nil && start != f[1]
}

// notLeft forgives a group that another sweep took, one whose last process is dying, and
// one that another user's server left.
func notLeft(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EBUSY) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}
