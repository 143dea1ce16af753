package tools

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

const (
	learnTime    = 2 * time.Second // a client that lists the tools waits this long for those of external servers
	maxExternals = 1600            // bytes of the description that name external servers and tools
	maxOfServer  = 320             // bytes of one server's line
	maxCalls     = 100             // external calls that a structured result names
)

// offerExternals has execute_python's description name the external servers and their
// tools, as far as they are known when a client asks.
func (t *Tools) offerExternals(h *server.Hooks) {
	if t.cfg.Externals == nil {
		return
	}
	h.AddBeforeAny(func(ctx context.Context, _ any, method mcp.MCPMethod, _ any) {
		if method != mcp.MethodInitialize && method != mcp.MethodServerDiscover {
			return
		}
		// It will list the tools soon: what takes long is begun, and not waited for.
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		t.cfg.Learn(ctx)
	})
	h.AddBeforeListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest) {
		ctx, cancel := context.WithTimeout(ctx, learnTime)
		defer cancel()
		t.cfg.Learn(ctx)
	})
	h.AddAfterListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
		result.Tools = slices.Clone(result.Tools)
		for i := range result.Tools {
			if result.Tools[i].Name == executePython {
				result.Tools[i].Description += "\n" + describeExternals(t.cfg.Externals.Servers(ctx))
			}
		}
	})
}

// describeExternals is a line for each server: its tools' names, without schemas.
func describeExternals(servers []sandbox.ExternalServer) string {
	var b strings.Builder
	b.WriteString("External tools, outside the sandbox: call them in code, in loops too, as externals.SERVER.TOOL(name=value), and return only what is needed; " +
		"help(externals.SERVER) gives their arguments, externals.search(\"words\") finds some. Other characters than letters and digits are _ in names:")
	for i, s := range servers {
		line := "\n- " + describeServer(s)
		if b.Len()+len(line) > maxExternals {
			fmt.Fprintf(&b, "\n- and %d more servers: dir(externals)", len(servers)-i)
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func describeServer(s sandbox.ExternalServer) string {
	line := s.Name
	if s.Note != "" {
		line += " (" + s.Note + ")"
	}
	if len(s.Tools) == 0 {
		return line
	}
	names := ""
	for i, name := range s.Tools {
		if len(line)+len(names)+len(name) <= maxOfServer {
			names += ", " + name
			continue
		}
		left := fmt.Sprintf("%d tools", len(s.Tools))
		if i > 0 {
			left = fmt.Sprintf("%s, and %d more", names[2:], len(s.Tools)-i)
		}
		return line + ": " + left + ": externals.search"
	}
	return line + ": " + names[2:]
}

// callName is a call's name, quoted where it could be read as more than one: code names
// what it calls.
func callName(name string) string {
	if strings.ContainsAny(name, `,;()×"`) {
		return strconv.Quote(name)
	}
	return inLine(name)
}

// calls tells a person which external calls were made: those of one tool together.
func calls(all []sandbox.Call) string {
	type sum struct {
		name      string
		n, failed int
		took      time.Duration
	}
	var sums []*sum
	byName := map[string]*sum{}
	for _, c := range all {
		s := byName[c.Name]
		if s == nil {
			s = &sum{name: callName(c.Name)}
			byName[c.Name] = s
			sums = append(sums, s)
		}
		s.n++
		s.took += c.Duration
		if !c.OK {
			s.failed++
		}
	}
	var names []string
	for _, s := range sums {
		took := fmt.Sprintf("%.3f s", s.took.Seconds())
		switch {
		case s.n == 1 && s.failed == 1:
			names = append(names, fmt.Sprintf("%s (failed, %s)", s.name, took))
		case s.n == 1:
			names = append(names, fmt.Sprintf("%s (ok, %s)", s.name, took))
		case s.failed == 0:
			names = append(names, fmt.Sprintf("%s ×%d (ok, %s)", s.name, s.n, took))
		default:
			names = append(names, fmt.Sprintf("%s ×%d (%d failed, %s)", s.name, s.n, s.failed, took))
		}
	}
	return few(names)
}
