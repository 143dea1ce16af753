package srt

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
)

//go:embed proof.py
var proofCode string

// testimony is what proof.py says.
type testimony struct {
	Status     map[string]string
	Namespaces map[string]string
	Landlock   string
	Limits     map[string]int64
	PID        int
	UID        int
	Processes  []int
}

// Prove opens a session and looks what holds around its code. What it returns is active;
// what it leaves out is not part of this wall, or could not be seen to hold. That nothing
// gets through the wall New has tried.
func (l *Local) Prove(ctx context.Context) (_ []Fact, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s, err := l.openCold(ctx, sandbox.Spec{ID: "proof"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	res, err := s.Run(ctx, sandbox.Request{Code: proofCode, Timeout: 20 * time.Second})
	if err != nil {
		return nil, err
	}
	if !res.Success() {
		return nil, fmt.Errorf("srt: the code that looks at the wall ended as %s: %s", res.Status, res.Error)
	}
	var t testimony
	if err := json.Unmarshal(res.ReturnValue, &t); err != nil {
		return nil, fmt.Errorf("srt: the code that looks at the wall told nothing: %w", err)
	}
	facts := t.facts(func(name string) string {
		link, _ := os.Readlink("/proc/self/ns/" + name)
		return link
	})
	return append(facts, l.bounds(s, t)...), nil
}

// facts compares with the server's own namespaces.
func (t testimony) facts(ours func(namespace string) string) []Fact {
	var facts []Fact
	active := func(name, detail string) { facts = append(facts, Fact{name, FactActive, detail, ""}) }
	apart := func(names ...string) bool {
		for _, n := range names {
			if inside, outside := t.Namespaces[n], ours(n); inside == "" || outside == "" || inside == outside {
				return false
			}
		}
		return true
	}
	for _, ns := range []struct {
		name  string
		files []string
	}{
		{factUserns, []string{"user"}}, {factMountns, []string{"mnt"}}, {factPIDns, []string{"pid"}},
		{factNetns, []string{"net"}}, {factOtherns, []string{"ipc", "uts", "cgroup"}},
	} {
		if apart(ns.files...) {
			active(ns.name, "another than the server's")
		}
	}
	if apart("pid") && len(t.Processes) > 0 && t.Processes[0] == 1 && len(t.Processes) < 8 {
		active(factProc, fmt.Sprintf("shows %d processes, the session's", len(t.Processes)))
	}
	if t.unprivileged() {
		active(factIdentity, "no capability, none to be gained (no_new_privs)")
	}
	if t.Landlock == "holds" {
		active(factLandlock, "refuses what the file system allows")
	}
	if t.Status["Seccomp"] == "2" {
		active(factSeccomp, "a filter stands")
	}
	return facts
}

func (t testimony) unprivileged() bool {
	for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
		if v, ok := t.Status[set]; !ok || strings.Trim(v, "0") != "" {
			return false
		}
	}
	return t.Status["NoNewPrivs"] == "1" && t.UID != 0
}

// bounds are the limits that hold for a session's processes.
func (l *Local) bounds(s *session, t testimony) []Fact {
	var facts []Fact
	lim := l.cfg.Limits
	within := func(name string, most int64) bool {
		v, ok := t.Limits[name]
		return ok && v >= 0 && v <= most && v < math.MaxInt64 // -1 is none
	}
	if within("NOFILE", int64(lim.OpenFiles)) && within("DATA", lim.Memory) && within("FSIZE", lim.Disk) {
		detail := fmt.Sprintf("%d open files, files of %s, data of %s for each process", t.Limits["NOFILE"], size(t.Limits["FSIZE"]), size(t.Limits["DATA"]))
		if within("NPROC", int64(lim.Tasks)) { // not where all of the user's count together
			detail = fmt.Sprintf("%d tasks, %s", t.Limits["NPROC"], detail)
		}
		facts = append(facts, Fact{factRlimits, FactActive, detail, ""})
	}
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	if live == nil {
		return facts
	}
	if l.wall.limitsMemory() && inGroupOfOurs(live.cage.Pid()) {
		return append(facts, Fact{factCgroup, FactActive, "holds the memory of all of a session's processes together: " + size(lim.Memory), ""})
	}
	if live.watchdog != nil {
		facts = append(facts, Fact{factWatchdog, FactActive, "ends a session whose processes together go beyond " + size(lim.Memory), ""})
	}
	return facts
}
