package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt"
)

// fact is one thing that a person wants to know before they rely on this machine.
type fact struct {
	Group  string `json:"group"` // walls, layers, limits, sandbox, python, commands, workload, host
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// What a fact can be: active is in force and proven just now; available would work;
// ok is there; missing says why not, and what to do; info is neither good nor bad.
const (
	factActive    = string(srt.FactActive)
	factAvailable = string(srt.FactAvailable)
	factMissing   = string(srt.FactMissing)
	factInfo      = string(srt.FactInfo)
	factOK        = "ok"
)

// diagnosis is all that doctor says; its JSON is documented in the README.
type diagnosis struct {
	Ready    bool            `json:"ready"`
	Version  string          `json:"version"`
	Backend  string          `json:"backend"`            // where Python runs
	Wall     string          `json:"wall,omitempty"`     // the one that code would stand behind
	Python   *foundPython    `json:"python,omitempty"`   // the local one
	Commands *commandsOfList `json:"commands,omitempty"` // of execute_cli
	Facts    []fact          `json:"facts"`
}

type foundPython struct {
	Path     string   `json:"path"`
	Version  string   `json:"version"`
	Packages []string `json:"packages"` // "name version", sorted
}

type commandsOfList struct {
	Available []string `json:"available"`
	Missing   []string `json:"missing"`
	Remedy    string   `json:"remedy,omitempty"`
}

func (d *diagnosis) add(facts ...fact) { d.Facts = append(d.Facts, facts...) }

// doctor says what this machine can enforce, for a server with the same flags. It is
// ready, and exits with 0, if such a server would run code: where Python runs here, if
// the sandbox starts and its self-test passes; where it runs remotely, if the platform
// takes the token.
func (p program) doctor(ctx context.Context, c cli) int {
	f := c.Doctor
	log := p.logger(c.logFlags, slog.LevelWarn)
	cfg := localConfig{
		wallFlags: f.wallFlags, packageFlags: f.packageFlags, allow: f.list(),
		log: log, told: p.logger(c.logFlags, slog.LevelInfo),
	}
	if len(f.Preload) > 0 { // one is enough to try the imports
		cfg.Warm, cfg.Preload = 1, f.Preload
	}
	d := diagnosis{Version: buildVersion(), Backend: f.backend(false, log)}
	if d.Backend == sandbox.BackendWorkload {
		cfg.packageFlags, cfg.warmFlags = cfg.without(log), warmFlags{}
	}
	local := p.examine(ctx, cfg, &d, f)
	remote := p.examineRemote(ctx, f.remoteFlags, cfg, &d)
	d.Ready = local
	if d.Backend == sandbox.BackendWorkload {
		d.Ready = remote
	}
	if err := p.printDiagnosis(d, local, f.JSON); err != nil {
		return p.fail(exitFailed, err)
	}
	if !d.Ready {
		return exitFailed
	}
	return exitOK
}

// examine looks at this machine: the packages, the wall that would be taken, the others,
// and what they are made of. It reports whether code can run here.
func (p program) examine(ctx context.Context, cfg localConfig, d *diagnosis, f doctorFlags) bool {
	var err error
	if cfg.Requirements != "" {
		if cfg.Python, err = p.environment(ctx, cfg); err == nil {
			d.add(fact{"python", "packages", factOK, "of " + cfg.Requirements, ""})
		}
		cfg.packageFlags = packageFlags{} // they are there, or not
	}
	var l *local
	var proven []srt.Fact
	var failed error // of the wall, which is not tried where packages are missing
	if err == nil {
		if l, failed = p.openLimited(ctx, cfg); failed == nil {
			proven, err = p.prove(ctx, l)
		} else {
			err = failed
		}
	}
	if l != nil {
		d.Python = &foundPython{l.path, l.python, append([]string{}, l.packages...)}
		d.Commands = &commandsOfList{append([]string{}, l.commands...), append([]string{}, l.lacking...), l.remedy}
	}
	walls, native := p.examineWalls(ctx, cfg, l, failed)
	d.add(walls...)
	offered := p.facts()
	d.add(layers(offered, proven, native)...)
	d.add(limitFacts(cfg, offered, proven)...)
	if l == nil {
		detail, remedy := diagnose(err)
		d.add(fact{"sandbox", "sandbox", factMissing, detail, remedy})
		return false
	}
	d.Wall = l.wall
	state := fact{"sandbox", "sandbox", factOK, strengths(l), ""}
	if err = errors.Join(err, l.close()); err != nil {
		state.State, state.Detail = factMissing, err.Error()
	}
	d.add(state, fact{"sandbox", "warm", factOK, f.warmFlags.String(), ""})
	d.add(pythonFacts(*d.Python)...)
	d.add(l.commandFacts()...)
	return err == nil
}

const proofLimit = 30 * time.Second

// prove looks what is in force around a session.
func (p program) prove(ctx context.Context, l *local) ([]srt.Fact, error) {
	if l.prove == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proofLimit, errors.New("looking at the wall took too long"))
	defer cancel()
	return l.prove(ctx)
}
