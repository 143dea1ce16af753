package srt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryOf adds up what all processes behind the wall use, and what they hold. Resident sizes count pages that processes share once for
// each of them, so only a sum beyond limit is counted again, exactly and at greater cost.
func memoryOf(k kin, limit int64, h held) (int64, error) {
	g, err := guestOf(k)
	if err != nil {
		return 0, err
	}
	files, devices := memoryFiles(k.first)
	all := append(g.others, g.first)
	total := files + h.memory
	for _, p := range all {
		total += resident(p.live())
	}
	if total <= limit {
		return total, nil
	}
	total = files + h.memory
	for _, p := range all {
		dir := p.live()
		n, err := proportional(dir, func(id fileID) bool {
			_, counted := h.files[id]
			return counted || devices[id.dev]
		})
		if err != nil {
			n = resident(dir)
		}
		total += n
	}
	return total, nil
}

// live is where the memory of a process can be read: a leading thread that has ended
// before the others shows none.
func (p process) live() string {
	for _, t := range p.threads {
		if !t.dead {
			return t.dir
		}
	}
	return p.dir
}

func resident(dir string) int64 {
	b, err := os.ReadFile(dir + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// proportional adds up a process's shares of its pages, but for mappings of files that
// are counted already.
func proportional(dir string, counted func(fileID) bool) (int64, error) {
	b, err := os.ReadFile(dir + "/smaps")
	if err != nil {
		return 0, err
	}
	var total int64
	skip := false
	for line := range bytes.Lines(b) {
		if m, ok := parseMapping(line); ok {
			skip = m.id.ino != 0 && counted(m.id)
			continue
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok && !skip {
			kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, err
			}
			total += kb << 10
		}
	}
	return total, nil
}

// memoryFiles is what /tmp and /dev/shm hold, memory that belongs to no process, and
// which devices they are.
func memoryFiles(pid int) (total int64, devices map[uint64]bool) {
	devices = map[uint64]bool{}
	for _, dir := range []string{"tmp", "dev/shm"} {
		place := fmt.Sprintf("/proc/%d/root/%s", pid, dir)
		var fs unix.Statfs_t
		var st unix.Stat_t
		if unix.Statfs(place, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && unix.Stat(place, &st) == nil {
			total += int64(fs.Blocks-fs.Bfree) * fs.Bsize
			devices[uint64(st.Dev)] = true
		}
	}
	return total, devices
}

// canWatchMemory reports what the watch on memory needs of this host and does not find.
func canWatchMemory() error {
	_, shm := memoryDevice()
	var errs []error
	for _, file := range []string{"statm", "smaps", "maps", "stat", "root/proc/self/stat", "fd/0", "task"} {
		if _, err := os.Stat("/proc/self/" + file); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, shm)...); err != nil {
		return fmt.Errorf("srt: the memory of a session can't be watched without a control group: %w", err)
	}
	return nil
}

// memoryDevice is the device of the kernel's own memory file system, where memory files,
// System V segments and shared anonymous mappings are.
func memoryDevice() (uint64, error) {
	fd, err := unix.MemfdCreate("mcp-sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return uint64(st.Dev), nil
}

// sharedMemoryOf is what the file system of /dev/shm holds behind a wall that gives it no
// size. Of its inodes some are the wall's own devices.
func sharedMemoryOf(k kin) (usage, error) {
	var fs unix.Statfs_t
	place := fmt.Sprintf("/proc/%d/root/dev/shm", k.first)
	if err := unix.Statfs(place, &fs); err != nil {
		return usage{}, fmt.Errorf("srt: %s: %w", place, err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return usage{}, fmt.Errorf("srt: %s is in no memory of its own", place)
	}
	return usage{bytes: int64(fs.Blocks-fs.Bfree) * fs.Bsize, inodes: int(fs.Files - fs.Ffree)}, nil
}
