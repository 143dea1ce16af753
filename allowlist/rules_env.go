package allowlist

import "strings"

// command0 is the index of the command that env would run, behind its
// variables; len(args) if it would run none.
func command0(args []string) int {
	for i, a := range args {
		if a == "" || a[0] != '-' && !strings.Contains(a, "=") {
			return i
		}
	}
	return len(args)
}

// checkEnv allows to print the environment, and to run a command of the list,
// by its own rule, in another language or time zone.
func checkEnv(l *List, c *command, args []Arg) *Error {
	const instead = "env prints the environment (-0, -i), or runs a command as in `env LC_ALL=C sort FILE`"
	if len(args) == 0 {
		return nil
	}
	if len(args) == 1 && args[0].Pattern == "" && among("-0 --null -i --ignore-environment - --help --version", args[0].Text) {
		return nil
	}
	for i, a := range args {
		if a.Pattern != "" {
			return c.refuse(i, a.Text, "a wildcard may become a command; "+instead)
		}
		if strings.HasPrefix(a.Text, "-") {
			return c.refuse(i, a.Text, "it changes how a command runs; "+instead)
		}
		if name, value, ok := strings.Cut(a.Text, "="); ok {
			if !mayBeSet(name) || !plainValue(value) {
				return c.refuse(i, a.Text, "only LC_*, LANG and TZ may be set, and to the name of a language or time zone; "+instead)
			}
			continue
		}
		switch {
		case i == 0 && l.has(a.Text):
			return c.refuse(0, a.Text, "nothing is set: write the command without env")
		case a.Text == "env":
			return c.refuse(i, a.Text, "once is enough: put all variables after one env")
		}
		err := l.checkStage(Stage{Name: a.Text, Args: args[i+1:]})
		if err != nil {
			err.arg += i + 1
		}
		return err
	}
	return nil
}
