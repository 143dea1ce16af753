package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryBounds are what bounds the memory of the server and its sessions together: the
// machine's, and the limits of the control groups that the server is in. What can't be
// read bounds nothing. proc is where /proc is.
func memoryBounds(proc string) []memoryBound {
	machine, err := machineMemory(filepath.Join(proc, "meminfo"))
	if err != nil {
		return nil
	}
	bounds := []memoryBound{machine}
	own, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return bounds
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return bounds
	}
	for controller, files := range map[string]groupFiles{
		"memory": {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		"":       {"memory.max", "memory.current", "inactive_file"},
	} {
		dir, err := ownGroup(string(own), string(mounts), controller)
		if err != nil || dir == "" {
			continue
		}
		for ; isGroup(dir); dir = filepath.Dir(dir) {
			if b, err := files.read(dir); err == nil && b.limit < machine.limit { // no limit is a huge one, or a word
				bounds = append(bounds, b)
			}
		}
	}
	return bounds
}

func isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil
}

// machineMemory takes for free what the kernel expects to be able to give.
func machineMemory(meminfo string) (b memoryBound, err error) {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return b, err
	}
	if b.limit, err = field(string(text), "MemTotal:"); err != nil {
		return b, err
	}
	b.free, err = field(string(text), "MemAvailable:")
	b.limit, b.free = b.limit<<10, b.free<<10
	return b, err
}

// groupFiles are what a version of control groups calls a group's limit, its use, and the
// part of that which the kernel gives up first: files that nobody has read lately.
type groupFiles struct{ limit, used, idle string }

func (f groupFiles) read(dir string) (b memoryBound, err error) {
	number := func(file string) (int64, error) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	if b.limit, err = number(f.limit); err != nil {
		return b, err
	}
	used, err := number(f.used)
	if err != nil {
		return b, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return b, err
	}
	idle, err := field(string(stat), f.idle)
	b.free = b.limit - used + idle
	return b, err
}

// field is the number behind a name that begins a line.
func field(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s", name)
}
