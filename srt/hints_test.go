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
