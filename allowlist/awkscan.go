package allowlist

import "strings"

// checkAwk reads the program, so that what --sandbox will refuse is refused
// with a better sentence. The barrier is --sandbox: a program can be read in a
// file, and the name of a function can be put together while it runs.
func checkAwk(c *command, p *parsed) *Error {
	found := false
	for _, o := range p.options {
		switch o.name {
		case "-e", "--source":
			found = true
			if what, why := scanAwk(o.text); why != "" {
				return c.refuse(o.at, what, why)
			}
		case "-f", "--file":
			found = true
		}
	}
	if !found && len(p.operands) > 0 && !p.operands[0].wild {
		if what, why := scanAwk(p.operands[0].text); why != "" {
			return c.refuse(p.operands[0].at, what, why)
		}
	}
	return nil
}

// awkScan is a place in an awk program.
type awkScan struct {
	src     string
	pos     int
	last    string // the token before
	depth   int    // of open ( and [
	printed int    // depth of the print whose statement this is; -1 = none
	reads   bool   // behind getline, where < would name a file
	lvalue  int    // depth at which getline stands

	unclosed int // as bracketEnd has it
	unended  int // up to here it is known that no slash ends a regular expression
}

// scanAwk returns the first thing that runs a program, or reads or writes
// another file, and what to write instead. Where it doesn't understand, it
// passes over: gawk decides.
func scanAwk(src string) (what, why string) {
	s := &awkScan{src: src, printed: -1}
	for {
		token := s.next()
		if token == "" {
			return "", ""
		}
		if why := s.judge(token); why != "" {
			return token, why
		}
		s.last = token
	}
}

// next returns the next token: a word, an operator, or for a string, a number
// and a regular expression the character with which it begins.
func (s *awkScan) next() string {
	for s.pos < len(s.src) {
		start, c := s.pos, s.src[s.pos]
		s.pos++
		switch {
		case c == ' ' || c == '\t' || c == '\r':
		case c == '\\':
			s.pos = min(s.pos+1, len(s.src))
		case c == '#':
			for s.pos < len(s.src) && s.src[s.pos] != '\n' {
				s.pos++
			}
		case c == '"':
			s.skipString()
			return `"`
		case c == '/' && !s.operandBefore():
			s.skipRegex()
			return "0" // as an operand
		case isDigit(c):
			s.skipWord()
			return "0"
		case isName(c):
			s.skipWord()
			return s.src[start:s.pos]
		default:
			if s.pos < len(s.src) && strings.Contains(" || |& && >> >= <= == != ++ -- ", " "+s.src[start:s.pos+1]+" ") {
				s.pos++
			}
			return s.src[start:s.pos]
		}
	}
	return ""
}

func (s *awkScan) skipString() {
	for ; s.pos < len(s.src) && s.src[s.pos] != '"'; s.pos++ {
		if s.src[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos = min(s.pos+1, len(s.src))
}

// skipRegex skips to behind the slash that ends a regular expression; between
// brackets a slash is text. Where none ends it, the slash was a division.
func (s *awkScan) skipRegex() {
	i := s.pos
	for ; i >= s.unended && i < len(s.src) && s.src[i] != '\n'; i++ {
		switch s.src[i] {
		case '\\':
			i++
		case '[':
			i = bracketEnd(s.src, i+1, &s.unclosed) - 1
		case '/':
			s.pos = i + 1
			return
		}
	}
	s.unended = max(s.unended, i)
}

func (s *awkScan) skipWord() {
	for s.pos < len(s.src) && isName(s.src[s.pos]) {
		s.pos++
	}
}

// operandBefore says whether the token before ends an operand, so that a slash
// divides by what follows.
func (s *awkScan) operandBefore() bool {
	switch s.last {
	case "":
		return false
	case ")", "]", "$", `"`, "++", "--":
		return true
	case "print", "printf", "return", "case", "in", "else", "do", "getline", "delete", "exit":
		return false
	}
	return isName(s.last[0])
}

// judge says why a token is refused; "" if it isn't.
func (s *awkScan) judge(token string) string {
	switch token {
	case "system":
		return "system() runs programs; leave it out, and use a pipe of commands of the list"
	case "|", "|&":
		return "a pipe inside awk runs a program; put the pipe after awk: awk '…' FILE | sort"
	case "@":
		return s.judgeAt()
	case "print", "printf":
		s.printed = s.depth
	case "getline":
		s.reads, s.lvalue = true, s.depth
		return ""
	case ";", "}", "{", "\n":
		if token != "\n" || s.depth == 0 && !strings.Contains(" , && || ", " "+s.last+" ") {
			s.printed, s.reads = -1, false
		}
	case "(", "[":
		s.depth++
	case ")", "]":
		if s.depth--; s.depth < s.printed {
			s.printed = -1
		}
	case ">", ">>":
		if s.printed == s.depth {
			return "after print, " + token + " writes a file; leave it out: what is printed is the output. To compare, use parentheses: print ($1 > 2)"
		}
	case "<":
		if s.reads && s.lvalue == s.depth {
			return "getline < reads another file, which awk's safe mode refuses; name the file after the program"
		}
	}
	s.endRead(token)
	return ""
}

// endRead says when what follows getline can no longer be its variable: behind
// an operator, or outside of the parentheses in which it stands.
func (s *awkScan) endRead(token string) {
	switch {
	case s.depth < s.lvalue:
		s.reads = false
	case s.depth == s.lvalue && token != "]" && token != ")" && token != "$" && !isName(token[0]):
		s.reads = false
	}
}

// judgeAt judges what follows an @.
func (s *awkScan) judgeAt() string {
	rest := s.src[s.pos:]
	switch {
	case strings.HasPrefix(rest, "/"), strings.HasPrefix(rest, "namespace"):
		return ""
	case strings.HasPrefix(rest, "load"), strings.HasPrefix(rest, "include"):
		return "it loads code; leave it out, or name the program's file with -f"
	}
	return "a call of a function whose name is computed is not allowed; call it by its name"
}
