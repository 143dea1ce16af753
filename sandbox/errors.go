package sandbox

import (
	"errors"
	"fmt"
)

// Sentinels that callers branch on, by errors.Is.
var (
	ErrInfra          = errors.New("the sandbox could not be provisioned or reached")
	ErrClosed         = errors.New("the session is closed")
	ErrFull           = errors.New("the server is full")
	ErrUnknownSession = errors.New("unknown session")
)

// Error is a fault of the wall, not of the guest.
type Error struct {
	Status   Status // StatusInfra, unless the request itself was refused
	ExitCode int    // of the process that failed, where there was one
	Stderr   string // what that process said, capped
	Layer    string // the part that failed: "userns", "seccomp", "python", …
	Ran      bool   // whether code may have run, in part or whole
	Err      error  // the cause; never nil
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Err.Error()
	if e.Layer != "" {
		s = fmt.Sprintf("%s: %s", e.Layer, s)
	}
	if e.Stderr != "" {
		s = fmt.Sprintf("%s (stderr: %s)", s, e.Stderr)
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes every Error with StatusInfra match ErrInfra.
func (e *Error) Is(target error) bool {
	return target == ErrInfra && e.Status == StatusInfra
}

// Invalid makes the error of a request whose arguments are refused before
// anything ran. The sentence is for the caller: what was wrong, what is right.
func Invalid(format string, args ...any) error {
	return &Error{Status: StatusInvalid, ExitCode: StatusInvalid.ExitCode(), Err: fmt.Errorf(format, args...)}
}
