package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeFolder makes the session's own folder in the operator's directory, which
// must be the one that New saw and whose owner it belongs to, or finds it again
// where an earlier server left the session. Only this session's code sees it; it
// stays when the session ends, unless it is empty.
func (s *session) makeFolder() (err error) {
	parent, err := os.OpenRoot(s.local.cfg.Workspace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	saw, err := s.local.cfg.workspace.Stat()
	if err != nil {
		return err
	}
	is, err := parent.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(saw, is) {
		return fmt.Errorf("%s: %w", s.local.cfg.Workspace, errReplaced)
	}
	owner, ok := is.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.ErrUnsupported
	}
	err = parent.Mkdir(s.id, 0o700)
	if s.found && errors.Is(err, fs.ErrExist) {
		return takeFolder(parent, s.id, owner.Uid)
	}
	if err != nil || os.Geteuid() != 0 {
		return err // it is ours, and can be nobody else's
	}
	if err := parent.Lchown(s.id, int(owner.Uid), int(owner.Gid)); err != nil {
		return errors.Join(err, parent.Remove(s.id))
	}
	return nil
}

// takeFolder refuses what is not the folder that makeFolder made, and gives its
// owner back the rights that a guest took.
func takeFolder(parent *os.Root, id string, owner uint32) error {
	info, err := parent.Lstat(id)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || st.Uid != owner {
		return fmt.Errorf("%s is no longer the folder of the session", filepath.Join(parent.Name(), id))
	}
	if info.Mode().Perm()&0o700 == 0o700 {
		return nil
	}
	return parent.Chmod(id, info.Mode().Perm()|0o700)
}

// dropFolder takes the folder of a session that has ended away, if it is empty:
// what was written there is the operator's.
func (l *Local) dropFolder(id string) {
	if l.cfg.WorkspaceApart {
		_ = syscall.Rmdir(filepath.Join(l.cfg.Workspace, id))
	}
}
