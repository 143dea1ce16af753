package srt

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tasksOfUser counts the tasks that the user runs now, in the session or not.
func tasksOfUser() (int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, fmt.Errorf("count tasks: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return 0, fmt.Errorf("count tasks: %w", err)
	}
	count, uid := 0, uint32(os.Geteuid())
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		var st unix.Stat_t
		// A directory has two links beside those of its directories. What is not dumpable
		// seems to be root's, and is left out: the margin is for that, too.
		if unix.Stat("/proc/"+name+"/task", &st) == nil && st.Uid == uid {
			count += int(st.Nlink) - 2
		}
	}
	return count, nil
}

// tasksOf counts the tasks behind a wall, but for the first, which is the wall's own.
func tasksOf(k kin) (int, error) {
	g, err := guestOf(k)
	n := 0
	for _, p := range g.others {
		n += len(p.threads)
	}
	return n, err
}
