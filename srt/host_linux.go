package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkHost reports what this host lacks that no wall can be made or watched without. It is
// asked before anything is started: later the same lack shows as a file that is not found,
// or as one that belongs to another process. proc is where /proc is.
func (n *native) checkHost(proc string) error {
	if err := ownProc(proc); err != nil {
		return err
	}
	if n.root && !(capable(unix.CAP_SETUID) && capable(unix.CAP_SETGID)) {
		return &LayerError{Layer: layerUserns, Err: errors.New("root without CAP_SETUID and CAP_SETGID can't make another user of the guest"),
			Remedy: "give it both, or run the server as an ordinary user: docker run --user 1000:1000"}
	}
	for file, id := range map[string]int{"uid_map": n.uid, "gid_map": n.gid} {
		text, err := os.ReadFile(filepath.Join(proc, "self", file))
		if err != nil {
			return failed(layerUserns, err)
		}
		if !mapped(string(text), id) {
			return &LayerError{Layer: layerUserns, Err: fmt.Errorf("guests are to run as %d, which the server's own user namespace does not know", id),
				Remedy: "run the server as an ordinary user of it, or give the namespace a range of ids: unshare --map-auto, newuidmap"}
		}
	}
	for _, d := range devices {
		if _, err := os.Stat(d.path); err != nil {
			return &LayerError{Layer: layerMounts, Err: err, Remedy: "start the server where /dev has null, zero, full, random and urandom"}
		}
	}
	return nil
}

// ownProc reports what is wrong with /proc. One of another PID namespace numbers processes
// otherwise, so that the server would look at, and write to, those of strangers.
func ownProc(proc string) error {
	self, err := os.Readlink(filepath.Join(proc, "self"))
	if err == nil && self != strconv.Itoa(os.Getpid()) {
		err = fmt.Errorf("/proc is of another PID namespace: there this process is %s, here %d", self, os.Getpid())
	}
	if err != nil {
		return &LayerError{Layer: layerProc, Err: err, Remedy: "mount one for the server: mount -t proc proc /proc, or unshare --mount-proc, bwrap --proc /proc"}
	}
	return nil
}

// mapped reports whether a map of user or group ids has id inside.
func mapped(text string, id int) bool {
	for line := range strings.Lines(text) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside <= int64(id) && int64(id) < inside+count {
			return true
		}
	}
	return false
}
