package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// report is a result as clients get it: structuredContent, by the published
// schema/result.json.
type report struct {
	Success     bool                `json:"success"`
	Status      sandbox.Status      `json:"status"`
	Stdout      string              `json:"stdout"`
	Stderr      string              `json:"stderr"`
	Output      json.RawMessage     `json:"output"`
	ReturnValue json.RawMessage     `json:"return_value"`
	Error       *string             `json:"error"`
	ExitCode    int                 `json:"exit_code"`
	DurationS   float64             `json:"duration_s"`
	SessionID   string              `json:"session_id"`
	State       sandbox.State       `json:"state"`
	Backend     string              `json:"backend"`
	Truncated   *reportedTruncation `json:"truncated"`
	Notes       []string            `json:"notes"`
	Files       []reportedFile      `json:"files"`
	Calls       []reportedCall      `json:"calls"`
}

type reportedTruncation struct {
	Stdout sandbox.Count `json:"stdout"`
	Stderr sandbox.Count `json:"stderr"`
}

type reportedFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

type reportedCall struct {
	Name      string  `json:"name"`
	DurationS float64 `json:"duration_s"`
	OK        bool    `json:"ok"`
}

// result is the one form of what happened: a fault becomes a Result too. Where
// Run gave both, as for a call whose caller has gone, the Result is the truth.
func (o outcome) result() sandbox.Result {
	r := o.res
	what := "the " + orElse(o.what, "code")
	if o.err != nil && r.Status == "" {
		r = fault(o.err, what)
		r.Backend = o.res.Backend
	}
	if o.res.Status == sandbox.StatusCancelled && errors.Is(o.err, sandbox.ErrClosed) {
		r.Error, r.State = closedDuring(what), sandbox.StateLost
	}
	if r.Status == "" { // no success without proof of the end
		r.Status, r.Error = sandbox.StatusInfra, "the sandbox gave no result; whether "+what+" ran is not known"
	}
	if r.ExitCode == 0 {
		r.ExitCode = r.Status.ExitCode()
	}
	if r.State == "" {
		r.State = sandbox.StateNone
	}
	if r.Backend == "" {
		r.Backend = sandbox.BackendLocal
	}
	if n := len(r.Files); n > maxListed {
		r.Files = r.Files[:maxListed]
		said := fmt.Sprintf("%d files changed: the %d newest are named", n, maxListed)
		if r.FilesCut {
			said = fmt.Sprintf("at least %d files changed: of those that were looked at, the %d newest are named", n, maxListed)
		}
		r.Notes = append(r.Notes, said)
	}
	return r
}

func closedDuring(what string) string {
	return "the session was closed during the call; " + what + " may have run in part"
}

// notRun marks the error of a call that ended before its code was started.
func notRun(err error) error {
	return &sandbox.Error{Status: sandbox.StatusCancelled, Err: err}
}

// SessionOf is the id of the session that a tool's result names; "" if it
// names none, or is no such result.
func SessionOf(result any) string {
	var r report
	switch result := result.(type) {
	case mcp.CallToolResult:
		r, _ = result.StructuredContent.(report)
	case *mcp.CallToolResult:
		r, _ = result.StructuredContent.(report)
	}
	return r.SessionID
}

// fault puts an error into words for a model; what was to run is "the code", or
// "the command". What it can't mend it is told in general; the cause is for the
// log.
func fault(err error, what string) sandbox.Result {
	var e *sandbox.Error
	errors.As(err, &e)
	var denied *allowlist.Error
	gone := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case e != nil && !e.Ran && gone:
		return sandbox.Result{Status: sandbox.StatusCancelled, Error: "the caller went away before " + what + " was started: it did not run"}
	case e != nil && !e.Ran && errors.Is(err, sandbox.ErrClosed):
		return sandbox.Result{Status: sandbox.StatusCancelled, State: sandbox.StateLost, Error: "the session was closed before " + what + " was started: it did not run"}
	case gone:
		return sandbox.Result{Status: sandbox.StatusCancelled, Error: "the caller went away, and " + what + " was interrupted or did not start"}
	case errors.As(err, &denied) && (e == nil || e.Status != sandbox.StatusInvalid): // invalid: there was no command
		return sandbox.Result{Status: sandbox.StatusDenied, Error: refusal(denied)}
	case e != nil && (e.Status == sandbox.StatusInvalid || e.Status == sandbox.StatusDenied):
		return sandbox.Result{Status: e.Status, ExitCode: e.ExitCode, Error: e.Err.Error()}
	case errors.Is(err, sandbox.ErrUnknownSession), errors.Is(err, errors.ErrUnsupported):
		return sandbox.Result{Status: sandbox.StatusInvalid, Error: err.Error()}
	case errors.Is(err, sandbox.ErrFull):
		return sandbox.Result{Status: sandbox.StatusInfra, Error: err.Error()}
	case errors.Is(err, sandbox.ErrClosed):
		return sandbox.Result{Status: sandbox.StatusCancelled, State: sandbox.StateLost, Error: closedDuring(what)}
	case e != nil:
		ran := what + " did not run"
		if e.Ran {
			ran = what + " may have run in part"
		}
		failed := "the sandbox failed"
		if e.Layer != "" {
			failed += " (" + e.Layer + ")"
		}
		return sandbox.Result{Status: sandbox.StatusInfra, Error: failed + "; " + ran + ". The server's log has the cause"}
	default:
		return sandbox.Result{Status: sandbox.StatusInfra, Error: "the sandbox failed; " + what + " may have run in part. The server's log has the cause"}
	}
}

