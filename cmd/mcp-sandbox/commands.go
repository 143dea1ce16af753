package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"mcp-sandbox/allowlist"
)

// commandFlags say which commands execute_cli may run.
type commandFlags struct {
	CLIOperators            string `name:"cli-operators" default:"token" help:"How execute_cli reads operators: token, as a shell does, or strict, which refuses || ; \x60 $( > < even in quotes (${default})."`
	CLIAllow                names  `name:"cli-allow" placeholder:"NAME,..." help:"The commands of the list that execute_cli may run; usually all. none = no execute_cli."`
	DangerouslyAllowCommand names  `name:"dangerously-allow-command" placeholder:"NAME" help:"A program beyond the list that execute_cli may run, with any arguments. Repeatable."`
}

// noCommands is the value of --cli-allow that turns execute_cli off.
const noCommands = "none"

// check finds all faults of the flags.
func (f commandFlags) check() error {
	_, err := f.parse()
	return err
}

// list is what the flags allow, which have been checked; nil = no commands at all.
func (f commandFlags) list() *allowlist.List {
	list, _ := f.parse()
	return list
}

func (f commandFlags) parse() (*allowlist.List, error) {
	if f.CLIOperators != "token" && f.CLIOperators != "strict" {
		return nil, fmt.Errorf("--cli-operators must be token or strict; got %q", f.CLIOperators)
	}
	if slices.Contains(f.CLIAllow, noCommands) {
		if len(f.CLIAllow) > 1 || len(f.DangerouslyAllowCommand) > 0 {
			return nil, errors.New("--cli-allow none allows no command, but others are named too")
		}
		return nil, nil
	}
	list, err := allowlist.New(allowlist.Options{
		Strict: f.CLIOperators == "strict", Only: f.CLIAllow, Dangerously: f.DangerouslyAllowCommand,
	})
	if err != nil {
		return nil, fmt.Errorf("--cli-allow, --dangerously-allow-command: %w", err)
	}
	return list, nil
}

// warn says once what the operator has weakened by name, and what this machine
// lacks.
func (f commandFlags) warn(log *slog.Logger, l *local) {
	for _, name := range f.DangerouslyAllowCommand {
		log.Warn("a program beyond the list may run with any arguments", "command", name, "by", "--dangerously-allow-command")
	}
	if len(l.lacking) > 0 {
		log.Info("this machine lacks commands of execute_cli's list", "lacking", strings.Join(l.lacking, "; "), "remedy", l.remedy)
	}
}

// commandFacts are doctor's words on execute_cli.
func (l *local) commandFacts() []fact {
	var facts []fact
	if len(l.commands) > 0 {
		facts = append(facts, fact{Group: "commands", Name: "available", State: factOK, Detail: strings.Join(l.commands, " ")})
	}
	if len(l.lacking) > 0 {
		facts = append(facts, fact{Group: "commands", Name: "missing", State: factMissing, Detail: strings.Join(l.lacking, "\n"), Remedy: l.remedy})
	}
	return facts
}
