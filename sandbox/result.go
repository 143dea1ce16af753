package sandbox

import (
	"encoding/json"
	"time"
)

// Result is what became of a call: one schema for every backend, local or
// remote, Python or commands.
type Result struct {
	Status       Status          // never the zero value
	Stdout       string          // valid UTF-8; an invalid byte becomes U+FFFD
	Stderr       string          // likewise
	Output       json.RawMessage // value of the last expression; nil if none
	ReturnValue  json.RawMessage // what the code assigned to _return; nil if none
	Displays     []Display       // images, HTML, Markdown, in order of production
	Error        string          // traceback, or the reason in a sentence; "" if none
	ExitCode     int             // see Status
	Duration     time.Duration   // of the guest's code alone
	Provisioning time.Duration   // of what came before it
	State        State           // what became of the variables
	Notes        []string        // what a reader must know besides
	Files        []File          // changed in the workspace by this call
	FilesCut     bool            // more may have changed than Files holds: not all of the workspace was looked at
	Calls        []Call          // external tools called by the code
	Truncated    Truncation      // what was produced against what is here
	Backend      string          // "local" or "workload"
	Code         string          // what was run
}

// Success reports whether the code ran to its end without a fault.
func (r Result) Success() bool { return r.Status == StatusOK }

// Status says how a call ended.
type Status string

// The statuses, each with its exit code.
const (
	StatusOK        Status = "ok"        // ran to its end, also sys.exit(0): 0
	StatusError     Status = "error"     // raised, or exited with n: 1 or n
	StatusTimeout   Status = "timeout"   // stopped at the time limit: 124
	StatusOOM       Status = "oom"       // stopped at the memory limit: 137
	StatusCrash     Status = "crash"     // the interpreter ended: n of os._exit(n), or 128 + signal
	StatusCancelled Status = "cancelled" // the caller went away: 130
	StatusInvalid   Status = "invalid"   // refused before anything ran, by its arguments: 2
	StatusDenied    Status = "denied"    // refused before anything ran, by policy: 126
	StatusInfra     Status = "infra"     // the sandbox could not be provisioned or reached: 125
)

// ExitCode is the exit code that belongs to s where the guest names none.
func (s Status) ExitCode() int {
	switch s {
	case StatusOK:
		return 0
	case StatusError, StatusCrash:
		return 1
	case StatusTimeout:
		return 124
	case StatusOOM:
		return 137
	case StatusCancelled:
		return 130
	case StatusInvalid:
		return 2
	case StatusDenied:
		return 126
	default:
		return 125
	}
}

// State says what became of the session's variables.
type State string

// The states.
const (
	StateNew      State = "new"      // the first call in a fresh interpreter
	StateKept     State = "kept"     // all that earlier calls left is there
	StateRestored State = "restored" // the interpreter was lost, its variables were not
	StateLost     State = "lost"     // the variables of earlier calls are gone
	StateNone     State = "none"     // nothing is remembered: a stateless backend, a refusal
)

// Display is something to look at: an image, HTML, Markdown.
//
// An image in Data is a PNG or a JPEG of at most 2 MiB, and at most eight of a
// call's displays have one. What is no text and no such image has no Data, but an
// Original.
type Display struct {
	MIME         string // media type, such as image/png
	Data         []byte // decoded, complete; nil = it can't be shown, only kept
	Width        int    // pixels of an image; 0 = it is none
	Height       int    // pixels
	Original     []byte // what it was before it was made to fit, or instead of Data; nil = there is no other
	OriginalMIME string // media type of Original
	URI          string // of the session's output that holds Original; "" = none does
	About        string // why it was changed, or is not shown; "" = nothing to say
}

// File is a file of the workspace.
type File struct {
	Path string // relative to the workspace, with slashes
	Size int64  // bytes
}

// Call is one call of an external tool by the guest's code.
type Call struct {
	Name     string // server.tool
	Duration time.Duration
	OK       bool
}

// Count compares what was produced with what a result holds, in bytes.
type Count struct {
	Produced int64 `json:"produced"`
	Kept     int64 `json:"kept"`

	// Rest is the URI of the session's output that holds the stream from its start,
	// see [Outputs]; "" if none does.
	Rest string `json:"rest,omitempty"`

	// Held is how many bytes of the stream that output holds.
	Held int64 `json:"-"`
}

// Cut reports whether something is missing.
func (c Count) Cut() bool { return c.Produced > c.Kept }

// Truncation holds the counts of each stream.
type Truncation struct {
	Stdout Count
	Stderr Count
}

// Any reports whether anything is missing.
func (t Truncation) Any() bool { return t.Stdout.Cut() || t.Stderr.Cut() }
