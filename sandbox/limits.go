package sandbox

import (
	"errors"
	"fmt"
)

// Limits bound what one session may use. They hold for the whole session, its
// children and grandchildren included.
type Limits struct {
	Memory    int64 // bytes of memory; 0 = 2 GiB
	Tasks     int   // processes and threads; 0 = 256
	Disk      int64 // bytes in the workspace, and bytes in /tmp; 0 = 1 GiB
	Inodes    int   // files and directories in each of them; 0 = 100,000
	Shm       int64 // bytes of /dev/shm; 0 = 64 MiB
	OpenFiles int   // descriptors of one process; 0 = 256
	Output    int   // bytes kept of each stream in a result; 0 = 20,000
	Outputs   int64 // bytes kept beside results of what was too long for them; 0 = 64 MiB
}

// Resolve returns l with every zero replaced by its default, or all that is
// wrong with it.
func (l Limits) Resolve() (Limits, error) {
	var errs []error
	set := func(name string, v *int64, def, least int64) {
		if *v == 0 {
			*v = def
		}
		if *v < least {
			errs = append(errs, fmt.Errorf("%s: %d is below the least that works, %d", name, *v, least))
		}
	}
	setInt := func(name string, v *int, def, least int) {
		w := int64(*v)
		set(name, &w, int64(def), int64(least))
		*v = int(w)
	}
	set("memory", &l.Memory, 2<<30, 128<<20)
	setInt("max-tasks", &l.Tasks, 256, 16)
	set("max-disk", &l.Disk, 1<<30, 1<<20)
	setInt("max-inodes", &l.Inodes, 100_000, 100)
	set("shm", &l.Shm, 64<<20, 1<<20)
	setInt("open files", &l.OpenFiles, 256, 64)
	setInt("output", &l.Output, 20_000, 1000)
	set("max-output", &l.Outputs, 64<<20, 1<<20)
	return l, errors.Join(errs...)
}
