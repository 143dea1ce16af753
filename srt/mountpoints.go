package srt

import (
	"errors"
	"fmt"
)

// wallsOwn are places that the wall makes besides those that are reserved: a mount that
// holds one would hide it, or get directories of the wall's made in it.
var wallsOwn = []string{"/tmp", "/run/mcp-sandbox", "/var/tmp", "/var/cache/fontconfig"}

// checkMountPoints returns all that is wrong with where the mounts are to be seen: each
// needs a place of its own, which is neither the wall's nor in another. In the workspace
// nothing can be mounted: the mount's files would be seen by code and commands there, and
// neither counted nor served as the session's, and the place would be made on the host.
func checkMountPoints(mounts []Mount, prefixes []string) error {
	var faults []error
	for i, m := range mounts {
		fault := func(format string, a ...any) {
			faults = append(faults, fmt.Errorf("mount: %s at %s: %w", m.Host, m.Guest, fmt.Errorf(format, a...)))
		}
		switch {
		case within(m.Guest, guestWorkspace):
			fault("that lies in the workspace: name a place beside it, such as /data")
			continue
		case within(m.Guest, wallsOwn[1]):
			fault("that place belongs to the wall: name another, such as /data")
			continue
		}
		for _, own := range wallsOwn {
			if within(own, m.Guest) {
				fault("it would hide %s, which belongs to the wall: name another place, such as /data", own)
				break
			}
		}
		for _, prefix := range prefixes {
			if within(m.Guest, prefix) || within(prefix, m.Guest) {
				fault("the interpreter lies at %s, and of the two one would hide the other: name another place, such as /data", prefix)
				break
			}
		}
		for _, other := range mounts[:i] {
			if within(m.Guest, other.Guest) || within(other.Guest, m.Guest) {
				fault("%s is at %s, and one would lie in the other: give them places apart", other.Host, other.Guest)
			}
		}
	}
	return errors.Join(faults...)
}
