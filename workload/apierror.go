package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"mcp-sandbox/sandbox"
)

// APIError is an answer of the API that is none to what was asked, or the lack
// of an answer. Its text never holds the token or what was sent.
type APIError struct {
	Op        string // method and path
	Status    int    // of HTTP; 0 = there was no answer
	Code      string // the platform's machine-readable one, such as MISSING_USE_CASE; "" = none
	Detail    string // the platform's words, at most maxDetail bytes
	Retryable bool   // the same request may succeed later

	after time.Duration // what Retry-After asked for
	cause error         // where there was no answer
}

// Error implements error.
func (e *APIError) Error() string {
	s := e.Op + ": "
	if e.Status != 0 {
		s += fmt.Sprintf("HTTP %d: ", e.Status)
	}
	if e.Code != "" {
		s += e.Code + ": "
	}
	return s + e.Detail
}

// Unwrap gives what went wrong on the way, if it was that.
func (e *APIError) Unwrap() error { return e.cause }

// maxDetail bounds what is kept of an error's body, in bytes.
const maxDetail = 2 << 10

// statusOf is the HTTP status in err's APIError; 0 = none.
func statusOf(err error) int {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.Status
	}
	return 0
}

func retryable(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && e.Retryable
}

func retryableStatus(status int) bool {
	return slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, status)
}

// neverSent reports whether the request certainly had no effect: nobody was
// reached, or the gateway counted requests and refused this one.
func neverSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	status := statusOf(err)
	return status == http.StatusTooManyRequests || status == http.StatusTooEarly
}

// overCap reports whether the account holds as many workloads as it may. The
// platform says so in words alone.
func overCap(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	if !ok || e.Status != http.StatusForbidden {
		return false
	}
	text := strings.ToLower(e.Detail)
	return strings.Contains(text, "workload") && (strings.Contains(text, "exceed") || strings.Contains(text, "concurrent") || strings.Contains(text, "maximum"))
}

// errorBody reads what the platform and the gateways before it put into the
// body of an error: six shapes, and pages for people.
func errorBody(body []byte) (code, detail string) {
	var fields struct {
		Message, Detail, Code, ErrorCode, Error loose[json.RawMessage]
	}
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 {
		return "", "no body"
	}
	if trimmed[0] != '{' || json.Unmarshal(trimmed, &fields) != nil {
		return "", plainDetail(trimmed)
	}
	code = sentence(fields.Code.v)
	if code == "" {
		code = sentence(fields.ErrorCode.v)
	}
	for _, raw := range []json.RawMessage{fields.Detail.v, fields.Message.v, fields.Error.v} {
		if detail = sentence(raw); detail != "" {
			return clean(code, 64), clean(detail, maxDetail)
		}
	}
	return clean(code, 64), plainDetail(trimmed)
}

// sentence is a text, a list of texts, or a list of objects that each say what
// is wrong and where.
func sentence(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var parts []string
	for _, item := range list[:min(len(list), 20)] {
		var fault struct {
			Msg, Message, Detail, Path loose[string]
			Loc                        loose[[]any]
		}
		switch {
		case json.Unmarshal(item, &text) == nil:
			parts = append(parts, text)
		case json.Unmarshal(item, &fault) == nil:
			where := fault.Path.v
			for i, step := range fault.Loc.v {
				if i > 0 {
					where += "."
				}
				where += fmt.Sprint(step)
			}
			what := strings.TrimSpace(fault.Msg.v + " " + fault.Message.v + fault.Detail.v)
			if what == "" {
				continue
			}
			if where != "" {
				what = where + ": " + what
			}
			parts = append(parts, what)
		}
	}
	return strings.Join(parts, "; ")
}

// plainDetail is a body in no shape that is known, such as a proxy's page.
func plainDetail(body []byte) string {
	if body[0] == '<' {
		lower := bytes.ToLower(body)
		if i, j := bytes.Index(lower, []byte("<title>")), bytes.Index(lower, []byte("</title>")); i >= 0 && j > i {
			return "a page, not the API: " + clean(string(body[i+len("<title>"):j]), 200)
		}
		return "a page, not the API"
	}
	return clean(string(body[:min(len(body), maxDetail)]), maxDetail)
}

// clean makes a stranger's text fit for one line of a log.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	return strings.TrimSpace(sandbox.Clip(s, limit))
}
