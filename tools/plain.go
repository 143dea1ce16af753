package tools

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mcp-sandbox/sandbox"
)

const (
	maxText   = 20 << 10 // bytes of one part in the text for a model
	maxListed = 20       // files and calls named in it
)

// plain is a result as a model reads it that sees nothing else. Parts that are
// empty are left out; when all are, it says so.
func plain(r sandbox.Result, shown []part, session string, named bool) string {
	var parts []string
	add := func(heading, body string) {
		body = strings.TrimRight(sandbox.Clip(body, maxText), "\n")
		switch {
		case body == "":
		case heading == "":
			parts = append(parts, body)
		case strings.Contains(body, "\n"):
			parts = append(parts, heading+":\n"+body)
		default:
			parts = append(parts, heading+": "+body)
		}
	}
	add("", r.Stdout)
	add("stderr", r.Stderr)
	for _, p := range shown {
		add(p.heading, p.body)
	}
	add("output", value(r.Output))
	add("return value", value(r.ReturnValue))
	if !r.Success() {
		add(verdict(r))
	}
	add("files changed", files(r.Files))
	add("calls", calls(r.Calls))
	for _, note := range r.Notes {
		add("note", note)
	}
	add("state", fate(r))
	if named {
		add("session_id", session)
	}
	if len(parts) == 0 {
		return "(no output)"
	}
	return strings.Join(parts, "\n")
}

// verdict is the error and its heading. Of a command that ended by itself only the
// code is worth a word: that grep found nothing is no error to anybody.
func verdict(r sandbox.Result) (heading, text string) {
	code := fmt.Sprintf("exit code %d", r.ExitCode)
	switch {
	case r.Status != sandbox.StatusError || r.State != sandbox.StateNone:
		return fmt.Sprintf("error (%s, %s)", r.Status, code), orElse(r.Error, "no more is known")
	case r.Error == "":
		return "", code
	}
	return code, r.Error
}

// advised is what a time-out says, with what to do about it ahead of any traceback.
func advised(text string, limit, most time.Duration) string {
	advice := "Give a larger `timeout_s`, at most " + span(most) + ", or do less in one call."
	if limit >= most {
		advice = "No call may take longer here: do the work in several."
	}
	reason, trace, _ := strings.Cut(text, "\n\n")
	return strings.TrimRight(reason+" "+advice+"\n\n"+trace, "\n")
}

// value is a JSON value for reading: a text of several lines as it is, since
// that is how Python would have shown a table.
func value(v json.RawMessage) string {
	if len(v) == 0 || string(v) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) == nil && strings.Contains(strings.TrimRight(s, "\n"), "\n") {
		return s
	}
	return sandbox.ValidUTF8(v)
}

// fate is what a model must know of its variables; "" when all is as it expects.
func fate(r sandbox.Result) string {
	switch r.State {
	case sandbox.StateLost:
		return "lost: the variables of earlier calls are gone"
	case sandbox.StateRestored:
		return "restored: the interpreter is a new one, the variables of earlier calls are there"
	case sandbox.StateKept:
		switch r.Status {
		case sandbox.StatusTimeout, sandbox.StatusOOM, sandbox.StatusCrash, sandbox.StatusCancelled:
			return "kept: the variables are still there"
		}
	}
	return ""
}

func files(all []sandbox.File) string {
	var names []string
	for _, f := range all {
		names = append(names, fmt.Sprintf("%s (%d bytes)", inLine(f.Path), f.Size))
	}
	return few(names)
}

// inLine keeps a name from looking like more lines of the result.
func inLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

func few(names []string) string {
	if extra := len(names) - maxListed; extra > 0 {
		names = append(names[:maxListed:maxListed], fmt.Sprintf("and %d more", extra))
	}
	return strings.Join(names, ", ")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
