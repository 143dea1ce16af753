package allowlist

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is a refusal, for the one who typed the command.
type Error struct {
	Rule    string // which rule, in a word: "operator", "command", "argument", "expansion", "limit", …; "empty" if nothing was typed
	Found   string // what was found, as typed; shortened
	Offset  int    // where it begins, in bytes of the command line; -1 = after expansion
	Message string // a sentence: what was found, and what would be allowed

	arg int // the index in Stage.Args of the argument at fault; -1 = the command itself
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// refuse says that what stands in src at [from, to) is not allowed. The
// sentence begins with what was found and where; says goes on from there.
func refuse(src string, from, to int, rule, says string) *Error {
	for to < len(src) && !utf8.RuneStart(src[to]) {
		to++
	}
	found := shorten(src[from:to])
	return &Error{
		Rule:    rule,
		Found:   strings.ToValidUTF8(found, "\uFFFD"),
		Offset:  from,
		Message: quote(found) + " at " + place(src, from) + " " + says,
		arg:     -1,
	}
}

// at says where in src the fault lies that the rules of arguments found. They
// don't know, because they see words after the removal of quotes.
func (e *Error) at(src string, offset int) *Error {
	placed := *e
	placed.Offset = offset
	placed.Message += " (at " + place(src, offset) + ")"
	return &placed
}

// place says where offset is, as a person counts: from 1, in characters.
func place(src string, offset int) string {
	before := src[:offset]
	line := strings.Count(before, "\n")
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	if line == 0 {
		return "column " + strconv.Itoa(column)
	}
	return "line " + strconv.Itoa(line+1) + ", column " + strconv.Itoa(column)
}

// maxFound is how much of what was found a sentence repeats, in bytes.
const maxFound = 40

// shorten cuts s between two characters.
func shorten(s string) string {
	if len(s) <= maxFound {
		return s
	}
	end := maxFound
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// quote puts s between backticks, as Markdown does, which a model reads best.
// What can't be seen, or would end the quotes, is written as Go would.
func quote(s string) string {
	for _, r := range s {
		if r == '`' || r != ' ' && !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return "`" + s + "`"
}
