package allowlist

import "strings"

// operator is what a shell would see as one, and what to do instead. Says goes
// on after "`;` at column 3 ".
type operator struct {
	text  string // as typed, but for blanks; the longest comes first
	says  string
	quote string // how it is written if it is text; "" = nobody means it as text
}

const (
	discard = "is not needed: stderr is returned separately; leave it out"
	mixing  = "is not needed: stdout and stderr are both returned, each by itself; leave it out"
	pending = "redirects output, which is never allowed: the output is returned; leave it out"
	nesting = "groups commands in a subshell, which is never allowed: join simple commands with | and &&"
)

// operators are all that are refused. Those which may join commands, | and &&,
// are known to the scanner.
var operators = []operator{
	{"2>/dev/null", discard, ""},
	{"2>>/dev/null", discard, ""},
	{"2>&1", mixing, ""},
	{"&>/dev/null", "is not needed: what a command prints is returned, and harms nothing; leave it out", ""},
	{"1>&2", mixing, ""},
	{"2>&-", discard, ""},
	{">&2", mixing, ""},
	{"&>>", pending, ""},
	{"&>", pending, ""},
	{">/dev/null", "is not needed: what a command prints is returned, and harms nothing; leave it out", ""},
	{">(", "is process substitution, which runs a command and is never allowed: join commands with |", ""},
	{">>", pending, "'>>'"},
	{">", pending, "'>'"},
	{"<(", "is process substitution, which runs a command and is never allowed: join commands with |, and name files as arguments", ""},
	{"<<<", "is a here-string, which is never allowed: use `printf '%s\\n' 'text' | command`", "'<<<'"},
	{"<<", "is a here-document, which is never allowed: use `printf '%s\\n' 'line 1' 'line 2' | command`", "'<<'"},
	{"<>", "redirects input and output, which is never allowed: name the file as an argument", "'<>'"},
	{"<", "redirects input, which is never allowed: name the file as an argument", "'<'"},
	{"||true", "is not needed: a command that fails reports its exit code; leave it out", ""},
	{"||:", "is not needed: a command that fails reports its exit code; leave it out", ""},
	{"||", "runs a command if another fails, which is never allowed: send the second command when you have seen the first fail", "'||'"},
	{"|&", "pipes stderr too, which is never allowed: stderr is returned separately; use | alone", "'|&'"},
	{";;", "belongs to the shell's case, which is never allowed: join simple commands with | and &&", "';;'"},
	{";", "separates commands, which is never allowed: && joins commands", "';'"},
	{"&", "runs a command in the background, which is never allowed: && joins commands", "'&'"},
	{"()", "defines a function, which is never allowed: join simple commands with | and &&", "'()'"},
	{"((", "is arithmetic, which is never allowed: compute with `awk 'BEGIN {print 1 + 1}'`", "'(('"},
	{"(", nesting, "'('"},
	{")", nesting, "')'"},
}

// refuseText refuses what a shell would see as an operator or a substitution,
// and says how it is written as text. When operators are read strictly there is
// no such way.
func (l *List) refuseText(src string, from, to int, rule, says, quote string) *Error {
	if quote != "" && !l.opts.Strict {
		says += "; if it is text, quote it: " + quote
	}
	return refuse(src, from, to, rule, says)
}

// known finds the operator that begins src, and how long it is there.
func known(src string) (operator, int) {
	for _, op := range operators {
		if n := begins(src, op.text); n > 0 {
			return op, n
		}
	}
	return operator{}, 0
}

// begins says how much of src text covers, blanks within apart; 0 = it doesn't.
func begins(src, text string) int {
	n := 0
	for i := range len(text) {
		if i > 0 && isJoint(text[i-1]) && !isJoint(text[i]) {
			n += len(src[n:]) - len(strings.TrimLeft(src[n:], " \t"))
		}
		if n == len(src) || src[n] != text[i] {
			return 0
		}
		n++
	}
	if last := text[len(text)-1]; (isName(last) || last == ':') && n < len(src) && (isName(src[n]) || src[n] == '/') {
		return 0 // || trueish, > /dev/nullify
	}
	return n
}

// isJoint says whether blanks may stand after c and before what it applies to.
func isJoint(c byte) bool { return c == '<' || c == '>' || c == '|' || c == '&' }

// isName says whether c can be part of a variable's name.
func isName(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
