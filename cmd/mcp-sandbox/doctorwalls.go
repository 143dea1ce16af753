package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"mcp-sandbox/srt"
)

// examineWalls tries every wall. The one that l stands behind has been tried; err is why
// there is none. native is why the native wall can't be had.
func (p program) examineWalls(ctx context.Context, cfg localConfig, l *local, err error) (facts []fact, native error) {
	names := srt.Walls()
	facts = make([]fact, len(names))
	var trials sync.WaitGroup
	for i, name := range names {
		if l != nil && l.wall == name {
			facts[i] = fact{"walls", name, factActive, "its self-test passed: code inside got at nothing outside" + weaknesses(l), ""}
			continue
		}
		if err != nil && cfg.Wall == name {
			facts[i] = wallFact(name, err)
			if name == srt.WallNative {
				native = err
			}
			continue
		}
		trials.Go(func() {
			weak, failed := p.tryWall(ctx, cfg, name)
			facts[i] = wallFact(name, failed)
			facts[i].Detail += weak
			if name == srt.WallNative {
				native = failed
			}
		})
	}
	trials.Wait()
	return facts, native
}

// tryWall raises a wall, self-test and all, with nothing else. It returns what the wall
// does not hold.
func (p program) tryWall(ctx context.Context, cfg localConfig, name string) (weak string, err error) {
	cfg.Wall, cfg.allow, cfg.warmFlags, cfg.log = name, nil, warmFlags{}, slog.New(slog.DiscardHandler)
	l, err := p.openLimited(ctx, cfg)
	if err != nil {
		return "", err
	}
	return weaknesses(l), l.close()
}

// weaknesses are what a wall gives less of than the native one, a line each.
func weaknesses(l *local) string {
	s := ""
	for _, less := range l.lesser {
		s += "\nweakness: " + less
	}
	return s
}

// strengths are the other lines of what the wall says of itself.
func strengths(l *local) string {
	s := ""
	for line := range strings.Lines(l.String()) {
		if !strings.HasPrefix(line, "weakness: ") {
			s += line
		}
	}
	return strings.TrimSpace(s)
}

func wallFact(name string, err error) fact {
	if err == nil {
		detail := "holds, by its self-test"
		if name == srt.WallLandlock {
			detail += "; weaker than the others, and so only by --wall=landlock"
		}
		return fact{"walls", name, factAvailable, detail, ""}
	}
	detail, remedy := diagnose(err)
	return fact{"walls", name, factMissing, detail, remedy}
}

// layerFacts are the facts that a layer is told as.
var layerFacts = map[string]string{
	"userns": "user namespace", "mounts": "mount namespace", "proc": "own /proc", "network": "network namespace",
	"landlock": "landlock", "seccomp": "seccomp", "caps": "no privileges", "rlimits": "rlimits",
}

// bounding are the facts that are limits, and no part of a wall.
var bounding = []string{"rlimits", "cgroup", "watchdog"}

// describing are those that are neither.
var describing = []string{"kernel", "server", "container"}

// layers are what walls are made of: proven where it could be, else by the host's word. A
// layer at which the native wall has failed is missing, whatever the host says of it.
func layers(offered, proven []srt.Fact, native error) []fact {
	var layer *srt.LayerError
	culprit := ""
	if errors.As(native, &layer) {
		culprit = layerFacts[layer.Layer]
	}
	var facts []fact
	one := func(f srt.Fact) {
		group := "layers"
		if slices.Contains(describing, f.Name) {
			group = "host"
		}
		if f.Name == culprit && f.State != srt.FactActive {
			f.State, f.Detail = srt.FactMissing, f.Detail+"; "+layer.Err.Error()
			if f.Remedy == "" {
				f.Remedy = layer.Remedy
			}
		}
		facts = append(facts, fact{group, f.Name, string(f.State), f.Detail, f.Remedy})
	}
	for _, f := range offered {
		if slices.Contains(bounding, f.Name) {
			continue // see limits
		}
		if i := named(proven, f.Name); i >= 0 {
			f = confirmed(f, proven[i])
		}
		one(f)
	}
	for _, f := range proven {
		if named(offered, f.Name) < 0 && !slices.Contains(bounding, f.Name) {
			facts = slices.Insert(facts, lastLayer(facts), fact{"layers", f.Name, string(f.State), f.Detail, ""})
		}
	}
	return facts
}

// confirmed is what the host offers and a session has shown to be in force.
func confirmed(offered, proven srt.Fact) srt.Fact {
	if offered.State == srt.FactAvailable && (offered.Name == "landlock" || offered.Name == "cgroup") { // which one it is
		proven.Detail = offered.Detail + "; " + proven.Detail
	}
	return proven
}

func named(facts []srt.Fact, name string) int {
	return slices.IndexFunc(facts, func(f srt.Fact) bool { return f.Name == name })
}

func lastLayer(facts []fact) int {
	if i := slices.IndexFunc(facts, func(f fact) bool { return f.Group != "layers" }); i >= 0 {
		return i
	}
	return len(facts)
}
