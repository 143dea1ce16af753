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

// cgroupV2 has one tree, and hands controllers down in it group by group.
var cgroupV2 = &groupControls{
	version: 2,
	usage:   "memory.current", events: "memory.events",
	limit: limitV2,
}

func limitV2(c *cgroup, p Policy) error {
	dir := c.dirs[0]
	return errors.Join(
		c.fs.write(dir, "memory.max", strconv.FormatInt(p.Memory+supervisorAllowance, 10)),
		ifThere(c.fs.write(dir, "memory.swap.max", "0")),
		// One process too big must not take the supervisor and the standby with it.
		ifThere(c.fs.write(dir, "memory.oom.group", "0")),
		ifThere(c.fs.write(dir, "pids.max", strconv.Itoa(p.Tasks))), // RLIMIT_NPROC holds where it was not handed down
	)
}

// serverLeaf ends the name of the group a server moves itself into; see [cgroups.delegate].
const serverLeaf = ".server"

// delegation is what an operator can do for a server that may make no groups.
func delegation(uid int) string {
	if uid == 0 {
		return "systemd-run --scope -p Delegate=yes, or Delegate=yes in the unit"
	}
	return "systemd-run --user --scope -p Delegate=yes, or Delegate=yes in the unit"
}

// delegate makes the memory controller usable below the server's group. cgroup v2 gives a
// group with processes in it no controllers to hand down, unless it is the root; so where
// the server is alone in its group, as a service with delegation, it moves itself one down.
// With others in it, a user's shell for instance, that is not ours to do.
func (g *cgroups) delegate() error { return g.handDown("memory", "pids") }

// handDown is delegate for any controllers: the first is needed, of the others what there is.
func (g *cgroups) handDown(needed string, others ...string) error {
	dir := g.dirs[0]
	if !has(dir, "cgroup.controllers", needed) {
		return fmt.Errorf("no %s controller in %s; start the server by %s", needed, dir, delegation(os.Geteuid()))
	}
	if !has(dir, "cgroup.subtree_control", needed) {
		err := g.fs.write(dir, "cgroup.subtree_control", "+"+needed)
		if errors.Is(err, unix.EBUSY) {
			err = g.makeRoom(needed)
		}
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w; start the server by %s", err, delegation(os.Geteuid()))
		}
		if err != nil {
			return err
		}
	}
	for _, other := range others {
		if has(dir, "cgroup.controllers", other) && !has(dir, "cgroup.subtree_control", other) {
			_ = g.fs.write(dir, "cgroup.subtree_control", "+"+other) // countsTasks looks what became of it
		}
	}
	return nil
}

// makeRoom moves the server into a group of its own below its group, and hands the
// controller down. If that fails it moves back.
func (g *cgroups) makeRoom(controller string) error {
	dir := g.dirs[0]
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	self := strings.Split(g.prefix, ".")[1]
	if members := strings.Fields(string(procs)); len(members) > 1 || len(members) == 1 && members[0] != self {
		return fmt.Errorf("%d processes share the server's group %s; run it by itself: %s", len(members), dir, delegation(os.Geteuid()))
	}
	leaf := filepath.Join(dir, strings.TrimSuffix(g.prefix, ".")+serverLeaf)
	if err := g.fs.mkdir(leaf); err != nil {
		return err
	}
	if err = g.fs.write(leaf, "cgroup.procs", self); err == nil {
		if err = g.fs.write(dir, "cgroup.subtree_control", "+"+controller); err == nil {
			return nil
		}
		err = errors.Join(err, g.fs.write(dir, "cgroup.procs", self))
	}
	return errors.Join(err, g.fs.rmdir(leaf))
}
