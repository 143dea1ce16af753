package sandbox

import (
	"context"
	"time"
)

// Sandbox opens sessions behind one kind of wall. It is safe for concurrent use.
type Sandbox interface {
	// Open starts a session. ctx bounds the start alone: the session outlives
	// it. A sandbox that can't give what spec asks for fails; it never gives a
	// weaker one.
	Open(ctx context.Context, spec Spec) (Session, error)
	// String describes the wall as this host enforces it.
	String() string
}

// Session is one interpreter and its workspace. It is safe for concurrent use;
// calls take turns.
type Session interface {
	// Run executes code. The end of ctx interrupts the code; Run then returns
	// the truth about the variables, with StatusCancelled, together with
	// ctx.Err(). Run returns only when the session is ready for the next call
	// or has ended.
	Run(ctx context.Context, req Request) (Result, error)
	// Reset forgets all variables and ends all processes; the workspace stays.
	Reset(ctx context.Context) error
	// Close kills everything and waits until it is gone. It may be called
	// twice, and during Run, which then returns ErrClosed.
	Close() error
}

// Spec is what a session needs to be given at its start.
type Spec struct {
	ID        string    // names the session in logs and private directories; required
	Principal string    // whose it is, for a Keeper; "" = nobody's
	Created   time.Time // likewise; zero = now

	// Lazy opens the session without an interpreter, which then starts with the
	// first Run: the first call is not code, and may stay the only one.
	Lazy bool
}

// Request is one call of code.
type Request struct {
	Code    string         // Python source, at most MaxCode bytes
	Inputs  map[string]any // bound as a dict named inputs; nil leaves the name alone
	Timeout time.Duration  // limit for the code itself; 0 = DefaultTimeout
	Backend string         // where it is to run, for Backends alone; "" = where the session does, or its default
	// Externals are the tools that the code may call, bound as externals; nil = none.
	// A backend that can't carry the calls refuses with errors.ErrUnsupported.
	Externals       Externals
	ExternalsLimits ExternalsLimits // of this call; the zero value has defaults
	// Progress receives output while code runs, in pieces, from one goroutine
	// at a time, never after Run has returned. It must not block for long: the
	// guest waits for it. nil = none.
	Progress func(stream Stream, piece []byte)
}

// Stream tells standard output from standard error.
type Stream int

// The two streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Bounds of a request that hold for every backend.
const (
	MaxCode        = 1 << 20          // bytes of Python source
	MaxInputs      = 8 << 20          // bytes of inputs as JSON
	MaxValue       = 1 << 20          // bytes of a value as JSON; what is larger is shown in part
	DefaultTimeout = 30 * time.Second // where the request names none
)

// Check refuses a request that no backend could run, with an error of
// StatusInvalid whose sentence says what would be right.
func (r Request) Check() error {
	switch {
	case r.Code == "":
		return Invalid("code is empty: give the Python source to run")
	case len(r.Code) > MaxCode:
		return Invalid("code is %d bytes; at most %d are allowed: write data to a file or pass it as inputs", len(r.Code), MaxCode)
	case r.Timeout < 0:
		return Invalid("the timeout must be above 0; got %v", r.Timeout)
	}
	return nil
}
