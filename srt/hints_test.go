package srt

import (
	"strings"
	"testing"
)

func TestPathHint(t *testing.T) {
	p := Policy{Workspace: Mount{Host: "/h"}, Mounts: []Mount{{Host: "/d", Guest: "/data"}, {Host: "/o", Guest: "/out", Writable: true}}}
	got := p.pathHint()
	if want := "code sees /workspace (read-only), /data (read-only), /out (writable), /tmp (writable), besides"; !strings.Contains(got, want) {
		t.Errorf("%q lacks %q", got, want)
	}
	if strings.Contains(got, "/h") || strings.Contains(Policy{}.pathHint(), "/workspace") {
		t.Errorf("a path of the host's, or a workspace that is not there: %q, %q", got, Policy{}.pathHint())
	}
}

// Each limit that an error may be about is told with its value, and with the flag that
// changes it where there is one.
func TestLimitHints(t *testing.T) {
	got := Policy{Memory: 300 * mib, Disk: 3 * mib, Shm: 5 * mib, FileSize: 2 * mib, Tasks: 20, OpenFiles: 99, Inodes: 77}.hints()
	for kind, wants := range map[string][]string{
		"space":  {"3 MiB and 77 files", "a file 2 MiB (--max-disk)", "/dev/shm holds 5 MiB"},
		"files":  {"99 files"},
		"tasks":  {"20 processes", "(--max-tasks)"},
		"signal": {"20 processes", "(--max-tasks)", "not from a time limit"},
		"memory": {"300 MiB (--memory)"}, "refused": {"loopback"}, "network": {"no network"}, "path": {"--mount"}, "package": {"--python"},
	} {
		for _, want := range wants {
			if !strings.Contains(got[kind], want) {
				t.Errorf("%s: %q lacks %q", kind, got[kind], want)
			}
		}
	}
}
