package allowlist

import "strings"

// checkDate allows a format as the only operand: any other sets the clock.
func checkDate(c *command, p *parsed) *Error {
	for _, o := range p.operands {
		if !strings.HasPrefix(o.text, "+") {
			return c.refuse(o.at, o.text, "an operand that does not begin with + sets the clock; `date -d STRING '+%F %T'` shows another time")
		}
	}
	return nil
}

// checkUniq keeps options before the file: BSD's uniq would write to a file of
// the option's name.
func checkUniq(c *command, p *parsed) *Error {
	for _, o := range p.options {
		if p.after(o) {
			return c.refuse(p.operands[0].at, o.name, "options come before the file: some versions take what follows it for the file to write")
		}
	}
	return nil
}
