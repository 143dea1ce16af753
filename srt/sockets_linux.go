package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A socket in a shared directory belongs to a server of the host, and neither a network
// namespace nor a read-only mount stops a connect to it. From ABI 9 on Landlock does.
// Before, those that are known when a session starts are covered; SECURITY.md says what is
// left.

// findSockets tells each source which sockets of the host lie in it. It knows those of the
// server's network namespace that were bound by an absolute path.
func findSockets(sources []source) error {
	if len(sources) == 0 {
		return nil
	}
	table, err := os.ReadFile("/proc/self/net/unix")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without them
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for sockets in what is shown: %w", err)
	}
	var dir, real string // sorted, most share a directory with the one before
	for _, path := range boundPaths(string(table)) {
		if d := filepath.Dir(path); d != dir {
			dir = d
			if real, err = filepath.EvalSymlinks(dir); err != nil {
				real = "" // nothing is there, seen from here
			}
		}
		if real == "" {
			continue
		}
		path = filepath.Join(real, filepath.Base(path))
		for i, s := range sources {
			if path != s.Host && within(path, s.Host) {
				sources[i].Sockets = append(sources[i].Sockets, filepath.Join(s.Guest, strings.TrimPrefix(path, s.Host)))
			}
		}
	}
	return nil
}

// boundPaths are the absolute paths in the kernel's table of sockets, each once.
func boundPaths(table string) []string {
	var paths []string
	for line := range strings.Lines(table) { // Num RefCount Protocol Flags Type St Inode Path
		_, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " /") // an abstract name begins with @
		if ok {
			paths = append(paths, "/"+path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// coverSocket puts /dev/null in the place of a socket. The guest can neither take a mount
// away nor rename or link what lies under it. Where the guest can't go there is nothing to cover.
func coverSocket(root rootTree, guest string) error {
	at, err := root.open(guest, unix.O_PATH)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", guest, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fmt.Errorf("%s: %w", guest, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	null, err := root.open("/dev/null", unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return mask(root, null, guest)
}
