package allowlist

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Options narrow or widen the list. The zero value is the whole list, with
// operators read as a shell would read them.
type Options struct {
	Strict      bool     // refuse the sequences ||, ;, backtick, $(, > and < wherever they stand, also quoted
	Only        []string // the commands of the list that may run; nil = all of them
	Dangerously []string // names of further programs, which may run with any arguments
}

// List is which commands may run, and with which arguments. It is immutable
// and safe for concurrent use.
type List struct {
	opts     Options
	commands map[string]*command
	sorted   []string // the keys of commands
}

// New checks o and returns all its faults together.
func New(o Options) (*List, error) {
	l := &List{opts: o, commands: make(map[string]*command)}
	l.opts.Only, l.opts.Dangerously = slices.Clone(o.Only), slices.Clone(o.Dangerously)
	var faults []error

	known := make(map[string]*command)
	for _, c := range table() {
		known[c.name] = c
	}
	names := slices.Sorted(maps.Keys(known))
	if o.Only == nil {
		maps.Copy(l.commands, known)
	}
	for _, name := range o.Only {
		if c, ok := known[name]; ok {
			l.commands[name] = c
			continue
		}
		faults = append(faults, fmt.Errorf("allowlist: %q can't be among the only commands, because it is not on the list, which is: %s", name, strings.Join(names, " ")))
	}
	for _, name := range o.Dangerously {
		if err := checkProgramName(name, known); err != nil {
			faults = append(faults, err)
			continue
		}
		l.commands[name] = &command{name: name, why: "an operator has allowed it with any arguments"}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	l.sorted = slices.Sorted(maps.Keys(l.commands))
	return l, nil
}

// checkProgramName says whether a program that is not on the list may be added.
func checkProgramName(name string, known map[string]*command) error {
	if _, ok := known[name]; ok {
		// Added dangerously it would lose the rules that make it safe.
		return fmt.Errorf("allowlist: %q is on the list already, with rules for its arguments, which adding it would lift", name)
	}
	if !plainName(name) {
		return fmt.Errorf("allowlist: %q is no plain name of a program: letters, digits, ., _, + and -, no path, and no - at its beginning", name)
	}
	if slices.Contains(keywords, name) {
		return fmt.Errorf("allowlist: %q is a word of the shell's language, never a program", name)
	}
	return nil
}

// plainName says whether a name can stand in a command line without quotes and
// be no path.
func plainName(name string) bool {
	if name == "" || name[0] == '-' || strings.Trim(name, ".") == "" {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isName(c) && c != '.' && c != '+' && c != '-' {
			return false
		}
	}
	return true
}

// Options are what the list was made of, so that another process can make the
// same one.
func (l *List) Options() Options {
	o := l.opts
	o.Only, o.Dangerously = slices.Clone(o.Only), slices.Clone(o.Dangerously)
	return o
}

// Commands are the names that may be typed, sorted.
func (l *List) Commands() []string { return slices.Clone(l.sorted) }

// Program is the executable that runs a command: gawk for awk, else of the same
// name. It is "" for a name that is not on the list.
func (l *List) Program(name string) string {
	c, ok := l.commands[name]
	if !ok {
		return ""
	}
	return c.executable()
}

// Helpers are the programs that commands of the list start by themselves:
// tar's decompressors.
func (l *List) Helpers() []string {
	var helpers []string
	for _, name := range l.sorted {
		helpers = append(helpers, l.commands[name].helpers...)
	}
	return helpers
}
