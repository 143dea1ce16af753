package srt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// matcher is one segment of a pattern, compiled.
type matcher []token

type token struct {
	kind  tokenKind
	char  rune // of a literal; an invalid byte is below zero, see next
	items []item
	not   bool // of a bracket: what is not in it matches
}

type tokenKind int

const (
	literal tokenKind = iota
	anyOne            // ?
	anyMany           // *
	bracket           // […]
)

// item is one part of a bracket: a range, whose ends may be the same, or a class.
type item struct {
	low, high rune
	class     func(rune) bool
}

// next takes one character off s. A byte that is not UTF-8 is a character of its
// own, and no other character equals it.
func next(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return -1 - rune(s[0]), 1
	}
	return r, n
}

// compile reads a segment. Every string means something: what is no wildcard is
// a literal.
func compile(segment string) matcher {
	var m matcher
	for s := segment; s != ""; {
		c, n := next(s)
		switch {
		case c == '\\' && len(s) > 1:
			quoted, k := next(s[1:])
			m, n = append(m, token{char: quoted}), 1+k
		case c == '?':
			m = append(m, token{kind: anyOne})
		case c == '*':
			if len(m) == 0 || m[len(m)-1].kind != anyMany {
				m = append(m, token{kind: anyMany})
			}
		case c == '[':
			if t, k := compileBracket(s); k > 0 {
				m, n = append(m, t), k
				break
			}
			m = append(m, token{char: c})
		default:
			m = append(m, token{char: c})
		}
		s = s[n:]
	}
	return m
}

// match reports whether the whole of name matches. It goes back to the last *
// alone, so that its time is at most the product of the lengths.
func (m matcher) match(name string) bool {
	i, star, from := 0, -1, ""
	for {
		switch {
		case i < len(m) && m[i].kind == anyMany:
			star, from = i, name
			i++
			continue
		case name == "" && i == len(m):
			return true
		case name != "" && i < len(m):
			if c, n := next(name); m[i].matches(c) {
				name = name[n:]
				i++
				continue
			}
		}
		if star < 0 || from == "" {
			return false
		}
		_, n := next(from)
		from = from[n:]
		i, name = star+1, from
	}
}

func (t token) matches(c rune) bool {
	switch t.kind {
	case anyOne:
		return true
	case bracket:
		for _, it := range t.items {
			if it.class != nil && it.class(c) || it.class == nil && it.low <= c && c <= it.high {
				return !t.not
			}
		}
		return t.not
	}
	return t.char == c
}

// compileBracket reads a bracket expression at the beginning of s and returns
// its length; 0 if it has no end.
func compileBracket(s string) (token, int) {
	t := token{kind: bracket}
	rest := s[1:]
	if rest != "" && (rest[0] == '!' || rest[0] == '^') {
		t.not, rest = true, rest[1:]
	}
	for first := true; ; first = false {
		if rest == "" {
			return token{}, 0
		}
		if rest[0] == ']' && !first {
			return t, len(s) - len(rest) + 1
		}
		if class, n := compileClass(rest); n > 0 {
			t.items, rest = append(t.items, item{class: class}), rest[n:]
			continue
		}
		low, n := element(rest)
		if n == 0 {
			return token{}, 0
		}
		rest = rest[n:]
		high := low
		if len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			if high, n = element(rest[1:]); n == 0 {
				return token{}, 0
			}
			rest = rest[1+n:]
		}
		if low == noChar || high == noChar {
			continue
		}
		t.items = append(t.items, item{low: low, high: high}) // a range that runs backwards matches nothing
	}
}

// noChar is a collating symbol of several characters, of which C.UTF-8 has none.
const noChar = -1000

// element takes one character of a bracket off s: plain, after a backslash, or
// in [.x.] or [=x=].
func element(s string) (rune, int) {
	c, n := next(s)
	switch {
	case c == '\\' && len(s) > 1:
		c, n = next(s[1:])
		return c, 1 + n
	case c == '\\':
		return 0, 0
	case strings.HasPrefix(s, "[="):
		inner, n := next(s[2:])
		if strings.HasPrefix(s[2+n:], "=]") {
			return inner, n + 4
		}
	case strings.HasPrefix(s, "[."):
		name, _, ok := strings.Cut(s[2:], ".]")
		if !ok {
			return 0, 0 // as in bash: then the whole bracket has no end
		}
		if inner, n := next(name); n == len(name) && n > 0 {
			return inner, n + 4
		}
		return noChar, len(name) + 4
	}
	return c, n
}

// classes are POSIX's, for Unicode as in C.UTF-8.
var classes = map[string]func(rune) bool{
	"alpha":  func(c rune) bool { return unicode.IsLetter(c) },
	"digit":  func(c rune) bool { return '0' <= c && c <= '9' },
	"alnum":  func(c rune) bool { return unicode.IsLetter(c) || '0' <= c && c <= '9' },
	"upper":  unicode.IsUpper,
	"lower":  unicode.IsLower,
	"space":  unicode.IsSpace,
	"blank":  func(c rune) bool { return c == ' ' || c == '\t' },
	"punct":  func(c rune) bool { return unicode.IsPunct(c) || unicode.IsSymbol(c) },
	"cntrl":  unicode.IsControl,
	"graph":  func(c rune) bool { return unicode.IsGraphic(c) && !unicode.IsSpace(c) },
	"print":  unicode.IsGraphic,
	"xdigit": func(c rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", c) },
	"word":   func(c rune) bool { return c == '_' || unicode.IsLetter(c) || '0' <= c && c <= '9' },
	"ascii":  func(c rune) bool { return 0 <= c && c < utf8.RuneSelf },
}

// compileClass reads [:name:] at the beginning of s, and returns its length. A
// name that is none matches nothing.
func compileClass(s string) (func(rune) bool, int) {
	if !strings.HasPrefix(s, "[:") {
		return nil, 0
	}
	none := func(rune) bool { return false }
	name, _, ok := strings.Cut(s[2:], ":]")
	if !ok {
		return none, 1 // as in bash: the bracket alone is lost
	}
	if class := classes[name]; class != nil {
		return class, len(name) + 4
	}
	return none, len(name) + 4
}
