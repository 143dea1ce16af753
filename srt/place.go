package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
)

// ErrBroad is in the error of a workspace, mount or prefix that would show
// code inside far more of this machine than a project.
var ErrBroad = errors.New("it would show code inside too much of this machine")

// errReplaced is what a start says of a place that is not what New saw there.
var errReplaced = errors.New("something else lies there than when the server started: restart it if that is right")

// tooBroad are directories that hold more than any project or interpreter
// needs. What lies in them may be named.
var tooBroad = slices.Concat(systemDirs, []string{
	"/", "/boot", "/dev", "/dev/shm", "/efi", "/etc", "/home", "/media", "/mnt", "/nix", "/nix/store", "/opt", "/root", "/snap",
	"/srv", "/tmp", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/sbin", "/usr/share",
	"/var", "/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp",
	"/Applications", "/Library", "/System", "/Users", "/Volumes", "/private", "/private/etc", "/private/tmp", "/private/var",
})

// kernelDirs are not for projects either, nor is anything in them: the kernel's
// own files, and the sockets of the system's servers.
var kernelDirs = []string{"/proc", "/sys", "/run"}

// removable is where some systems hang a person's disks, although it lies in /run.
const removable = "/run/media"

// findPlaces resolves the workspace and the mounts once and for all, and
// returns all that is wrong with them.
func (c *Config) findPlaces() error {
	var errs []error
	all := []named{}
	if c.Workspace != "" {
		p, err := find(named{what: "workspace", path: c.Workspace, writable: !c.WorkspaceReadOnly})
		if err == nil && !p.info.IsDir() {
			err = fmt.Errorf("workspace: %s is no directory", p.path)
		}
		c.Workspace = p.path
		all, errs = append(all, p), append(errs, err)
	}
	for i, m := range c.Mounts {
		p, err := find(named{what: "mount", path: m.Host, writable: m.Writable})
		c.Mounts[i].Host = p.path
		all, errs = append(all, p), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, a := range all {
		for _, b := range all[:i] {
			errs = append(errs, apart(b, a))
		}
	}
	return errors.Join(errs...)
}

// named is a place of the host that the operator named.
type named struct {
	what, path string
	writable   bool
	info       fs.FileInfo
}

// find follows the links of p's path, and refuses what is not to be shown.
func find(p named) (_ named, err error) {
	if p.path, err = resolved(p.path); err == nil {
		p.info, err = os.Stat(p.path)
	}
	if err == nil {
		err = narrow(p.path, p.info)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.what, err)
	}
	return p, err
}

// resolved is the absolute path without links, so that one changed later changes nothing.
func resolved(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return abs, err
	}
	return real, nil
}

// narrow refuses a place that shows more than a project. One file, named as
// such, may lie anywhere but among the kernel's.
func narrow(path string, info fs.FileInfo) error {
	switch {
	case within(path, kernelDirs...) && !(within(path, removable) && path != removable),
		info.IsDir() && slices.Contains(tooBroad, path):
		return fmt.Errorf("%s belongs to the system, and %w: name a project's own directory", path, ErrBroad)
	case info.Mode().IsRegular():
		return nil
	case !info.IsDir():
		return fmt.Errorf("%s is neither a directory nor a regular file", path)
	}
	for _, home := range homes() {
		if within(home, path) {
			return fmt.Errorf("%s holds the home directory %s with its keys and settings, and %w: name a project's own directory, such as %s",
				path, home, ErrBroad, filepath.Join(home, "project"))
		}
	}
	if tmp, err := tempDir(); err == nil && within(tmp, path) {
		return fmt.Errorf("%s holds %s, where servers keep the files of all sessions, and %w: name another directory, or set TMPDIR to one outside it",
			path, tmp, ErrBroad)
	}
	return nil
}

// homes are the home directories of the user: by the environment, and by the system.
func homes() []string {
	var all []string
	add := func(home string) {
		if real, err := resolved(home); err == nil && home != "" && real != "/" && !slices.Contains(all, real) {
			all = append(all, real)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(home)
	}
	if u, err := user.Current(); err == nil {
		add(u.HomeDir)
	}
	return all
}

// apart refuses two places of which one lies in the other while code can write
// to either: a session could put a link where the next one's mount is taken.
func apart(a, b named) error {
	if !a.writable && !b.writable {
		return nil
	}
	inner, outer := a, b
	if !holds(outer, inner) {
		inner, outer = b, a
		if !holds(outer, inner) {
			return nil
		}
	}
	return fmt.Errorf("%s %s lies in %s %s and code can write to one of them, so that a session could choose what the next one mounts: "+
		"give them places apart, or leave one of them out",
		inner.what, inner.path, outer.what, outer.path)
}

// holds goes by identity as well as by name: a directory may be mounted in two places.
func holds(outer, inner named) bool {
	if within(inner.path, outer.path) {
		return true
	}
	for p := inner.path; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && os.SameFile(info, outer.info) {
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}

// writable are the host's directories that code inside can write to.
func (c *Config) writable() []string {
	var all []string
	if c.Workspace != "" && !c.WorkspaceReadOnly {
		all = append(all, c.Workspace)
	}
	for _, m := range c.Mounts {
		if m.Writable {
			all = append(all, m.Host)
		}
	}
	return all
}

// hold keeps a descriptor of each place that the operator named. While it is
// open nothing else can become the same file to the kernel, so that a start can
// tell whether it mounts what New saw.
func (c *Config) hold() (held []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(held)
			held = nil
		}
	}()
	one := func(path string) (*os.File, error) {
		f, err := holdPlace(path)
		if err != nil {
			return nil, err
		}
		held = append(held, f)
		return f, nil
	}
	if c.Workspace != "" {
		if c.workspace, err = one(c.Workspace); err != nil {
			return held, err
		}
	}
	for i, m := range c.Mounts {
		if c.Mounts[i].held, err = one(m.Host); err != nil {
			return held, err
		}
	}
	return held, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// plainDirectory refuses a workspace that is a symbolic link: what lies at the path may
// have been put there by an earlier guest. "" is no workspace.
func plainDirectory(host string) error {
	if host == "" {
		return nil
	}
	switch fi, err := os.Lstat(host); {
	case err != nil:
		return err
	case fi.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link", host)
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory", host)
	}
	return nil
}
