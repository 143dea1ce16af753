package tools

import (
	"fmt"
	"slices"
	"strings"

	"mcp-sandbox/sandbox"
)

// Remote is what the workload backend is, as far as descriptions tell.
type Remote struct {
	Image     string // of the containers
	Stateless bool   // each call has a container of its own
}

func (r Remote) describeState() string {
	if r.Stateless {
		return "Nothing is remembered between calls: each has a fresh container, and `state` is none."
	}
	return "State survives between calls: variables, imports and functions of earlier calls in the session are there, unless `state` says that they are lost."
}

// text is a tool's description, as yet with its gaps.
func (c Config) text(tool string) (string, error) {
	files := []string{tool}
	if tool == executePython && slices.Contains(c.Backends, sandbox.BackendWorkload) {
		files = []string{tool + "_workload"}
		switch {
		case len(c.Backends) < 2:
		case c.Backends[0] == sandbox.BackendLocal:
			files = []string{tool, tool + "_workload"}
		default:
			files = []string{tool + "_workload", tool}
		}
	}
	var texts []string
	for _, f := range files {
		b, err := schemas.ReadFile("schema/" + f + ".md")
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimSpace(string(b)))
	}
	if len(texts) == 2 {
		return fmt.Sprintf("By default (`backend` %s):\n\n%s\n\nWith `backend` %s in a session's first call, for the whole session:\n\n%s", c.Backends[0], texts[0], c.Backends[1], texts[1]), nil
	}
	return texts[0], nil
}

// backendProperty is the argument's schema, where there is a choice.
func (c Config) backendProperty() string {
	if len(c.Backends) < 2 {
		return ""
	}
	return fmt.Sprintf(`,
    "backend": {
      "type": "string",
      "enum": [%q, %q],
      "description": "Where the session's Python runs: local, in a sandbox of the server's machine, or workload, in a container of a cluster. Its first call decides; %s unless said."
    }`, c.Backends[0], c.Backends[1], c.Backends[0])
}
