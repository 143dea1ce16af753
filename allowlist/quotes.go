package allowlist

import (
	"strings"
	"unicode/utf8"
)

// Typographic says what the author of a command line ought to know in which a
// word begins with “ or ‘; it is "" for all others. To a shell such characters
// are letters, and so they are here: the line is run as it stands, since a file
// may hold them. But who has copied it from a page that prints quotes prettily
// meant something else, and should hear so once it has failed.
func Typographic(command string) string {
	if len(command) > maxLine {
		return "" // is refused unread
	}
	begins := true // a word may begin here
	for i := 0; i < len(command); {
		r, width := utf8.DecodeRuneInString(command[i:])
		switch r {
		case '“', '”', '„', '‘', '’':
			if begins {
				return "“ ” ‘ ’ quote nothing, as in a shell: type ' or \" instead, if quotes were meant"
			}
		case '\\':
			width = 2
		case '\'', '"':
			width += quotedLen(command[i+1:], byte(r))
		}
		begins = strings.ContainsRune(" \t\n|&;<>()=", r)
		i += width
	}
	return ""
}

// quotedLen is how much of src lies before the end of a quotation, with its last
// quote; all of it if it has no end.
func quotedLen(src string, quote byte) int {
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == quote:
			return i + 1
		case src[i] == '\\' && quote == '"':
			i++
		}
	}
	return len(src)
}
