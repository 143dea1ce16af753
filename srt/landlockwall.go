package srt

import (
	"fmt"
	"strings"
)

// landlockWeaknesses are what a session behind the landlock wall gets less than behind the
// others, a sentence for each: for the log at start, doctor, and whoever asks.
var landlockWeaknesses = []string{
	"there are no namespaces: the numbers of the host's processes, the names, sizes and times of its files, and its host name can be found out, though nothing can be opened, listed or signalled",
	"the guest is the server's own user: what Landlock does not look at is held by the filter of system calls alone",
	"there are no sockets but pairs: no loopback inside, no UNIX sockets, so no multiprocessing.Manager",
	"/dev/shm is the host's and closed: no multiprocessing.Lock, Queue or Pool, no shared_memory",
	"/proc is closed but for a few files about the machine; what a process may know of itself there, code alone has that has not been restored from a checkpoint",
	"modes, owners and times of files can't be changed by whoever is no owner of the place",
	"/tmp is a directory on the server's disk, held to its limit by a watch and not by the kernel",
	"without a control group tasks are held by a watch: more than allowed may run for a moment, and all of the user's count together",
}

// describeLandlock tells a person what p is behind the landlock wall.
func describeLandlock(p Policy) string {
	p = p.withDefaults()
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	if p.Workspace.Host == "" {
		line("workspace: none")
	} else {
		line("workspace: %v", p.Workspace)
	}
	for _, m := range p.Mounts {
		line("mount: %v", m)
	}
	line("read-only: %s", strings.Join(append([]string{"/usr", "a few files of /etc and /proc"}, p.ReadOnly...), ", "))
	line("private: a directory for temporary files (%s, %d files)", size(p.Disk), p.Inodes)
	if p.AllowExec {
		line("programs: from read-only places, the workspace, mounts and the directory for temporary files")
	} else {
		line("programs: from read-only places alone")
	}
	line("network: none, and no sockets")
	line("limits: memory %s, %d tasks, %d open files, files of %s", size(p.Memory), p.Tasks, p.OpenFiles, size(p.FileSize))
	line("identity: the server's own user, who can gain no privileges")
	for _, w := range landlockWeaknesses {
		line("weakness: %s", w)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
