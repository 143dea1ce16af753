package srt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"mcp-sandbox/sandbox"
)

var _ sandbox.FileStore = (*session)(nil)

// uploadPrefix begins the name that a file has in its directory until it is whole.
const uploadPrefix = ".upload-"

// StoreFile implements sandbox.FileStore. All goes by the workspace's root, so that a
// guest that moves directories about meanwhile spoils its own files alone.
func (s *session) StoreFile(ctx context.Context, name string, size int64, r io.Reader) (_ sandbox.File, err error) {
	if s.disk == nil {
		return sandbox.File{}, fmt.Errorf("the workspace is read-only: %w", errors.ErrUnsupported)
	}
	if name, err = sandbox.FilePath(name); err != nil {
		return sandbox.File{}, err
	}
	if name == "." {
		return sandbox.File{}, sandbox.Invalid("the path names no file")
	}
	// Every step of a path is walked again for each directory in it; and what lies deeper
	// could not be measured while it is there, which counts as beyond the limit.
	if strings.Count(name, "/") >= maxDepth {
		return sandbox.File{}, sandbox.Invalid("the path has %d directories or more", maxDepth)
	}
	if err := s.openWorkspace(); err != nil {
		return sandbox.File{}, err
	}
	room := &room{disk: s.disk, spare: s.local.spareDisk, inodes: 1 + strings.Count(name, "/")}
	defer room.close()
	if err := room.ask(max(size, 0)); err != nil {
		return sandbox.File{}, err
	}
	u := &upload{session: s, name: name}
	defer func() {
		if err != nil {
			u.undo()
			err = storeFault(err)
		}
	}()
	if err := u.begin(); err != nil {
		return sandbox.File{}, err
	}
	n, err := u.copy(ctx, room, r)
	if err == nil && size >= 0 && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = u.finish()
	}
	return sandbox.File{Path: name, Size: n}, err
}

// storeFault puts what the file system says into words; what others say stays.
func storeFault(err error) error {
	switch plain := sandbox.WithoutPath(err); {
	case plain == err:
		return err
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY):
		return fmt.Errorf("something else lies there: %w", fs.ErrExist)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: the server's disk is full", sandbox.ErrQuota)
	case errors.Is(err, fs.ErrClosed):
		return sandbox.ErrClosed
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return err
	default: // what the guest has made of its workspace
		return &sandbox.Error{Status: sandbox.StatusDenied, Err: fmt.Errorf("it can't be stored (%w)", plain)}
	}
}

// upload is a file on its way into a workspace.
type upload struct {
	session *session
	name    string
	made    []string // directories, the outermost first
	part    string   // what it is called until it is whole; "" = it has no name
	f       *os.File
}

// begin makes the directories above, and the file under another name.
func (u *upload) begin() (err error) {
	dir := path.Dir(u.name)
	if err := u.makeDirs(dir); err != nil {
		return err
	}
	part := path.Join(dir, uploadPrefix+rand.Text())
	u.f, err = u.session.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	u.part = part
	return u.give(u.f)
}

func (u *upload) makeDirs(dir string) error {
	root := u.session.root
	for i := range len(dir) + 1 {
		if i < len(dir) && dir[i] != '/' || dir == "." {
			continue
		}
		above := dir[:i]
		err := root.Mkdir(above, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		u.made = append(u.made, above)
		f, err := root.OpenFile(above, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		// A guest may have put another one there, which is not to be given away.
		if names, _ := f.Readdirnames(1); len(names) == 0 {
			err = u.give(f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// give makes the guest, or the operator whose directory the workspace is, the owner of
// what the server has just made as root.
func (u *upload) give(f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := u.session.folder.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.ErrUnsupported
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}

// copy writes what r gives, as far as there is room.
func (u *upload) copy(ctx context.Context, room *room, r io.Reader) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		k, err := r.Read(buf)
		if k > 0 {
			if err := room.take(int64(k)); err != nil {
				return n, err
			}
			w, err := u.f.Write(buf[:k])
			if n += int64(w); err != nil {
				return n, err
			}
		}
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// finish gives the file its name.
func (u *upload) finish() error {
	root := u.session.root
	if info, err := root.Lstat(u.name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "store", Path: u.name, Err: syscall.EISDIR}
	}
	ours, err := u.f.Stat()
	if err != nil {
		return err
	}
	if err := root.Rename(u.part, u.name); err != nil {
		return err
	}
	u.part = ""
	u.session.changes.came(u.f)
	is, err := root.Lstat(u.name)
	if err == nil && !os.SameFile(ours, is) {
		err = &sandbox.Error{Status: sandbox.StatusDenied, Err: errors.New("code in the session put another file in its place")}
	}
	return errors.Join(err, u.f.Close())
}

// undo takes all away again.
func (u *upload) undo() {
	root := u.session.root
	if u.f != nil {
		if u.part != "" {
			_ = u.f.Truncate(0)     // wherever a guest has moved it
			_ = root.Remove(u.part) // it may be gone with the session
		}
		u.f.Close()
	}
	for i := len(u.made) - 1; i >= 0; i-- {
		_ = root.Remove(u.made[i]) // not where a guest has put something there
	}
}
