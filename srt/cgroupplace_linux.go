package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// locateCgroups finds the server's own group in the hierarchy that has the memory
// controller. It changes nothing.
func locateCgroups(proc string) (*cgroups, error) {
	prefix, err := groupsOf(proc)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	g := &cgroups{fs: cgroupfs{}, files: cgroupV1, prefix: prefix}
	memory, err := ownGroup(string(own), string(mounts), "memory")
	if err != nil {
		return nil, err
	}
	if memory != "" {
		g.dirs = []string{memory}
		if pids, err := ownGroup(string(own), string(mounts), "pids"); err == nil && pids != "" {
			g.dirs = append(g.dirs, pids)
		}
		return g, nil
	}
	unified, err := ownGroup(string(own), string(mounts), "")
	if err != nil {
		return nil, err
	}
	if unified == "" {
		return nil, errors.New("no memory controller is mounted")
	}
	if name := filepath.Base(unified); strings.HasPrefix(name, groupPrefix) && strings.HasSuffix(name, serverLeaf) {
		unified = filepath.Dir(unified) // this server has moved itself already
	}
	g.files, g.dirs = cgroupV2, []string{unified}
	return g, nil
}

// ownGroup is the directory of the process's group in the v1 hierarchy with controller, or
// with "" in the v2 hierarchy; "" if there is no such hierarchy.
func ownGroup(own, mounts, controller string) (string, error) {
	group, ok := "", false
	for line := range strings.Lines(own) { // id:controllers:path
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) && (controller != "" || f[0] == "0") {
			group, ok = f[2], true
		}
	}
	if !ok {
		return "", nil
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f, fs := strings.Fields(before), strings.Fields(after) // … root point options…, type source superoptions
		if len(f) < 5 || len(fs) < 3 {
			continue
		}
		if v2 := controller == ""; v2 && fs[0] != "cgroup2" ||
			!v2 && (fs[0] != "cgroup" || !slices.Contains(strings.Split(fs[2], ","), controller)) {
			continue
		}
		// In a container the hierarchy may be mounted from the container's group on.
		below, err := filepath.Rel(unescape(f[3]), group)
		if err != nil || strings.HasPrefix(below, "..") {
			return "", fmt.Errorf("the server's group %s is not below %s", group, f[3])
		}
		return filepath.Join(unescape(f[4]), below), nil
	}
	return "", nil
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// groupsOf is how the names of the groups of the process at proc begin.
func groupsOf(proc string) (string, error) {
	pid, start, err := identity(filepath.Join(proc, "stat"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%s.%s.", groupPrefix, pid, start), nil
}

// identity reads a process's number and start time, which together name it for good.
func identity(stat string) (pid, start string, err error) {
	line, err := os.ReadFile(stat)
	if err != nil {
		return "", "", err
	}
	text := string(line)
	// The name in the second field may hold anything, a bracket and spaces too.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return "", "", fmt.Errorf("%s: %d fields", stat, len(f))
	}
	return strings.Fields(text)[0], f[19], nil
}
