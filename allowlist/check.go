package allowlist

import "slices"

// Exec is what is to be executed for a command: never more than Resolve allowed.
type Exec struct {
	Program string   // the executable's name: gawk for awk, else the command's own
	Args    []string // what follows the program's name, with the safe modes forced in
}

// Resolve checks the arguments that a command really gets, after wildcards
// have become names, and says what to execute. Its error is an [*Error].
func (l *List) Resolve(name string, args []string) (Exec, error) {
	words := make([]Arg, len(args))
	for i, a := range args {
		words[i].Text = a
	}
	if err := l.checkStage(Stage{Name: name, Args: words}); err != nil {
		return Exec{}, err
	}
	return l.exec(name, args), nil
}

// checkStage applies the argument rules to a command as typed. An Arg with
// Pattern != "" stands for any number of names, none of which begins with a
// dash, because who expands it puts ./ before those that do.
func (l *List) checkStage(s Stage) *Error {
	c, ok := l.commands[s.Name]
	if !ok {
		return l.unknown(s.Name, -1)
	}
	if c.noWildcard {
		for i, a := range s.Args {
			if a.Pattern != "" {
				return c.refuse(i, a.Text, "a wildcard may become more words than "+c.name+" may get: write the name in full, or quote it if it is text")
			}
		}
	}
	switch {
	case c.walk != nil:
		return c.walk(l, c, s.Args)
	case c.options != nil:
		p, err := c.options.parse(c, s.Args)
		if err != nil {
			return err
		}
		return c.checkParsed(p)
	}
	return nil
}

// checkParsed applies what a command's rule says beyond its options.
func (c *command) checkParsed(p *parsed) *Error {
	if c.most > 0 && len(p.operands) > c.most {
		return c.refuse(p.operands[c.most].at, p.operands[c.most].text, c.tooMany)
	}
	if c.check != nil {
		return c.check(c, p)
	}
	return nil
}

// exec says what to execute for arguments that have passed the rules.
func (l *List) exec(name string, args []string) Exec {
	c := l.commands[name]
	e := Exec{Program: c.executable(), Args: slices.Clone(args)}
	if name == "env" {
		if at := command0(args); at < len(args) {
			// What env runs gets its safe mode as if it stood alone.
			inner := l.exec(args[at], args[at+1:])
			e.Args = slices.Concat(args[:at], []string{inner.Program}, inner.Args)
		}
		return e
	}
	if c.force != "" && (len(args) == 0 || args[0] != c.force) {
		e.Args = slices.Concat([]string{c.force}, args)
	}
	return e
}

// Programs are the executables that a command starts by its arguments: its own,
// and behind env the one that env runs. Nothing is checked.
func (l *List) Programs(s Stage) []string {
	c, ok := l.commands[s.Name]
	if !ok {
		return nil
	}
	programs := []string{c.executable()}
	if s.Name == "env" {
		args := make([]string, len(s.Args))
		for i, a := range s.Args {
			args[i] = a.Text
		}
		if at := command0(args); at < len(args) {
			programs = append(programs, l.Programs(Stage{Name: args[at], Args: s.Args[at+1:]})...)
		}
	}
	return programs
}

func (c *command) executable() string {
	if c.program != "" {
		return c.program
	}
	return c.name
}

// refuse says that an argument of c is not allowed. why goes on after "is
// refused: ", and tells what to write instead.
func (c *command) refuse(at int, found, why string) *Error {
	found = shorten(found)
	typed := c.name
	if found != "" {
		typed += " " + found
	}
	return &Error{Rule: "argument", Found: found, Offset: -1, Message: quote(typed) + " is refused: " + why, arg: at}
}

// unknown says that a name is not on the list.
func (l *List) unknown(name string, at int) *Error {
	found := shorten(name)
	return &Error{Rule: "command", Found: found, Offset: -1, Message: quote(found) + " is not an allowed command: " + l.instead(name), arg: at}
}
