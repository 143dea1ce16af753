package sandbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Excerpt is the head and the tail of a text of whatever origin, with a mark
// between them that says how many bytes are missing and, by where, what became of
// them, as valid UTF-8. No rune is cut. It also returns how many bytes of the two
// are in it.
func Excerpt(head, tail []byte, missing int64, where string) (string, int64) {
	h, t := head[:len(head)-Unfinished(head)], tail
	for i := 0; i < utf8.UTFMax-1 && len(t) > 0 && !utf8.RuneStart(t[0]); i++ {
		t = t[1:]
	}
	kept := int64(len(h) + len(t))
	missing += int64(len(head)+len(tail)) - kept
	if where != "" {
		where = "; " + where
	}
	return fmt.Sprintf("%s\n… [%d bytes left out%s] …\n%s", ValidUTF8(h), missing, where, ValidUTF8(t)), kept
}

// Clip bounds a text to about limit bytes by leaving out its middle.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	half := limit / 2
	text, _ := Excerpt([]byte(s[:half]), []byte(s[len(s)-half:]), int64(len(s)-2*half), "")
	return text
}

// Unfinished counts the bytes of a rune that b ends in the middle of.
func Unfinished(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return i
		}
	}
	return 0
}

// ValidUTF8 replaces each invalid byte by U+FFFD.
func ValidUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[size:]
	}
	return s.String()
}

// Depth is how deep valid JSON nests.
func Depth(v []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
