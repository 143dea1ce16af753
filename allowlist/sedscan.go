package allowlist

import "strings"

// checkSed reads the script, so that what --sandbox will refuse is refused with
// a better sentence. The barrier is --sandbox: scripts can be read in a file.
func checkSed(c *command, p *parsed) *Error {
	var script strings.Builder
	at, found := -1, false
	for _, o := range p.options {
		switch o.name {
		case "-l", "--line-length":
			// BSD's -l takes no value: the word after it would be an option.
			if strings.Trim(o.text, "0123456789") != "" {
				return c.refuse(o.at, "-l "+o.text, "its value is a number: the length of a line")
			}
		case "-e", "--expression":
			if at < 0 {
				at = o.at
			}
			script.WriteString(o.text + "\n")
			found = true
		case "-f", "--file":
			found = true
		}
	}
	if !found && len(p.operands) > 0 {
		if first := p.operands[0]; !first.wild {
			at = first.at
			script.WriteString(first.text)
		}
	}
	if cmd, why := scanSed(script.String()); why != "" {
		return c.refuse(at, cmd, why)
	}
	return nil
}

// sedScan is a place in a sed script.
type sedScan struct {
	src      string
	pos      int
	unclosed int // as bracketEnd has it
}

// scanSed returns the first command that runs, reads or writes a file, and what
// to write instead. It stops in silence where it doesn't understand, for then
// sed won't either.
func scanSed(src string) (command, why string) {
	s := &sedScan{src: src}
	for {
		s.skip(" \t\n;}")
		if s.pos == len(src) || !s.address() {
			return "", ""
		}
		s.skip(" \t!")
		if s.pos == len(src) {
			return "", ""
		}
		cmd := src[s.pos]
		s.pos++
		if why := sedWhy(cmd); why != "" {
			return src[s.pos-1 : s.pos], why
		}
		if why := s.rest(cmd); why != "" {
			return "s///" + string(src[s.pos-1]), why
		}
	}
}

// sedWhy says why a command, or a flag of s, is refused; "" if it isn't.
func sedWhy(cmd byte) string {
	switch cmd {
	case 'e':
		return "the command e runs programs; leave it out"
	case 'w', 'W':
		return "the command " + string(cmd) + " writes a file; use p with -n: what is printed is the output"
	case 'r', 'R':
		return "the command " + string(cmd) + " reads another file, which sed's safe mode refuses; use cat FILE1 FILE2"
	}
	return ""
}

func (s *sedScan) skip(chars string) {
	for s.pos < len(s.src) && strings.IndexByte(chars, s.src[s.pos]) >= 0 {
		s.pos++
	}
}

// address skips what chooses lines, and says whether it was understood.
func (s *sedScan) address() bool {
	for {
		s.skip(" \t,0123456789$~+")
		if s.pos == len(s.src) {
			return true
		}
		switch s.src[s.pos] {
		case '/':
			s.pos++
			if !s.part('/', true) {
				return false
			}
		case '\\':
			s.pos += 2
			if s.pos > len(s.src) || !s.part(s.src[s.pos-1], true) {
				return false
			}
		default:
			return true
		}
		s.skip("IM")
	}
}

// part skips to behind the delimiter. In a regular expression the delimiter is
// text between brackets.
func (s *sedScan) part(delim byte, regex bool) bool {
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		s.pos++
		switch {
		case c == delim:
			return true
		case c == '\\':
			s.pos++
		case c == '[' && regex:
			s.pos = bracketEnd(s.src, s.pos, &s.unclosed)
		}
	}
	return false
}

// bracketEnd returns the place behind the ] of a bracket expression that began
// before pos; pos itself if there is none in the line. Up to *unclosed it is
// known that none ends, so that a long line of [ is read once.
func bracketEnd(src string, pos int, unclosed *int) int {
	if pos < *unclosed {
		return pos
	}
	i := pos
	if strings.HasPrefix(src[i:], "^") {
		i++
	}
	if strings.HasPrefix(src[i:], "]") {
		i++
	}
	for ; i < len(src) && src[i] != '\n'; i++ {
		switch src[i] {
		case ']':
			return i + 1
		case '[':
			i += classLen(src[i:])
		}
	}
	*unclosed = i
	return pos
}

// maxClass is more than the longest [:name:] of a class of characters.
const maxClass = 32

// classLen is how much follows the [ of a [:name:], [=x=] or [.x.]; else 0.
func classLen(src string) int {
	if len(src) < 2 || strings.IndexByte(":=.", src[1]) < 0 {
		return 0
	}
	end := strings.Index(src[2:min(len(src), maxClass)], src[1:2]+"]")
	if end < 0 {
		return 0
	}
	return end + 3
}

// rest skips what belongs to a command. It returns why a flag of s is refused.
func (s *sedScan) rest(cmd byte) string {
	switch cmd {
	case '{', '}':
	case '#':
		s.line(false)
	case 'a', 'i', 'c':
		s.line(true)
	case ':', 'b', 't', 'T', 'v': // a label, or a version; GNU's blanks are isspace's
		s.skip(" \t\r\v\f")
		s.until(" \t\r\v\f\n;}#") // what follows a blank is the next command: ":a p" prints
	case 's', 'y':
		if s.pos == len(s.src) {
			return ""
		}
		delim := s.src[s.pos]
		s.pos++
		if !s.part(delim, cmd == 's') || !s.part(delim, false) {
			s.pos = len(s.src)
			return ""
		}
		return s.flags()
	default:
		s.until("\n;}#")
	}
	return ""
}

func (s *sedScan) flags() string {
	for s.pos < len(s.src) && strings.IndexByte(" \t\n;}#", s.src[s.pos]) < 0 {
		s.pos++
		if flag := s.src[s.pos-1]; flag == 'e' || flag == 'w' {
			return "the flag " + strings.TrimPrefix(sedWhy(flag), "the command ")
		}
	}
	return ""
}

func (s *sedScan) until(chars string) {
	for s.pos < len(s.src) && strings.IndexByte(chars, s.src[s.pos]) < 0 {
		s.pos++
	}
}

// line skips to the end of the line; of a text, where a backslash takes the
// next line in.
func (s *sedScan) line(text bool) {
	for s.pos < len(s.src) && s.src[s.pos] != '\n' {
		if text && s.src[s.pos] == '\\' {
			s.pos++
		}
		s.pos++
	}
	s.pos = min(s.pos, len(s.src))
}
