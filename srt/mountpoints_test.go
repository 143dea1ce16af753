package srt

import (
	"strings"
	"testing"
)

func TestMountPoints(t *testing.T) {
	for name, tt := range map[string]struct {
		guests []string
		want   string // part of the error; "" = none
	}{
		"apart":                   {[]string{"/data", "/database", "/run/data", "/opt/x", "/home", "/tmp/x"}, ""},
		"twice":                   {[]string{"/data", "/data"}, "give them places apart"},
		"one in the other":        {[]string{"/data", "/data/sub"}, "give them places apart"},
		"the other way":           {[]string{"/data/sub", "/data"}, "give them places apart"},
		"the workspace":           {[]string{"/workspace"}, "name a place beside it"},
		"in the workspace":        {[]string{"/workspace/data"}, "name a place beside it"},
		"beside it":               {[]string{"/workspace2"}, ""},
		"the root":                {[]string{"/"}, "would hide /tmp"},
		"over the wall's own":     {[]string{"/run"}, "would hide /run/mcp-sandbox"},
		"in the wall's own":       {[]string{"/run/mcp-sandbox/kernel"}, "belongs to the wall"},
		"where the wall makes":    {[]string{"/var"}, "would hide /var/tmp"},
		"beside what it makes":    {[]string{"/var/lib/x"}, ""},
		"over the interpreter":    {[]string{"/opt"}, "the interpreter lies at /opt/py"},
		"in the interpreter":      {[]string{"/opt/py/lib"}, "the interpreter lies at /opt/py"},
		"all faults are together": {[]string{"/workspace/x", "/run", "/opt"}, "/opt/py"},
	} {
		var mounts []Mount
		for _, g := range tt.guests {
			mounts = append(mounts, Mount{Host: "/h", Guest: g})
		}
		prefixes := []string{"/opt/py"}
		if strings.HasPrefix(name, "apart") {
			prefixes = nil
		}
		err := checkMountPoints(mounts, prefixes)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if name == "all faults are together" && strings.Count(err.Error(), "mount:") != 3 {
			t.Errorf("%v", err)
		}
	}
}
