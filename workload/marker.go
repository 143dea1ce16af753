package workload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// The image's runner tells of its result in a line of its output, which comes
// back among the log's rows: late, newest first, in pieces, with lines of
// others between.

const (
	resultMarker = "__DR_SANDBOX_RESULT__:"
	processLimit = "sandbox process limit (RLIMIT_NPROC)" // the runner's first line
	noLimit      = "could not set process limit"
	outOfTime    = "sandbox exceeded timeout of "
	maxJoined    = 256 // rows that one line may have been split into
)

// logText is what the rows of a log say, in the order in which it was written.
type logText struct {
	stdout   []string // lines of the container, the marker's and the runner's own left out
	stderr   []string // what came with the severity of an error, and stack traces
	platform []string // what the platform itself had to say
	runner   int      // rows that the container wrote, of whatever kind
	timedOut bool     // the runner said that the time was up; anybody can write that
	trace    string   // the last traceback among the lines; likewise

	marked bool            // there is a marker
	value  json.RawMessage // after it; nil = null
	broken bool            // after it is no value
	at     time.Time       // of its row
	first  time.Time       // of the first of the container's rows
}

// readLog reads rows as they come from the API, newest first, and the tail that
// the record has, which may hold what the log does not yet.
func readLog(rows []row, tail string) logText {
	ordered := chronological(rows)
	if tail != "" && !hasMarker(ordered) && (hasMarker([]row{{Message: tail}}) || len(ordered) == 0) {
		ordered = append(ordered, row{Level: "INFO", Message: tail})
	}
	var t logText
	lines := make([]line, 0, len(ordered))
	for _, r := range ordered {
		if r.platform() {
			t.platform = append(t.platform, clean(r.Message, maxDetail))
			continue
		}
		t.runner++
		if t.first.IsZero() {
			t.first = r.Time
		}
		severe := slices.Contains([]string{"ERROR", "CRITICAL", "FATAL"}, r.Level)
		for _, text := range strings.Split(strings.TrimRight(r.Message, "\n"), "\n") {
			if severe {
				t.stderr = append(t.stderr, text)
			} else {
				lines = append(lines, line{text, r.Time})
			}
		}
		if r.Stacktrace != "" {
			t.stderr = append(t.stderr, strings.TrimRight(r.Stacktrace, "\n"))
		}
	}
	t.read(firstAttempt(lines))
	return t
}

type line struct {
	text string
	at   time.Time
}

// chronological sorts by time; where that is the same or not told, the row that
// came last is the oldest.
func chronological(rows []row) []row {
	ordered := slices.Clone(rows)
	slices.Reverse(ordered)
	slices.SortStableFunc(ordered, func(a, b row) int {
		if a.Time.IsZero() || b.Time.IsZero() {
			return 0
		}
		return a.Time.Compare(b.Time)
	})
	return ordered
}

func hasMarker(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool {
		return strings.HasPrefix(r.Message, resultMarker) || strings.Contains(r.Message, "\n"+resultMarker)
	})
}

// firstAttempt leaves out what the platform's restarts wrote after the first
// marker: what counts is the first time that the code ran. A restart is known
// by the runner's first line, which need not come in its place among the rest.
func firstAttempt(lines []line) []line {
	starts, marked := 0, false
	for i, l := range lines {
		if strings.HasPrefix(l.text, processLimit) {
			if starts++; starts > 1 && marked {
				return lines[:i]
			}
		}
		marked = marked || strings.HasPrefix(l.text, resultMarker)
	}
	return lines
}

// read takes the last marker out of the lines, and sorts the rest.
func (t *logText) read(lines []line) {
	from, to := len(lines), len(lines)
	for i := len(lines) - 1; i >= 0; i-- {
		if text, ok := strings.CutPrefix(lines[i].text, resultMarker); ok {
			t.marked, t.at, from = true, lines[i].at, i
			t.value, to = joined(text, lines, i)
			t.broken = to == i
			to = max(to, i+1)
			break
		}
	}
	var trace []string
	for i, l := range lines {
		switch {
		case i >= from && i < to:
			continue
		case strings.HasPrefix(l.text, processLimit), strings.HasPrefix(l.text, noLimit):
			continue
		case strings.HasPrefix(l.text, outOfTime):
			t.timedOut = true
		case strings.HasPrefix(l.text, "Traceback (most recent call last):"):
			trace = []string{l.text}
		case trace != nil && strings.HasPrefix(l.text, " "):
			trace = append(trace, l.text)
		case trace != nil && l.text != "":
			t.trace, trace = strings.Join(append(trace, l.text), "\n"), nil
		}
		t.stdout = append(t.stdout, l.text)
	}
}

// joined is the value that begins with text in line i. A line that was too long
// for the log was cut, and goes on in those after it; the number of the first line
// beyond is returned, or i where no value comes of it.
func joined(text string, lines []line, i int) (json.RawMessage, int) {
	if v, ok := pythonValue(text); ok {
		return v, i + 1
	}
	whole := []byte(text)
	for j := i + 1; j < len(lines) && j <= i+maxJoined && len(whole) <= sandbox.MaxValue; j++ {
		whole = append(whole, lines[j].text...)
		if v, ok := pythonValue(string(whole)); ok {
			return v, j + 1
		}
	}
	return nil, i
}

// glued finds a marker behind what the code had written without ending the
// line. Text of the code's may look the same, so that this counts only where
// nothing better comes and the code is known to have ended well.
func (t *logText) glued() (json.RawMessage, bool) {
	for i := len(t.stdout) - 1; i >= 0; i-- {
		before, text, ok := strings.Cut(t.stdout[i], resultMarker)
		if !ok || before == "" {
			continue
		}
		if v, ok := pythonValue(text); ok {
			t.stdout[i] = before
			return v, true
		}
	}
	return nil, false
}

// pythonValue reads what Python's json module writes: numbers that are none
// become strings, like integers that a reader may hold in a double. nil = null.
func pythonValue(text string) (json.RawMessage, bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, false
	}
	v, err := kernel.DecodeValue(plainNumbers([]byte(text)))
	if err != nil || v != nil && !json.Valid(v) {
		return nil, false
	}
	return v, true
}

// exact is the greatest integer that a double holds with all those below it.
const exact = "9007199254740992"

// plainNumbers puts quotes round NaN, Infinity and large integers outside strings.
func plainNumbers(text []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			j := i + 1
			for j < len(text) && text[j] != '"' {
				if text[j] == '\\' {
					j++
				}
				j++
			}
			j = min(j+1, len(text))
			out.Write(text[i:j])
			i = j
		case c == '-' || c == 'N' || c == 'I' || c >= '0' && c <= '9':
			j := i + 1
			for j < len(text) && !bytes.ContainsRune([]byte(" \t,:]}[{\""), rune(text[j])) {
				j++
			}
			out.Write(plainNumber(text[i:j]))
			i = j
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.Bytes()
}

func plainNumber(word []byte) []byte {
	digits := bytes.TrimPrefix(word, []byte("-"))
	integer := len(digits) > 0 && !bytes.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	large := integer && (len(digits) > len(exact) || len(digits) == len(exact) && string(digits) > exact)
	if large || slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, string(word)) {
		return []byte(`"` + string(word) + `"`)
	}
	return word
}
