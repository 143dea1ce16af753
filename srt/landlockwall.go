package srt

import (
	"fmt"
	"strings"
)

// landlockWeaknesses are what a session behind the landlock wall gets less than behind the
// others, a sentence for each: for the log at start, doctor, and whoever asks.
var landlockWeaknesses = []string{
	"there are no namespaces: code can find out the host's name, and of files and processes whose name or number it guesses that they are there, and the files' sizes and times; it can't open, list or signal them",
	"code runs as the server's own user: what Landlock does not look at, the filter of system calls alone holds",
	"there are no sockets but pairs: no loopback, no UNIX sockets, and so no multiprocessing.Manager",
	"/dev/shm is the host's, and closed: no multiprocessing.Lock, Queue or Pool, no shared_memory",
	"/proc is closed but for a few files: no list of the session's own processes; what takes over from a checkpoint can't be copied again",
	"modes, owners and times of files can't be changed, not even those of the session's own",
	"temporary files lie on the server's disk, and a watch holds their limit, not the kernel",
	"without a control group a watch holds the limit of tasks: for a moment there may be twice as many",
}

// describeLandlock tells a person what p is behind the landlock wall.
func describeLandlock(p Policy) string {
	p = p.withDefaults()
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p.linesOfPlaces(line)
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
