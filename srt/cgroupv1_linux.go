package srt

import (
	"errors"
	"os"
	"strconv"
)

// cgroupV1 has a tree for every controller: a session's group is one directory in that of
// memory, and another in that of pids.
var cgroupV1 = &groupControls{
	version: 1,
	usage:   "memory.usage_in_bytes", events: "memory.oom_control", total: "total_",
	limit: limitV1,
}

func limitV1(c *cgroup, p Policy) error {
	memory := strconv.FormatInt(p.Memory+supervisorAllowance, 10)
	err := c.fs.write(c.dirs[0], "memory.limit_in_bytes", memory)
	switch swap := c.fs.write(c.dirs[0], "memory.memsw.limit_in_bytes", memory); {
	case errors.Is(swap, os.ErrNotExist): // the kernel does not count swap, so none may be used
		err = errors.Join(err, ifThere(c.fs.write(c.dirs[0], "memory.swappiness", "0")))
	default:
		err = errors.Join(err, swap)
	}
	if len(c.dirs) > 1 {
		err = errors.Join(err, c.fs.write(c.dirs[1], "pids.max", strconv.Itoa(p.Tasks)))
	}
	return err
}
