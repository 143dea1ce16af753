package tools

import (
	"fmt"
	"strings"
	"testing"

	"mcp-sandbox/sandbox/sandboxtest"
)

// The model is told what its code can reach, in a bounded text, and the client that there is
// a world.
func TestNetworkDescription(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("h%d.example.org", i))
	}
	for _, tt := range []struct {
		hosts []string
		want  string
		open  bool
	}{
		{nil, "\nNetwork: none; nothing can be installed.\n", false},
		{[]string{"example.org", "*.example.net:8443"}, "\nNetwork: example.org, *.example.net:8443, and no other hosts; through the proxy ", true},
		{many, "h11.example.org and 8 more, and no other hosts;", true},
	} {
		tools := newTools(t, &sandboxtest.Fake{}, func(c *Config) { c.Network = tt.hosts })
		for _, d := range tools.defs {
			switch {
			case d.Name == executePython && !strings.Contains(d.Description, tt.want):
				t.Errorf("%q lacks %q", d.Description, tt.want)
			case *d.Annotations.OpenWorldHint != (tt.open && d.Name == executePython):
				t.Errorf("%s, with %q: open world %v", d.Name, tt.hosts, !tt.open)
			}
		}
	}
}
