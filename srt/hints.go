package srt

import (
	"fmt"
	"strings"

	"mcp-sandbox/sandbox/kernel"
)

// hints explain what the sandbox does not let code do, by the kind of the error; see
// hints.py, which tells the kinds apart.
func (p Policy) hints() map[string]string {
	p = p.withDefaults()
	disk := kernel.Bytes(p.Disk)
	return map[string]string{
		"network": p.networkHint(), "path": p.pathHint(), "package": p.packageHint(),
		"refused": "Nothing listens there. The sandbox has a loopback of its own: code reaches the servers that it starts itself, and none of this machine.",
		"space": fmt.Sprintf("%s holds at most %s and %d files, as does a writable workspace, and a file %s (--max-disk); /dev/shm holds %s. Delete what is not needed.",
			p.tmp(), disk, p.Inodes, kernel.Bytes(p.FileSize), kernel.Bytes(p.Shm)),
		"files":  fmt.Sprintf("A process may have %d files and sockets open at once: close what is not needed.", p.OpenFiles),
		"tasks":  "The limit is met: " + p.tasksHint() + " (--max-tasks). End or join some.",
		"memory": fmt.Sprintf("The session's memory limit is %s (--memory).", kernel.Bytes(p.Memory)),
		"signal": "It came from the code itself, not from a time limit. Native libraries do so where they can't start their threads: " +
			p.tasksHint() + " (--max-tasks). stderr may say more.",
	}
}

func (p Policy) tasksHint() string {
	return fmt.Sprintf("a session may have %d processes and threads at once", p.Tasks)
}

// pathHint explains a path that is not there, or can't be written.
func (p Policy) pathHint() string {
	places := []string{}
	for _, m := range p.withDefaults().shown() {
		how := "read-only"
		if m.Writable {
			how = "writable"
		}
		places = append(places, fmt.Sprintf("%s (%s)", m.Guest, how))
	}
	places = append(places, p.tmp()+" (writable)")
	return "Of this machine's files code sees " + strings.Join(places, ", ") +
		", besides Python and the system's libraries, read-only. The operator of this server adds a directory by --mount SRC:DST, writable by --mount SRC:DST:rw."
}
