package allowlist

import "strings"

// expansions are the only ones: they are facts of the wall, and hold no blank
// and no wildcard, so that bash would not split them either.
func expansion(name string) (value string, ok bool) {
	switch name {
	case "HOME":
		return Home, true
	case "PWD":
		return Dir, true
	case "USER":
		return User, true
	}
	return "", false
}

const (
	fixed    = "only $HOME, $PWD and $USER are; put it between single quotes if it is text"
	runs     = "begins a command substitution, which is never allowed, also between double quotes: run that command by itself, and put what it prints into the next one"
	computes = "begins arithmetic, which is never allowed: compute with `awk 'BEGIN {print 1 + 1}'`"
)

// readWord reads a word to its end.
func (s *scanner) readWord() *Error {
	start := s.pos
	var braces braces
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		var err *Error
		switch c {
		case ' ', '\t', '\n', '|', '&', ';', '<', '>', '(', ')':
			return s.wordEnds(start, s.pos)
		case '\\':
			if rest := s.src[s.pos:]; strings.HasPrefix(rest, "\\\n") && s.src[s.pos-1] != '\\' && (len(rest) == 2 || isBlank(rest[2])) {
				if err := s.wordEnds(start, s.pos); err != nil {
					return err
				}
				return s.continues()
			}
			err = s.escape()
		case '\'':
			err = s.readSingle()
		case '"':
			err = s.readDouble()
		case '`':
			err = s.backquote()
		case '$':
			err = s.readDollar(false)
		case '~':
			err = s.tilde(start)
		default:
			if braces.expands(s.src, s.pos) {
				return refuse(s.src, braces.from, s.pos+1, "expansion", "is a brace expansion, which is never allowed: write the words out or use a pattern like *, and quote it if it is text")
			}
			s.pos++
		}
		if err != nil {
			return err
		}
	}
	return s.wordEnds(start, s.pos)
}

// braces knows what bash expands: an opening brace, then a comma or two dots,
// then a closing brace, all unquoted. It doesn't match them up, so it refuses a
// little more than bash expands, in linear time and without counting.
type braces struct {
	open, parted bool
	from         int // where the first brace is
}

// expands takes the unquoted character at pos, and says whether it closes a
// brace expansion.
func (b *braces) expands(src string, pos int) bool {
	switch rest := src[pos:]; {
	case rest[0] == '{' && !b.open:
		b.open, b.from = true, pos
	case !b.open:
	case rest[0] == ',' || strings.HasPrefix(rest, ".."):
		b.parted = true
	case rest[0] == '}':
		return b.parted
	}
	return false
}

// assigns says whether a word that begins src looks like NAME=value or
// NAME[key]=value. In such words, also as arguments, bash expands ~ again and
// again.
func assigns(src string) bool {
	n := 0
	for n < len(src) && isName(src[n]) {
		n++
	}
	rest := src[n:]
	return n > 0 && !isDigit(src[0]) &&
		(strings.HasPrefix(rest, "=") || strings.HasPrefix(rest, "+=") || strings.HasPrefix(rest, "["))
}

// escape skips an unquoted backslash and what it quotes.
func (s *scanner) escape() *Error {
	if s.pos+1 == len(s.src) {
		return refuse(s.src, s.pos, s.pos+1, "quoting", "quotes nothing, because the command ends after it: leave it out, or write it twice if it is text: \\\\")
	}
	if s.src[s.pos+1] == '\n' {
		return s.splitWord()
	}
	s.pos += 2
	return nil
}

func (s *scanner) splitWord() *Error {
	return refuse(s.src, s.pos, s.pos+2, "newline", "continues a line within a word, which shells read in different ways: write the word on one line, or put a blank before the backslash")
}

func (s *scanner) readSingle() *Error {
	end := strings.IndexByte(s.src[s.pos+1:], '\'')
	if end < 0 {
		return s.unclosed(s.pos, 1)
	}
	s.pos += end + 2
	return nil
}

func (s *scanner) readDouble() *Error {
	start := s.pos
	for s.pos++; s.pos < len(s.src); {
		var err *Error
		switch s.src[s.pos] {
		case '"':
			s.pos++
			return nil
		case '\\':
			if strings.HasPrefix(s.src[s.pos:], "\\\n") {
				return s.splitWord()
			}
			s.pos += 2
		case '`':
			err = s.backquote()
		case '$':
			err = s.readDollar(true)
		default:
			s.pos++
		}
		if err != nil {
			return err
		}
	}
	return s.unclosed(start, 1)
}