// render makes the answer: the structured report, one text block that is
// complete by itself, and the pictures.
func render(r sandbox.Result, session string, named bool) *mcp.CallToolResult {
	shown := exhibit(r.Displays)
	content := append([]mcp.Content{mcp.NewTextContent(plain(r, shown.parts, session, named))}, shown.images...)
	s := structured(r, session)
	s.Notes = append(s.Notes, shown.notes...)
	return &mcp.CallToolResult{Content: content, StructuredContent: s, IsError: !r.Success()}
}

func structured(r sandbox.Result, session string) report {
	s := report{
		Success: r.Success(), Status: r.Status, Stdout: r.Stdout, Stderr: r.Stderr,
		Output: portable(r.Output), ReturnValue: portable(r.ReturnValue),
		ExitCode: r.ExitCode, DurationS: seconds(r.Duration),
		SessionID: session, State: r.State, Backend: r.Backend,
		Notes: append([]string{}, r.Notes...), Files: []reportedFile{}, Calls: []reportedCall{},
	}
	if r.Error != "" {
		s.Error = &r.Error
	}
	if r.Truncated.Any() {
		s.Truncated = &reportedTruncation{r.Truncated.Stdout, r.Truncated.Stderr}
	}
	for _, f := range r.Files {
		s.Files = append(s.Files, reportedFile{f.Path, f.Size})
	}
	if n := len(r.Calls) - maxCalls; n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d more external calls are not listed", n))
	}
	for _, c := range r.Calls[:min(len(r.Calls), maxCalls)] {
		s.Calls = append(s.Calls, reportedCall{c.Name, seconds(c.Duration), c.OK})
	}
	return s
}

// seconds, to the microsecond: more digits are noise. One division gives the float
// that is printed so; Seconds adds up two.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1e6
}

const maxExact = "9007199254740992" // 2^53: beyond it JavaScript loses digits

// portable is a value as every client reads it alike: integers beyond 2^53
// become strings.
func portable(v json.RawMessage) json.RawMessage {
	if len(bytes.TrimSpace(v)) == 0 {
		return json.RawMessage("null")
	}
	if !utf8.Valid(v) { // JSON to encoding/json, but to few others
		v = bytes.ToValidUTF8(v, []byte("\uFFFD"))
	}
	if !json.Valid(v) { // a backend's mistake must not break the whole answer
		s, _ := json.Marshal(sandbox.ValidUTF8(v))
		return s
	}
	var out []byte
	done := 0
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case c == '"':
			i = stringEnd(v, i)
		case c == '-' || '0' <= c && c <= '9':
			start := i
			for i < len(v) && strings.IndexByte("+-.eE0123456789", v[i]) >= 0 {
				i++
			}
			if big(v[start:i]) {
				out = append(append(append(out, v[done:start]...), '"'), v[start:i]...)
				out = append(out, '"')
				done = i
			}
		default:
			i++
		}
	}
	if done == 0 {
		return v
	}
	return append(out, v[done:]...)
}

// stringEnd is the index after the JSON string that begins at i.
func stringEnd(v []byte, i int) int {
	for i++; v[i] != '"'; i++ {
		if v[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// big reports whether a JSON number is an integer beyond 2^53 either way.
func big(number []byte) bool {
	digits := string(bytes.TrimPrefix(number, []byte("-")))
	if strings.ContainsAny(digits, ".eE") {
		return false
	}
	return len(digits) > len(maxExact) || len(digits) == len(maxExact) && digits > maxExact
}
