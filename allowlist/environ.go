package allowlist

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assignment splits a word as typed where bash would see an assignment:
// NAME=value, NAME+=value, NAME[key]=value. The name is all before the =.
func assignment(word string) (name, value string, ok bool) {
	n := 0
	for n < len(word) && isName(word[n]) {
		n++
	}
	if n == 0 || isDigit(word[0]) {
		return "", "", false
	}
	rest := word[n:]
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return "", "", false
		}
		rest = rest[end+1:]
	}
	rest = strings.TrimPrefix(rest, "+")
	if !strings.HasPrefix(rest, "=") {
		return "", "", false
	}
	return word[:len(word)-len(rest)], rest[1:], true
}

// mayBeSet says whether a variable may be put before a command: what decides
// about language and time zone, and nothing that changes what a program does.
func mayBeSet(name string) bool {
	if name == "LANG" || name == "TZ" {
		return true
	}
	rest, ok := strings.CutPrefix(name, "LC_")
	return ok && rest != "" && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// plainValue says whether a value can be the name of a locale or of a time
// zone. A path is not among them: with one, libc reads the file, and it is not
// made for files that others have written.
func plainValue(value string) bool {
	if value != "" && (value[0] == '/' || value[0] == ':' || strings.Contains(value, "..")) {
		return false
	}
	for i := range len(value) {
		if c := value[i]; !isName(c) && strings.IndexByte("+-.,@/:<>", c) < 0 {
			return false
		}
	}
	return true
}

// CheckEnv says whether a NAME=VALUE may be put before a command, for whoever
// gets a [Stage] that it did not read itself. Its error is an [*Error].
func CheckEnv(variable string) error {
	name, value, ok := strings.Cut(variable, "=")
	if ok && mayBeSet(name) && plainValue(value) {
		return nil
	}
	found := shorten(variable)
	return &Error{Rule: "environment", Found: found, Offset: -1, arg: -1,
		Message: quote(found) + " can't be set for a command: only LC_*, LANG and TZ may be, and to the name of a language or time zone"}
}

// checkAssignment judges the name in an assignment.
func (s *scanner) checkAssignment(start, end int, name string) *Error {
	if mayBeSet(name) {
		return nil
	}
	return refuse(s.src, start, end, "environment", "sets a variable, which is not allowed: only LC_*, LANG and TZ may be put before a command, as in `LC_ALL=C sort f`")
}

// env reads an assignment.
func (r *reader) env(a *syntax.Assign) (string, *Error) {
	if a.Append || a.Naked || a.Name == nil || a.Index != nil || a.Array != nil || !mayBeSet(a.Name.Value) {
		return "", r.unread(a)
	}
	r.starts = append(r.starts, int(a.Pos().Offset()))
	value := ""
	if a.Value != nil {
		word, err := r.word(a.Value)
		if err != nil {
			return "", err
		}
		value = word.Text // bash makes no names of patterns here
	}
	if !plainValue(value) {
		from, to := int(a.Pos().Offset()), int(a.End().Offset())
		return "", refuse(r.src, from, to, "environment", "sets a variable to what is no name of a language or time zone: write one like C.UTF-8 or Europe/Berlin")
	}
	return a.Name.Value + "=" + value, nil
}
