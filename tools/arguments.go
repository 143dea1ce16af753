package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// maxDepth of nesting in inputs: Python's own JSON decoder gives up at about a
// thousand levels.
const maxDepth = 500

// arguments decodes the arguments of one call and collects all that is wrong
// with them, so that a model can mend everything at once. Only exact names
// count: encoding/json alone would take "Code" for "code".
type arguments struct {
	fields map[string]json.RawMessage
	faults []error
}

func newArguments(raw json.RawMessage, known ...string) *arguments {
	a := &arguments{}
	if len(raw) == 0 {
		return a
	}
	if err := json.Unmarshal(raw, &a.fields); err != nil {
		a.fault("the arguments must be an object with the members %s; got %s", list(known), show(raw))
		return a
	}
	var unknown []string
	for name := range a.fields {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		hint := ""
		if near := nearest(name, known); near != "" {
			hint = fmt.Sprintf(" (did you mean `%s`?)", near)
		}
		a.fault("unknown argument %s%s: known are %s", quote(name), hint, list(known))
	}
	return a
}

func (a *arguments) fault(format string, args ...any) {
	a.faults = append(a.faults, fmt.Errorf(format, args...))
}

// err is all that is wrong, as one refusal; nil if nothing is.
func (a *arguments) err() error {
	if len(a.faults) == 0 {
		return nil
	}
	return sandbox.Invalid("%w", errors.Join(a.faults...))
}

// field is an argument as JSON, and whether it was given. Several clients send
// null for what their user left out.
func (a *arguments) field(name string) (json.RawMessage, bool) {
	raw, ok := a.fields[name]
	return raw, ok && string(raw) != "null"
}

func (a *arguments) code() string {
	raw, ok := a.field("code")
	if !ok {
		a.fault("`code` is required: give the Python source to run, as a string")
		return ""
	}
	var code string
	switch {
	case json.Unmarshal(raw, &code) != nil:
		a.fault("`code` must be a string of Python source; got %s", show(raw))
	case halfCharacter(raw) != "":
		a.fault("`code` holds %s, half of a surrogate pair: send the whole character, or write it as an escape of Python's", halfCharacter(raw))
	case strings.TrimSpace(code) == "":
		a.fault("`code` is empty: give the Python source to run")
	case len(code) > sandbox.MaxCode:
		a.fault("`code` is %d bytes long; at most %d (1 MiB) are allowed: pass data in `inputs`", len(code), sandbox.MaxCode)
	}
	return code
}

// inputs keeps each value as the JSON it came in, so that a number reaches
// Python with all its digits.
func (a *arguments) inputs() map[string]any {
	raw, ok := a.field("inputs")
	if !ok {
		return nil
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	var values map[string]json.RawMessage
	switch {
	case len(raw) > sandbox.MaxInputs:
		a.fault("`inputs` is %d bytes of JSON; at most %d (8 MiB) are allowed: send it in several calls", len(raw), sandbox.MaxInputs)
		return nil
	case json.Unmarshal(raw, &values) != nil:
		a.fault("`inputs` must be an object, such as {\"x\": 1}; got %s", show(raw))
		return nil
	case sandbox.Depth(raw) > maxDepth:
		a.fault("`inputs` is nested more than %d levels deep", maxDepth)
		return nil
	}
	inputs := make(map[string]any, len(values))
	for name, value := range values {
		inputs[name] = value
	}
	return inputs
}

func (a *arguments) timeout(def, most time.Duration) time.Duration {
	raw, ok := a.field("timeout_s")
	if !ok {
		return def
	}
	var seconds float64
	err := json.Unmarshal(raw, &seconds)
	if err != nil || !(seconds > 0) || seconds > most.Seconds() {
		a.fault("`timeout_s` must be a number of seconds above 0 and at most %s; got %s", number(most.Seconds()), show(raw))
		return def
	}
	return max(time.Duration(math.Round(seconds*1e9)), 1)
}

func (a *arguments) sessionID() string {
	var id string
	if raw, ok := a.field("session_id"); ok && json.Unmarshal(raw, &id) != nil {
		a.fault("`session_id` must be a string, as an earlier result named it; got %s", show(raw))
	}
	return id
}

func (a *arguments) backend(offered []string) string {
	raw, ok := a.field("backend")
	if !ok || len(offered) < 2 {
		return ""
	}
	var name string
	if json.Unmarshal(raw, &name) != nil || !slices.Contains(offered, name) {
		a.fault("`backend` must be one of %s; got %s", list(offered), show(raw))
	}
	return name
}

func (a *arguments) flag(name string) bool {
	var on bool
	if raw, ok := a.field(name); ok && json.Unmarshal(raw, &on) != nil {
		a.fault("`%s` must be true or false; got %s", name, show(raw))
	}
	return on
}

// show is a value as a refusal quotes it: JSON, shortened.
func show(raw json.RawMessage) string {
	s := string(raw)
	var b bytes.Buffer
	if json.Compact(&b, raw) == nil {
		s = b.String()
	}
	const most = 40
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	kind := "a number"
	if named, ok := map[byte]string{'{': "an object", '[': "an array", '"': "a string"}[s[0]]; ok {
		kind = named
	}
	return fmt.Sprintf("%s of %d bytes: %s…", kind, len(s), strings.ToValidUTF8(s[:most], ""))
}

// quote is a name that the caller chose, shortened, on one line.
func quote(name string) string {
	const most = 60
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}

func list(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
