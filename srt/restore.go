package srt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// anew is what a restored session's reader must know, whatever it holds.
const anew = "the session was idle and its interpreter was ended: the variables were saved and have been restored; " +
	"modules were imported anew, so settings made in them (pandas options, plot styles, warning filters, logging) are the defaults again"

// revive gives a fresh interpreter the variables that were saved, if there are any, until
// a moment. It fails where no interpreter is left to go on with. What was saved is lost
// only where it is surely worth nothing: a fault of the machine's may pass.
func (s *session) revive(ctx context.Context, fresh *interpreter, until restoreTime) error {
	name, ok := s.savedAs()
	if !ok {
		return nil
	}
	err := s.restore(ctx, fresh, name, until)
	if err == nil {
		return nil
	}
	// What was read in part is worth nothing.
	s.mu.Lock()
	closed := s.closed
	if s.live == fresh {
		s.live = nil
	}
	s.mu.Unlock()
	if failed := fresh.close(); failed != nil {
		return infra(errors.Join(err, failed))
	}
	var at *kernel.NameError
	switch {
	case closed:
		return sandbox.ErrClosed
	case ctx.Err() != nil: // the next call tries again
		return ctx.Err()
	case errors.As(err, &at) && at.Late:
		return s.restoredLate(at, until)
	case errors.As(err, &at) && at.Index >= 0:
		s.log.Warn("the interpreter ended while variables were being restored", "err", err)
		if s.tries.ended(at) {
			return s.raise(ctx, until)
		}
		s.setLost(fmt.Sprintf("the saved variables could not be restored (%s, one after the other, ended the interpreter): "+
			"this call ran in a fresh one, without the variables of earlier calls", strings.Join(s.tries.fatal(), ", ")))
		return s.raise(ctx, until)
	case !hopeless(err):
		return &sandbox.Error{Status: sandbox.StatusInfra, Layer: "state", Err: fmt.Errorf(
			"the saved variables could not be restored (%w), and are still there: try again, or reset the session to go on without them", err)}
	}
	s.log.Warn("a saved state can't be restored", "err", err)
	s.setLost(fmt.Sprintf("the saved variables could not be restored (%v): this call ran in a fresh interpreter, without the variables of earlier calls", err))
	return s.raise(ctx, until)
}

// hopeless reports whether what was saved can't be restored, however often one tries.
func hopeless(err error) bool {
	var cannot kernel.CannotError
	return errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &cannot)
}

// restore reads a state file into a fresh interpreter.
func (s *session) restore(ctx context.Context, fresh *interpreter, name string, until restoreTime) error {
	reading, cancel := context.WithDeadline(ctx, until.end)
	defer cancel()
	f, head, snapshot, err := openState(reading, filepath.Join(s.dir, name))
	if err != nil {
		if ctx.Err() == nil && reading.Err() != nil {
			return &kernel.NameError{Index: -1, Late: true, Err: err}
		}
		return err
	}
	defer f.Close()
	if head.Session != s.id {
		return fmt.Errorf("%w: it is another session's", errDamaged)
	}
	fresh.watchdog.running(true)
	r, err := fresh.client.Restore(ctx, kernel.RestoreRequest{
		Table: head.Table, From: snapshot, Limit: time.Until(until.end), Without: s.tries.without(until.limit),
	})
	fresh.watchdog.running(false)
	if why := fresh.watchdog.reason(); err != nil && why != "" {
		return errors.New(why)
	}
	if err != nil {
		return err
	}
	notes := []string{anew}
	if name == staleFile {
		notes[0] = fmt.Sprintf("the server was ended before it could save the session: the variables are as they were at %s, and what later calls changed in them is lost; "+
			"modules were imported anew", head.Saved.UTC().Format("15:04:05 UTC on 2 January 2006"))
	}
	if r.Back == 0 && r.Names > 0 {
		return kernel.CannotError(fmt.Sprintf("none of %d: %q", r.Names, r.Notes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revived = append(append(notes, head.Notes...), r.Notes...)
	s.ran, s.used = true, true
	return nil
}

// tell adds to a result, once, that an interpreter was lost before the call.
func (s *session) tell(res *sandbox.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = true
	if s.revived != nil {
		res.Notes = append(s.revived, res.Notes...)
		if res.State == sandbox.StateKept {
			res.State = sandbox.StateRestored
		}
		s.revived = nil
	}
	if s.lost != "" {
		kernel.Tell(res, s.lost)
		s.lost = ""
	}
}

// giveUpFull ends an interpreter that was restored after it had gone beyond the memory limit,
// where there is no room for it: only a fresh wall empties what is full, and the next call
// would end as this one did.
func (s *session) giveUpFull(live *interpreter, res sandbox.Result) {
	if res.Status != sandbox.StatusOOM || res.State != sandbox.StateRestored || live.watchdog.reason() == "" && !live.cage.isFull() {
		return
	}
	s.mu.Lock()
	s.ran = false // told below, and better
	s.mu.Unlock()
	s.bury(live)
	s.setLost("what earlier code had left in /tmp or in shared memory filled the session's memory limit, so the interpreter was ended between the calls: " + kernel.Fresh)
}

// restoreTime bounds the restoring of variables for a call by the call's own limit.
type restoreTime struct {
	limit time.Duration
	end   time.Time
}

func restoreWithin(limit time.Duration) restoreTime {
	limit = cmp.Or(limit, sandbox.DefaultTimeout)
	return restoreTime{limit: limit, end: time.Now().Add(limit)}
}

// lateError is a call whose time was over before its code began.
type lateError struct{ text string }

func (e *lateError) Error() string { return e.text }

// restoredLate takes note that variables took longer than a call may, and tells its caller
// what becomes of them.
func (s *session) restoredLate(at *kernel.NameError, until restoreTime) error {
	text := fmt.Sprintf("The time limit of %v was reached while the session's saved variables were being restored; nothing of the code has run. "+
		"They are still saved. ", until.limit)
	switch {
	case s.tries.late(at, until.limit):
		text += fmt.Sprintf("Loading %s took %v of it: a call with a larger limit tries again with all of them, one with the same goes on without %s.",
			at.Name, at.Took.Round(time.Millisecond), at.Name)
	default:
		text += "Run the code again with a larger limit, or reset the session to go on without them."
	}
	s.log.Warn("variables were not restored in time", "limit", until.limit, "err", at)
	return &lateError{text}
}

// outOfTime is the result of a call whose time was over before its code began.
func outOfTime(req sandbox.Request, late *lateError, took time.Duration) sandbox.Result {
	return sandbox.Result{
		Status: sandbox.StatusTimeout, ExitCode: sandbox.StatusTimeout.ExitCode(), Error: late.text,
		State: sandbox.StateKept, Backend: "local", Code: req.Code, Provisioning: took,
	}
}
