package srt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sources says what of the host is shown because the policy asks for it. Run by root, the
// server makes the mounts, and the child finds them from descriptor fd on: the guest's id
// could not reach a prefix or workspace below root's own home. An ordinary user's child
// can reach what the server can.
func (n *native) sources(p Policy, fd int) (all []source, mounts []*os.File, err error) {
	for _, m := range p.shown() {
		s := source{Host: m.Host, Guest: m.Guest, Layer: layerWorkspace, Writable: m.Writable, Exec: p.AllowExec}
		if s.Is, err = identityOf(m.held); err != nil {
			return nil, nil, failed(layerWorkspace, fmt.Errorf("%s: %w", m.Host, err))
		}
		all = append(all, s)
	}
	for _, r := range p.ReadOnly {
		all = append(all, source{Host: r, Guest: r, Layer: layerMounts, Exec: true})
	}
	for _, r := range p.Programs {
		if r.Host == selfExe {
			all = append(all, source{Host: r.Host, Guest: r.Guest, Layer: layerMounts, Exec: true})
		}
	}
	if err := plainDirectory(p.Workspace.Host); err != nil {
		return nil, nil, failed(layerWorkspace, err)
	}
	if err := findSockets(all); err != nil {
		return nil, nil, failed(layerWorkspace, err)
	}
	for i, s := range all {
		mount, err := n.detach(s)
		var known *LayerError
		if errors.As(err, &known) {
			return nil, mounts, err
		}
		if err != nil {
			err = &LayerError{Layer: s.Layer, Err: fmt.Errorf("%s: %w", s.Host, err), Remedy: remedyOf(err)}
			return nil, mounts, err
		}
		if mount >= 0 {
			mounts = append(mounts, os.NewFile(uintptr(mount), filepath.Base(s.Host)))
			all[i].FD = fd + len(mounts) - 1
		}
	}
	return all, mounts, nil
}

// remedyError is an error with what the operator can do about it.
type remedyError struct {
	error
	remedy string
}

func (e *remedyError) Unwrap() error { return e.error }

func remedyOf(err error) string {
	var r *remedyError
	if errors.As(err, &r) {
		return r.remedy
	}
	return ""
}

// detach makes the mount of s for the child, or -1 if the child shall do so. A place of
// another owner than the guest is shown through an ID-mapped mount: inside it belongs to
// the guest, and what the guest makes there belongs to that owner.
func (n *native) detach(s source) (int, error) {
	if s.Host == selfExe {
		return n.detachSelf(s)
	}
	if s.Layer != layerWorkspace {
		if !n.detaches {
			return -1, nil
		}
		return clone(unix.AT_FDCWD, s.Host, s.look())
	}
	at, st, err := s.open() // a child that takes it will look again
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	if !n.root {
		return -1, nil // the child's id is the server's own
	}
	foreign := int(st.Uid) != n.uid
	if !n.detaches {
		if foreign && s.Writable {
			err := errors.New("root without CAP_SYS_ADMIN can't let the guest write to another user's directory")
			return -1, &remedyError{err, fmt.Sprintf("chown it to %d, or run the server as its owner", n.uid)}
		}
		return -1, nil
	}
	if !foreign {
		return clone(at, "", s.look())
	}
	ns, err := n.idmaps.namespace(n.exe, idmap{st.Uid, st.Gid, n.uid, n.gid})
	if err != nil {
		return -1, err
	}
	look := s.look()
	look.idmap = ns
	mount, err := clone(at, "", look)
	if err != nil {
		// A mount below may be of a file system that can't, or mapped already.
		look.recursive = false
		mount, err = clone(at, "", look)
	}
	if err != nil && !s.Writable && st.Mode&0o4 != 0 {
		return clone(at, "", s.look()) // the guest reads what everybody may
	}
	if err != nil {
		err = fmt.Errorf("it belongs to user %d, and its file system refuses an ID-mapped mount: %w", st.Uid, err)
		return -1, &remedyError{err, fmt.Sprintf("chown it to %d, or run the server as its owner", n.uid)}
	}
	return mount, nil
}

// idmap says which owner on disk is which user on the host.
type idmap struct {
	owner, ownerGroup uint32
	uid, gid          int
}

// idmaps keeps a user namespace for every owner met: the kernel takes a mapping in this
// form alone. It is safe for concurrent use.
type idmaps struct {
	mu   sync.Mutex
	kept map[idmap]*os.File
}

// namespace returns a descriptor that stays open until close.
func (m *idmaps) namespace(exe string, of idmap) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.kept[of]; ok {
		return int(f.Fd()), nil
	}
	f, err := makeNamespace(exe, of)
	if err != nil {
		return -1, err
	}
	if m.kept == nil {
		m.kept = map[idmap]*os.File{}
	}
	m.kept[of] = f
	return int(f.Fd()), nil
}

func (m *idmaps) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, f := range m.kept {
		errs = append(errs, f.Close())
	}
	m.kept = nil
	return errors.Join(errs...)
}

// makeNamespace starts a child in a namespace with the mapping, takes the namespace and
// ends the child. That it can't be made has nothing to do with the place to be mapped.
func makeNamespace(exe string, of idmap) (_ *os.File, err error) {
	cmd := exec.Command(exe, "be-child", verbIdle)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	hold, err := cmd.StdinPipe() // the child lives until it is closed
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil { // which closes hold
		return nil, startError(err)
	}
	defer hold.Close()
	defer func() {
		_ = cmd.Process.Kill() // it does nothing; how it ends does not matter
		_ = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	if err := mapIDs(pid, idMap{int(of.owner), of.uid}, idMap{int(of.ownerGroup), of.gid}, true); err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}
