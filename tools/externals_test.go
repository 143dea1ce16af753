package tools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// offering are externals that nobody calls.
type offering struct {
	sandbox.Externals
	servers []sandbox.ExternalServer
}

func (o *offering) Servers(context.Context) []sandbox.ExternalServer { return o.servers }

// What a client reads of the external tools when it lists ours.
func TestExternalsAreDescribed(t *testing.T) {
	some, begun := &offering{}, false
	tools := newTools(t, &sandboxtest.Fake{}, func(c *Config) {
		c.Externals = some
		c.Learn = func(ctx context.Context) {
			if begun = begun || ctx.Err() != nil; ctx.Err() != nil {
				return
			}
			some.servers = []sandbox.ExternalServer{{Name: "github", Note: "Issues", Tools: []string{"get_issue", "search-issues"}}, {Name: "down"}}
		}
	})
	c, err := client.NewInProcessClient(tools.Server())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	if !begun || len(some.servers) > 0 {
		t.Errorf("when a client comes: begun %v, %d servers", begun, len(some.servers))
	}
	for range 2 { // a list is not added to the last one's
		list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		python := list.Tools[0]
		if !strings.HasSuffix(python.Description, ":\n- github (Issues): get_issue, search-issues\n- down") || strings.Count(python.Description, "externals.SERVER.TOOL") != 1 {
			t.Errorf("%s is described so:\n%s", python.Name, python.Description)
		}
		if python.Annotations.OpenWorldHint == nil || !*python.Annotations.OpenWorldHint {
			t.Error("the world is not open")
		}
		if strings.Contains(list.Tools[1].Description, "externals") {
			t.Error("another tool tells of them")
		}
	}
}

// However many there are, the description stays short, and tells how to find the rest.
func TestExternalsDescriptionIsShort(t *testing.T) {
	var servers []sandbox.ExternalServer
	for i := range 40 {
		s := sandbox.ExternalServer{Name: fmt.Sprintf("server-%d", i), Note: strings.Repeat("n", 200)}
		for j := range 100 {
			s.Tools = append(s.Tools, fmt.Sprintf("tool_with_a_long_name_%d", j))
		}
		servers = append(servers, s)
	}
	text := describeExternals(servers)
	if len(text) > maxExternals+50 || !strings.Contains(text, "more: externals.search") || !strings.HasSuffix(text, "more servers: dir(externals)") {
		t.Errorf("%d bytes:\n%s", len(text), text)
	}
	if got := describeServer(sandbox.ExternalServer{Name: "s", Tools: []string{strings.Repeat("x", 400), "b"}}); got != "s: 2 tools: externals.search" {
		t.Errorf("a server of long names: %s", got)
	}
}

func TestCallsAreSummedUp(t *testing.T) {
	var all []sandbox.Call
	for i := range 40 {
		all = append(all, sandbox.Call{Name: "files.read", Duration: 10 * time.Millisecond, OK: true}, sandbox.Call{Name: "memory.find", Duration: time.Millisecond, OK: i > 1})
	}
	all = append(all, sandbox.Call{Name: "a.b", Duration: time.Second}, sandbox.Call{Name: "c.d\nstate: lost", OK: true}, sandbox.Call{Name: "x.y (ok, 0.1 s), z.w"})
	if got, want := calls(all), `files.read ×40 (ok, 0.400 s), memory.find ×40 (2 failed, 0.040 s), a.b (failed, 1.000 s), "c.d\nstate: lost" (ok, 0.000 s), "x.y (ok, 0.1 s), z.w" (failed, 0.000 s)`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	many := structured(sandbox.Result{Calls: make([]sandbox.Call, maxCalls+5)}, "")
	if len(many.Calls) != maxCalls || len(many.Notes) != 1 || many.Notes[0] != "5 more external calls are not listed" {
		t.Errorf("%d calls, %q", len(many.Calls), many.Notes)
	}
}