// readANSI reads $'…'. Escapes by number are refused, because they hide what a
// word says from the one who reads it in a log.
func (s *scanner) readANSI() *Error {
	start := s.pos
	for s.pos += 2; s.pos < len(s.src); s.pos++ {
		switch s.src[s.pos] {
		case '\'':
			s.pos++
			return nil
		case '\\':
			s.pos++
			if s.pos < len(s.src) && strings.IndexByte(ansiLetters, s.src[s.pos]) < 0 {
				return refuse(s.src, s.pos-1, s.pos+1, "quoting", "is not allowed in $'…': of the escapes there only those of one letter are, like \\t and \\n; write other characters as they are")
			}
		}
	}
	return s.unclosed(start, 2)
}

func (s *scanner) unclosed(start, width int) *Error {
	says := "opens a quotation that is never closed: close it, or put a backslash before it if it is text"
	if s.src[start] == '\'' {
		says = "opens a quotation that is never closed: close it; within single quotes, write '\\'' for one"
	}
	return refuse(s.src, start, start+width, "quoting", says)
}

func (s *scanner) backquote() *Error {
	return s.list.refuseText(s.src, s.pos, s.pos+1, "substitution", runs, "'`'")
}

// readDollar reads what begins with $, within double quotes or without.
func (s *scanner) readDollar(quoted bool) *Error {
	rest := s.src[s.pos+1:]
	switch {
	case strings.HasPrefix(rest, "(("):
		return s.list.refuseText(s.src, s.pos, s.pos+3, "substitution", computes, "'$(('")
	case strings.HasPrefix(rest, "("):
		return s.list.refuseText(s.src, s.pos, s.pos+2, "substitution", runs, "'$('")
	case strings.HasPrefix(rest, "["):
		return s.list.refuseText(s.src, s.pos, s.pos+2, "substitution", computes, "'$['")
	case strings.HasPrefix(rest, "'") && !quoted:
		return s.readANSI()
	case strings.HasPrefix(rest, `"`) && !quoted:
		return refuse(s.src, s.pos, s.pos+2, "quoting", "begins a translated string, which is never allowed: leave the $ out")
	case strings.HasPrefix(rest, "{"):
		return s.readBraced()
	case rest == "" || !isName(rest[0]) && strings.IndexByte("@*#?-$!", rest[0]) < 0:
		s.pos++ // a dollar sign
		return nil
	}
	width := 1
	if !isDigit(rest[0]) && isName(rest[0]) {
		for width < len(rest) && isName(rest[width]) {
			width++
		}
	}
	if _, ok := expansion(rest[:width]); !ok {
		says := "is not expanded: " + fixed
		if isDigit(rest[0]) {
			says = "is an argument of a shell script, of which there is none: put awk's programs and patterns between single quotes: '{print $1}'"
		}
		return refuse(s.src, s.pos, s.pos+1+width, "expansion", says)
	}
	s.pos += 1 + width
	return nil
}

// readBraced reads ${NAME}, and refuses all other things that ${ begins.
func (s *scanner) readBraced() *Error {
	rest := s.src[s.pos:]
	end := strings.IndexByte(rest, '}') + 1
	if end > 0 {
		if _, ok := expansion(rest[2 : end-1]); ok {
			s.pos += end
			return nil
		}
	} else {
		end = len(rest)
	}
	return refuse(s.src, s.pos, s.pos+end, "expansion", "is not expanded: "+fixed)
}

// wordLen is how much of src a reader would call the first word.
func wordLen(src string) int {
	if n := strings.IndexAny(src, " \t\n|&;<>()"); n >= 0 {
		return n
	}
	return len(src)
}

// tilde takes ~ and ~/ at the beginning of a word, and ~ within one. Users'
// directories are not there, and shells differ on NAME=~.
func (s *scanner) tilde(start int) *Error {
	s.pos++
	rest := s.src[s.pos:]
	switch {
	case s.pos-1 == start:
		if rest != "" && strings.IndexByte("/ \t\n|&;<>()", rest[0]) < 0 {
			return refuse(s.src, start, s.pos+wordLen(rest), "expansion", "is not expanded, only ~ and ~/ are: write the path, and quote it if it is text: '~'")
		}
	case assigns(s.src[start:]) && (s.src[s.pos-2] == '=' || s.src[s.pos-2] == ':'):
		return refuse(s.src, start, s.pos, "expansion", "has a ~ that shells read in different ways: write "+Home+" for it, and quote it if it is text: '~'")
	}
	return nil
}
