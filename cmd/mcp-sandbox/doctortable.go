package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"mcp-sandbox/sandbox"
)

// groups in the order of the table, and what they are called there.
var groups = []struct{ name, title string }{
	{"walls", "Walls"}, {"layers", "What walls are made of"}, {"limits", "Limits of a session"}, {"sandbox", "Sandbox"},
	{"python", "Python"}, {"commands", "Commands of execute_cli"}, {"workload", "Remote"}, {"host", "This machine"},
}

// stateColours are ANSI's.
var stateColours = map[string]string{factActive: "32", factOK: "32", factAvailable: "36", factMissing: "31", factInfo: "2"}

func (p program) printDiagnosis(d diagnosis, local, asJSON bool) error {
	// A table is read by groups; so is the list.
	slices.SortStableFunc(d.Facts, func(a, b fact) int { return groupOf(a) - groupOf(b) })
	if asJSON {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(d)
	}
	_, err := io.WriteString(p.stdout, table(d, local, colourful(p.stdout)))
	return err
}

func groupOf(f fact) int {
	for i, g := range groups {
		if g.name == f.Group {
			return i
		}
	}
	return len(groups)
}

// table is the diagnosis for a person.
func table(d diagnosis, local, colours bool) string {
	paint := func(code, text string) string {
		if !colours {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	name, state := 0, 0
	for _, f := range d.Facts {
		name, state = max(name, len(f.Name)), max(state, len(f.State))
	}
	indent := strings.Repeat(" ", name+state+6)
	var b strings.Builder
	group := ""
	for _, f := range d.Facts {
		if f.Group != group {
			group = f.Group
			title := group
			if i := groupOf(f); i < len(groups) {
				title = groups[i].title
			}
			fmt.Fprintf(&b, "%s\n", paint("1", title))
		}
		lines := strings.Split(f.Detail, "\n")
		fmt.Fprintf(&b, "  %-*s  %s%s  %s\n", name, f.Name, paint(stateColours[f.State], f.State), strings.Repeat(" ", state-len(f.State)), lines[0])
		for _, more := range lines[1:] {
			fmt.Fprintf(&b, "%s%s\n", indent, more)
		}
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%s%s\n", indent, paint("33", "→ "+f.Remedy))
		}
	}
	fmt.Fprintf(&b, "%s\n", d.verdict(local, paint))
	return b.String()
}

func (d diagnosis) verdict(local bool, paint func(code, text string) string) string {
	remote := d.Backend == sandbox.BackendWorkload
	switch {
	case d.Ready && remote && local:
		return paint("1;32", "ready") + ": Python runs remotely, commands here"
	case d.Ready && remote:
		return paint("1;32", "ready") + ": Python runs remotely; execute_cli is not offered, since no wall can be raised here"
	case d.Ready:
		return paint("1;32", "ready") + ": Python runs here, behind the wall " + d.Wall
	case remote:
		return paint("1;31", "not ready") + ": Python is to run remotely, where nothing can be reached"
	}
	return paint("1;31", "not ready") + ": no code will be run on this machine"
}
