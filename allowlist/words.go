package allowlist

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// ansiLetters are the escapes of $'…' that may be used, and ansiBytes what they
// stand for.
const (
	ansiLetters = `abeEfnrtv\'"?`
	ansiBytes   = "\a\b\x1b\x1b\f\n\r\t\v\\'\"?"
)

// wordBuilder removes the quotes of a word. The library's own expansion is not
// used: it looks at the machine, and it knows more than is allowed here.
type wordBuilder struct {
	text    strings.Builder // after the removal of quotes
	pattern strings.Builder // the same, with \ before what was quoted and has a meaning in patterns
	maybe   bool            // there may be wildcards: keep the pattern
	wild    bool            // there are: an unquoted * or ?, or [ with a ] after it
	bracket bool            // an unquoted [ has been seen
}

// quoted adds what stands for itself.
func (b *wordBuilder) quoted(c byte) {
	b.text.WriteByte(c)
	if !b.maybe {
		return
	}
	if strings.IndexByte(`*?[]\!^-`, c) >= 0 || b.bracket && strings.IndexByte(":=.", c) >= 0 {
		b.pattern.WriteByte('\\')
	}
	b.pattern.WriteByte(c)
}

func (b *wordBuilder) quotedText(s string) {
	for i := range len(s) {
		b.quoted(s[i])
	}
}

// bare adds what was not quoted.
func (b *wordBuilder) bare(c byte) {
	switch c {
	case '*', '?':
		b.wild = true
	case '[':
		b.bracket = true
	case ']':
		b.wild = b.wild || b.bracket
	}
	b.text.WriteByte(c)
	if b.maybe {
		b.pattern.WriteByte(c)
	}
}

func (b *wordBuilder) arg() Arg {
	a := Arg{Text: b.text.String()}
	if b.wild {
		a.Pattern = b.pattern.String()
	}
	return a
}

// word makes an argument of a word.
func (r *reader) word(w *syntax.Word) (Arg, *Error) {
	if len(w.Parts) == 1 { // nearly all words
		switch part := w.Parts[0].(type) {
		case *syntax.Lit:
			if !strings.ContainsAny(part.Value, "\\*?[~") {
				return Arg{Text: part.Value}, nil
			}
		case *syntax.SglQuoted:
			if !part.Dollar {
				return Arg{Text: part.Value}, nil
			}
		}
	}
	var b wordBuilder
	for _, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		b.maybe = b.maybe || ok && strings.ContainsAny(lit.Value, "*?[")
	}
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.literal(part.Value, i == 0)
		case *syntax.SglQuoted:
			if !part.Dollar {
				b.quotedText(part.Value)
			} else if !b.ansi(part.Value) {
				return Arg{}, r.unread(part)
			}
		case *syntax.DblQuoted:
			if err := r.double(&b, part); err != nil {
				return Arg{}, err
			}
		case *syntax.ParamExp:
			value, ok := r.parameter(part)
			if !ok {
				return Arg{}, r.unread(part)
			}
			b.quotedText(value)
		default:
			return Arg{}, r.unread(part)
		}
	}
	return b.arg(), nil
}

// literal adds unquoted text, in which a backslash quotes what follows it.
func (b *wordBuilder) literal(s string, first bool) {
	if first && (s == "~" || strings.HasPrefix(s, "~/")) {
		// The scanner has let no word begin with ~ and go on with quotes.
		b.quotedText(Home)
		s = s[1:]
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			b.quoted(s[i])
			continue
		}
		b.bare(s[i])
	}
}

// ansi adds the text of $'…'.
func (b *wordBuilder) ansi(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.quoted(s[i])
			continue
		}
		if i++; i == len(s) {
			return false
		}
		at := strings.IndexByte(ansiLetters, s[i])
		if at < 0 {
			return false
		}
		b.quoted(ansiBytes[at])
	}
	return true
}

// double adds the text of "…".
func (r *reader) double(b *wordBuilder, q *syntax.DblQuoted) *Error {
	if q.Dollar {
		return r.unread(q)
	}
	for _, part := range q.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			s := part.Value
			for i := 0; i < len(s); i++ {
				if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
					i++
				}
				b.quoted(s[i])
			}
		case *syntax.ParamExp:
			value, ok := r.parameter(part)
			if !ok {
				return r.unread(part)
			}
			b.quotedText(value)
		default:
			return r.unread(part)
		}
	}
	return nil
}

// parameter gives the value of $NAME or ${NAME}. It compares with what was
// typed, so that no field of the node, known or to come, can mean more.
func (r *reader) parameter(p *syntax.ParamExp) (string, bool) {
	if p.Param == nil {
		return "", false
	}
	value, ok := expansion(p.Param.Value)
	from, to := int(p.Pos().Offset()), int(p.End().Offset())
	if !ok || from > to || to > len(r.src) {
		return "", false
	}
	typed := strings.TrimSuffix(r.src[from:to], "\\\n") // the parser counts a continuation in
	return value, typed == "$"+p.Param.Value || typed == "${"+p.Param.Value+"}"
}
