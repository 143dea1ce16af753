package main

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"mcp-sandbox/srt"
)

// limitFacts are what a session may use, and who holds it to that.
func limitFacts(cfg localConfig, offered, proven []srt.Fact) []fact {
	lim, err := cfg.limits().Resolve()
	if err != nil {
		return nil // the flags have been checked
	}
	iec := func(n int64) string { return humanize.IBytes(uint64(n)) }
	facts := []fact{{"limits", "session", factInfo, fmt.Sprintf(
		"memory %s, %d tasks, %s and %d files in the workspace and again in /tmp, %s in /dev/shm, %d open files, %d bytes of each stream in a result and %s beside it",
		iec(lim.Memory), lim.Tasks, iec(lim.Disk), lim.Inodes, iec(lim.Shm), lim.OpenFiles, lim.Output, iec(lim.Outputs)), ""}}
	for _, name := range bounding {
		o, p := named(offered, name), named(proven, name)
		var f srt.Fact
		switch {
		case o < 0 && p < 0:
			continue
		case p < 0:
			f = offered[o]
		case o < 0:
			f = proven[p]
		default:
			f = confirmed(offered[o], proven[p])
		}
		facts = append(facts, fact{"limits", f.Name, string(f.State), f.Detail, f.Remedy})
	}
	return facts
}

// pythonFacts tell the interpreter, and what code can import.
func pythonFacts(p foundPython) []fact {
	packages := fact{"python", "packages", factOK, fmt.Sprintf("%d: %s", len(p.Packages), listed(p.Packages)), ""}
	if len(p.Packages) == 0 {
		packages = fact{"python", "packages", factInfo, "none but the standard library", "--requirements FILE, or --python with a virtual environment's bin/python"}
	}
	return []fact{{"python", "python", factOK, p.Version + ", " + p.Path, ""}, packages}
}

// listed is a list in lines of some eighty letters.
func listed(all []string) string {
	s, width := "", 0
	for i, one := range all {
		if i > 0 {
			s, width = s+",", width+1
			if width+len(one) > 80 {
				s, width = s+"\n", 0
			} else {
				s, width = s+" ", width+1
			}
		}
		s, width = s+one, width+len(one)
	}
	return s
}
