package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
)

// fact is one ability of this machine.
type fact struct {
	Name   string `json:"name"`
	State  string `json:"state"` // ok, missing; host = what the host says of itself
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// doctor says what this machine can enforce. It is ready, and exits with 0, if
// the sandbox starts and its self-test passes; the facts tell why it does not.
func (p program) doctor(ctx context.Context, c cli) int {
	facts := p.facts()
	local := localConfig{wallFlags: c.Doctor.wallFlags, allow: c.Doctor.list(), log: p.logger(c.logFlags, slog.LevelWarn)}
	if len(c.Doctor.Preload) > 0 { // one is enough to try the imports
		local.Warm, local.Preload = 1, c.Doctor.Preload
	}
	l, err := p.openLimited(ctx, local)
	ready := err == nil
	if ready {
		facts = append(facts,
			fact{Name: "python", State: "ok", Detail: fmt.Sprintf("%s with %d packages, %s", l.python, len(l.packages), l.path)},
			fact{Name: "warm", State: "ok", Detail: c.Doctor.warmFlags.String()},
			fact{Name: "sandbox", State: "ok", Detail: l.String()})
		if l.wall != "" {
			facts = append(facts, fact{Name: "wall", State: "ok", Detail: strings.Join(append([]string{l.wall}, l.lesser...), "\n")})
		}
		facts = append(facts, l.commandFacts()...)
		if err := l.close(); err != nil {
			return p.fail(exitFailed, err)
		}
	} else {
		detail, remedy := diagnose(err)
		facts = append(facts, fact{Name: "sandbox", State: "missing", Detail: detail, Remedy: remedy})
	}
	if err := p.printFacts(facts, ready, c.Doctor.JSON); err != nil {
		return p.fail(exitFailed, err)
	}
	if !ready {
		return exitFailed
	}
	return exitOK
}

func (p program) printFacts(facts []fact, ready, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Ready   bool   `json:"ready"`
			Version string `json:"version"`
			Facts   []fact `json:"facts"`
		}{ready, buildVersion(), facts})
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, f := range facts {
		lines := strings.Split(f.Detail, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, f.State, lines[0])
		for _, more := range lines[1:] {
			fmt.Fprintf(w, "\t\t%s\n", more)
		}
		if f.Remedy != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", f.Remedy)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := "ready"
	if !ready {
		verdict = "not ready: no code will be run on this machine"
	}
	_, err := fmt.Fprintln(p.stdout, verdict)
	return err
}
