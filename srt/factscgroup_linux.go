package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cgroup tells which hierarchy there is, with which controllers, and whether the server may
// make groups in it: that n has tried.
func (h host) cgroup(n *native) Fact {
	found := h.hierarchy()
	if n != nil && n.limitsMemory() {
		return Fact{factCgroup, FactAvailable, found + "; " + n.memory, ""}
	}
	why := "not tried, since the wall can't be raised"
	if n != nil {
		why = n.memory
	}
	return missing(factCgroup, found+"; "+why, h.delegation())
}

// hierarchy says in words which control groups are mounted.
func (h host) hierarchy() string {
	own, ok := h.read("proc/self/cgroup")
	if !ok {
		return "not built into this kernel"
	}
	mounts, _ := h.read("proc/self/mountinfo")
	var v1 []string
	for line := range strings.Lines(own) { // id:controllers:path
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, c := range []string{"memory", "pids", "cpu"} {
			if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), c) {
				if dir, err := ownGroup(own, mounts, c); err == nil && dir != "" {
					v1 = append(v1, c)
				}
			}
		}
	}
	slices.Sort(v1)
	if len(v1) > 0 {
		return "v1 with " + strings.Join(slices.Compact(v1), ", ")
	}
	dir, err := ownGroup(own, mounts, "")
	switch {
	case err != nil:
		return err.Error()
	case dir == "":
		return "none is mounted"
	}
	controllers, ok := h.read(filepath.Join(dir, "cgroup.controllers"))
	if !ok || controllers == "" {
		return fmt.Sprintf("v2 at %s, which has no controllers", dir)
	}
	return fmt.Sprintf("v2 at %s with %s", dir, strings.Join(strings.Fields(controllers), ", "))
}

// delegation is how the server gets groups of its own.
func (h host) delegation() string {
	const otherwise = "without, RLIMIT_DATA bounds each process and the watchdog their sum"
	switch {
	case h.has("run/systemd/system") && h.uid == 0:
		return "systemd-run --scope -p Delegate=yes mcp-sandbox …, or the unit packaging/systemd/mcp-sandbox.service; " + otherwise
	case h.has("run/systemd/system"):
		return "systemd-run --user --scope -p Delegate=yes mcp-sandbox …, or the user unit of packaging/systemd; " + otherwise
	case h.has(".dockerenv"), h.has("run/.containerenv"):
		return "docker run --cgroupns=private with /sys/fs/cgroup writable; " + otherwise
	}
	return otherwise
}

// inGroupOfOurs reports whether a process is in a control group that a server has made.
func inGroupOfOurs(pid int) bool {
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(own), "/"+groupPrefix)
}
