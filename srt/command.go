package srt

import (
	"errors"
	"fmt"
	"os"

	"mcp-sandbox/srt/egress"
)

// command is what runs behind the wall, as PID 1 there. Its standard input is /dev/null.
type command struct {
	Path           string            // absolute, as the guest sees it
	Args           []string          // what follows the program's name
	Env            []string          // all of it: nothing of the server's environment is added
	Dir            string            // absolute, as the guest sees it; "" is /tmp
	Files          map[string][]byte // small read-only files by guest path; not below any mount
	Stdout, Stderr *os.File          // descriptors 1 and 2; nil is /dev/null
	Extra          []*os.File        // descriptors 3, 4, …
	Held           bool              // it runs nothing of the guest's until the caller says so, after start
	Sockets        *os.File          // over it, a Unix socket, come dialSockets TCP sockets of the guest's network; nil = none
	Proxy          egress.Config     // how the policy's rules for the network are served; its own are not looked at
	OOMFD          bool              // after Extra, one of the program's own oom_score_adj, open for writing
}

const maxExtra = 32 // descriptors

// validate returns all faults of c together. Files are written before the mounts are
// there, and one below a mount would be hidden by it.
func (c command) validate(p Policy) error {
	var faults []error
	if !clean(c.Path) || !clean(c.Dir) {
		faults = append(faults, fmt.Errorf("path %q, directory %q: not absolute, clean paths", c.Path, c.Dir))
	}
	if len(c.Extra) > maxExtra {
		faults = append(faults, fmt.Errorf("%d extra descriptors are more than %d", len(c.Extra), maxExtra))
	}
	covered := append([]string{"/proc", "/sys", "/dev", "/etc", "/tmp", "/var/tmp"}, systemDirs...)
	covered = append(covered, p.ReadOnly...)
	for _, s := range p.Programs {
		covered = append(covered, s.Guest)
	}
	for _, m := range p.shown() {
		covered = append(covered, m.Guest)
	}
	if c.OOMFD && p.bare() {
		faults = append(faults, errors.New("a descriptor of oom_score_adj: there is no /proc in a root of programs"))
	}
	total := 0
	for name, content := range c.Files {
		total += len(content)
		if !clean(name) || within(name, covered...) {
			faults = append(faults, fmt.Errorf("file %q: not a path of the root's own", name))
		}
	}
	if total > 8*mib {
		faults = append(faults, fmt.Errorf("files of %d bytes are more than 8 MiB", total))
	}
	return errors.Join(faults...)
}

// validateHost is validate for a wall that makes no root of its own.
func (c command) validateHost() error {
	var faults []error
	if !clean(c.Path) || c.Dir != "" && !clean(c.Dir) {
		faults = append(faults, fmt.Errorf("path %q, directory %q: not absolute, clean paths", c.Path, c.Dir))
	}
	if len(c.Extra) > maxExtra {
		faults = append(faults, fmt.Errorf("%d extra descriptors are more than %d", len(c.Extra), maxExtra))
	}
	for name := range c.Files {
		if !clean(name) {
			faults = append(faults, fmt.Errorf("file %q: not an absolute, clean path", name))
		}
	}
	return errors.Join(faults...)
}
