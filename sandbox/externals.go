package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Externals are tools outside the wall that code of a call may call by name, as
// externals.server.tool(…). They decide what may be called: whatever names and
// arguments come here are the guest's word, checked for form and size alone. It
// is safe for concurrent use.
type Externals interface {
	// Servers tells what there is, at once and from memory. Each call of a
	// session asks anew.
	Servers(ctx context.Context) []ExternalServer
	// Tools are those of one server that may be called. It connects where it must.
	Tools(ctx context.Context, server string) ([]ExternalTool, error)
	// Call calls a tool. arguments is a JSON object in UTF-8. The end of ctx
	// cancels the call, also upstream, and Call then returns at once. What the
	// guest may read of an error is an *ExternalError's Text; of any other it
	// learns that the call failed.
	Call(ctx context.Context, server, tool string, arguments json.RawMessage) (ExternalResult, error)
}

// ExternalServer names a group of tools.
type ExternalServer struct {
	Name string // required; unique, at most MaxExternalName bytes
	Note string // what it is for, in a line; "" = not known
	// Tools are the names of its tools as far as they are known without connecting.
	// The guest gets them from [Externals.Tools] instead.
	Tools []string
	// Revision changes whenever the tools may have: the guest keeps what it knows of
	// them while it stays the same. "" = they are asked for anew in each call of a
	// session that uses them.
	Revision string
}

// ExternalTool describes a tool. Nothing of it is checked for the guest.
type ExternalTool struct {
	Name        string // required; at most MaxExternalName bytes
	Title       string
	Description string
	Input       json.RawMessage // JSON Schema of the arguments; nil = not told
	Output      json.RawMessage // JSON Schema of the structured result; nil = not told
}

// ExternalResult is a tool's answer, also where it says that the tool failed.
type ExternalResult struct {
	Value   json.RawMessage   // structured content; nil = none
	Content []ExternalContent // all else, in order
	IsError bool              // Content tells why
}

// ExternalKind says what a part of a tool's answer is.
type ExternalKind string

// The kinds of content.
const (
	ExternalText ExternalKind = "text" // Text, also that of an embedded resource
	ExternalData ExternalKind = "data" // Data and MIME: an image, a sound, a blob
	ExternalLink ExternalKind = "link" // URI, Name, MIME and Text: something that can be fetched elsewhere
)

// ExternalContent is one part of a tool's answer.
type ExternalContent struct {
	Kind ExternalKind
	Text string // of a link: its description
	Data []byte
	MIME string // "" = not told
	URI  string // of a link, or of the resource that Text or Data was embedded from
	Name string // of a link
}

// ExternalFault says why a call came to no result.
type ExternalFault string

// The faults, each an exception of its own in Python, all of them a ToolError.
const (
	ExternalUnknown     ExternalFault = "unknown"     // there is no such server or tool, as far as the guest may know
	ExternalDenied      ExternalFault = "denied"      // it may not be called: by policy, or since a budget is spent
	ExternalUnavailable ExternalFault = "unavailable" // its server is down, crashed, or answered what nobody understands
	ExternalLate        ExternalFault = "late"        // it did not answer in its time
)

// ExternalError is why a call of a tool came to no result.
type ExternalError struct {
	Fault ExternalFault
	Text  string // a sentence for the guest: nothing secret
	Err   error  // the cause, for the log; nil = Text says it all
}

// Error implements error.
func (e *ExternalError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s (%v)", e.Text, e.Err)
	}
	return e.Text
}

// Unwrap gives the cause.
func (e *ExternalError) Unwrap() error { return e.Err }

// Bounds of external calls that hold for every backend.
const (
	MaxExternalName      = 200     // bytes of a server's or a tool's name
	MaxExternalArguments = 4 << 20 // bytes of one call's arguments as JSON
	MaxExternalResult    = 8 << 20 // bytes of one result as JSON, data as base64
	MaxExternalsRunning  = 16      // calls at once, of one call of a session
	MaxExternalsListed   = 1000    // of Result.Calls; a note counts the rest
)

// ExternalsLimits bound what one call of a session may call.
type ExternalsLimits struct {
	Calls   int           // external calls; 0 = 100
	Bytes   int64         // of all arguments and results together, as JSON; 0 = 64 MiB
	Time    time.Duration // of all external calls together, those side by side too; 0 = 10 min
	Timeout time.Duration // of each external call; 0 = 60 s
}

// Resolve returns l with every zero replaced by its default, or all that is
// wrong with it.
func (l ExternalsLimits) Resolve() (ExternalsLimits, error) {
	var errs []error
	if l.Calls == 0 {
		l.Calls = 100
	}
	if l.Bytes == 0 {
		l.Bytes = 64 << 20
	}
	if l.Time == 0 {
		l.Time = 10 * time.Minute
	}
	if l.Timeout == 0 {
		l.Timeout = time.Minute
	}
	if l.Calls < 0 || l.Calls > 1_000_000 {
		errs = append(errs, fmt.Errorf("external calls: %d is not between 1 and 1,000,000", l.Calls))
	}
	if l.Bytes < 1<<10 {
		errs = append(errs, fmt.Errorf("bytes of external calls: %d is below the least that works, 1024", l.Bytes))
	}
	if l.Time < 0 {
		errs = append(errs, fmt.Errorf("time of external calls: %v is not above 0", l.Time))
	}
	if l.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout of external calls: %v is not above 0", l.Timeout))
	}
	return l, errors.Join(errs...)
}
