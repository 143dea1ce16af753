package allowlist

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a command line. The parser has no limit of depth, and takes time
// for what it reads; nobody types as much.
const (
	maxLine     = 8 << 10 // bytes
	maxWords    = 1000
	maxCommands = 64
)

// scanner reads a command line once, from left to right, as bash breaks it into
// words, and refuses the first thing that is not allowed. It never looks inside
// what it refuses, so nothing nests and the time is linear. What it lets
// through holds nothing but words, quotes, comments, blanks, |, && and the
// newlines that end a line or follow an operator, so the parser after it meets
// none of the constructs that it is known to read otherwise than a shell does.
type scanner struct {
	list *List
	src  string
	pos  int

	starts   []int // where each word begins; the parser must find the same
	commands int
	named    bool // the command of this stage has been seen
	command  string
	prefixed bool // an assignment has been seen since the last operator
	operator int  // where the last operator begins; -1 = none
	newline  int  // where the newline is that ended the last command; -1 = none
}

// scan returns where the words of src begin.
func (l *List) scan(src string) ([]int, *Error) {
	if err := characters(src); err != nil {
		return nil, err
	}
	s := &scanner{list: l, src: src, starts: make([]int, 0, 16), operator: -1, newline: -1}
	for s.pos < len(src) {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	return s.starts, s.end()
}

// characters refuses, before anything is read, what parsers are known to drop,
// to join or to take for a blank: NUL, carriage return, other control
// characters, invalid UTF-8.
func characters(src string) *Error {
	if len(src) > maxLine {
		return &Error{Rule: "limit", Found: shorten(strings.ToValidUTF8(src[:maxFound], "\uFFFD")), Offset: maxLine, arg: -1,
			Message: "the command is longer than 8 KiB, which is never allowed: send several shorter ones, or use execute_python"}
	}
	for i, r := range src {
		switch {
		case ' ' <= r && r < utf8.RuneSelf-1 || r == '\n' || r == '\t':
		case r == utf8.RuneError && !strings.HasPrefix(src[i:], "\uFFFD"):
			return refuse(src, i, i+1, "character", "is not valid UTF-8: send the command as UTF-8 text")
		case r == '\r':
			return refuse(src, i, i+1, "character", "is a carriage return, which is never allowed: end lines with a newline alone; $'\\r' stands for one in an argument")
		case unicode.IsControl(r):
			return refuse(src, i, i+utf8.RuneLen(r), "character", "is a control character, which is never allowed: leave it out; of these only tab and newline may be typed, and $'\\e' stands for an escape in an argument")
		}
	}
	return nil
}

// next reads what begins at pos: blanks, a comment, an operator or a word.
func (s *scanner) next() *Error {
	switch c := s.src[s.pos]; c {
	case ' ', '\t':
		s.pos++
	case '\n':
		if s.newline < 0 && (s.named || s.prefixed) {
			s.newline = s.pos
		}
		s.pos++
	case '#':
		return s.readComment()
	case '|', '&', ';', '<', '>', '(', ')':
		return s.readOperator()
	case '\\':
		if strings.HasPrefix(s.src[s.pos:], "\\\n") {
			return s.continues()
		}
		return s.readWord()
	default:
		return s.readWord()
	}
	return nil
}

// readComment skips to the end of the line.
func (s *scanner) readComment() *Error {
	start := s.pos
	if end := strings.IndexByte(s.src[start:], '\n'); end >= 0 {
		s.pos += end
	} else {
		s.pos = len(s.src)
	}
	if s.src[s.pos-1] == '\\' && s.pos < len(s.src) {
		return refuse(s.src, start, s.pos, "newline",
			"is a comment that ends in a backslash, after which parsers and shells disagree about the next line: leave the backslash out, or the comment")
	}
	return nil
}

// continues skips a backslash and the newline after it, which a shell removes.
// Between words both readers agree on that, but not between the halves of an
// operator.
func (s *scanner) continues() *Error {
	after := s.pos + 2
	if s.pos > 0 && strings.IndexByte("|&<>;()", s.src[s.pos-1]) >= 0 && after < len(s.src) && !isBlank(s.src[after]) {
		return refuse(s.src, s.pos, after, "newline", "continues a line right after an operator: put a blank before the backslash")
	}
	s.pos = after
	return nil
}

// readOperator takes | and &&, and refuses all others.
func (s *scanner) readOperator() *Error {
	rest, width := s.src[s.pos:], 1
	switch {
	case strings.HasPrefix(rest, "&&"):
		width = 2
	case rest[0] == '|' && !strings.HasPrefix(rest, "||") && !strings.HasPrefix(rest, "|&"):
	default:
		return s.refuseOperator()
	}
	switch {
	case s.newline >= 0:
		return refuse(s.src, s.pos, s.pos+width, "newline", "begins a line: put it at the end of the line before")
	case !s.named && s.operator >= 0:
		return refuse(s.src, s.pos, s.pos+width, "operator", "follows another operator: write one command between two of them")
	case !s.named:
		return refuse(s.src, s.pos, s.pos+width, "operator", "has no command before it: write one")
	}
	s.operator, s.named, s.prefixed = s.pos, false, false
	s.pos += width
	return nil
}

func (s *scanner) refuseOperator() *Error {
	from := s.pos
	for from > 0 && isDigit(s.src[from-1]) { // the descriptor of a redirection
		from--
	}
	if n := len(s.starts); n == 0 || s.starts[n-1] != from {
		from = s.pos // not a word by itself: data, or the end of a longer one
	}
	if before := s.src[:s.pos]; s.src[s.pos] == '(' && before != "" && strings.IndexByte("?*+@!", before[len(before)-1]) >= 0 {
		return refuse(s.src, s.pos-1, s.pos+1, "expansion", "begins an extended pattern, which is never allowed: use *, ? and […], or find with -regex, and quote it if it is text")
	}
	op, n := known(s.src[from:])
	if op.text == ";" && s.named && strings.TrimLeft(s.src[from+n:], " \t\n") == "" {
		op.says, op.quote = "is not needed at the end, and never allowed: leave it out", ""
	}
	if n == 0 {
		from = s.pos
		op, n = known(s.src[from:])
	}
	if op.text == "<" && s.named && s.command == "tr" { // which takes no file
		op.says = "redirects input, which is never allowed: pipe the file in, as in `cat FILE | tr a b`"
	}
	return s.list.refuseText(s.src, from, from+n, "operator", op.says, op.quote)
}

// wordEnds judges the word that began at start and ends at end, which is all
// that depends on where in a command it stands.
func (s *scanner) wordEnds(start, end int) *Error {
	if s.newline >= 0 {
		return refuse(s.src, s.newline, s.newline+1, "newline",
			"separates commands, which is never allowed: && joins commands; to go on with the same one, end the line with |, && or a blank and a backslash, and quote the newline if it is text")
	}
	if len(s.starts) == maxWords {
		return refuse(s.src, start, end, "limit", "is one word too many: a command line has at most 1000; use a pattern of file names, or find")
	}
	s.starts = append(s.starts, start)
	if s.named {
		return nil
	}
	word := s.src[start:end]
	if name, _, ok := assignment(word); ok {
		s.prefixed = true
		return s.checkAssignment(start, end, name)
	}
	if strings.HasPrefix(s.src[end:], "<") || strings.HasPrefix(s.src[end:], ">") {
		if strings.Trim(word, "0123456789") == "" || word[0] == '{' {
			return nil // a redirection's descriptor: the operator says more
		}
	}
	s.named, s.command = true, word
	if s.commands++; s.commands > maxCommands {
		return refuse(s.src, start, end, "limit", "is one command too many: a command line has at most 64; send several")
	}
	return s.list.checkName(s.src, start, end)
}

// end judges what is missing once all has been read.
func (s *scanner) end() *Error {
	switch {
	case s.named:
		return nil
	case s.prefixed:
		last := s.starts[len(s.starts)-1]
		return refuse(s.src, last, len(strings.TrimRight(s.src, " \t\n")), "environment", "is put before no command: nothing is kept from one command to the next; write the command after it")
	case s.operator >= 0:
		return refuse(s.src, s.operator, s.operator+len(strings.TrimRight(s.src[s.operator:min(s.operator+2, len(s.src))], " \t\n")), "operator", "has no command after it: write one, or leave it out")
	}
	return &Error{Rule: "empty", Offset: 0, arg: -1, Message: "the command is empty: write one of " + s.list.names()}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
