package workload

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
)

// vigil is what is known of a one-shot run while it is waited for, and when that
// is enough. It starts nothing and waits for nothing: it is told what was seen and
// when, and says whether that is the end. It is not safe for concurrent use.
//
// The platform's statuses say little: "errored" is the normal end of a run that
// went well, and also comes before one whose image could not be pulled at first.
// So the log's marker counts, then the exit code, and statuses last.
type vigil struct {
	nonce        string
	timeout      time.Duration // of the code
	codeTime     time.Duration // that the code may take at most, by the clock of what is seen
	provisioning time.Duration // until it starts
	memory       int64         // bytes of the container
	keep         int           // bytes of each stream in a result
	began        time.Time

	rows     []row
	tail     string
	cut      bool // the log is longer than rows
	text     logText
	changed  time.Time // when the log last did
	status   string
	exit     *int // as the record had it, on platforms where it does
	seen     *snapshot
	started  time.Time // when the code was first known to run; zero = it is not
	ended    time.Time // likewise its end, or the platform's word that it failed
	marked   time.Time // when the marker was first seen
	missing  time.Time // since when the platform has not known the workload
	statuses []string  // all that there were, for the report
	pollErr  error     // the last of the record's
	logErr   error     // the last of the log's
}

// Times of a vigil.
const (
	grace       = 5 * time.Second  // beyond the code's time, for it to be stopped and to say so
	quiet       = 30 * time.Second // in which no row comes, before what is missing is given up
	lateLog     = 60 * time.Second // beyond the code's time, whatever still comes
	exitWait    = 3 * time.Second  // for the exit code after a marker
	nullWait    = 15 * time.Second // likewise where the marker's value says nothing
	missingWait = 10 * time.Second // before a workload that is not found is believed to be gone
)

func (v *vigil) sawLog(now time.Time, rows []row, err error) {
	if v.logErr = err; err != nil && len(rows) == 0 {
		return
	}
	if len(rows) < len(v.rows) && err != nil {
		return // a page of them; the log itself only grows
	}
	if len(rows) != len(v.rows) || v.changed.IsZero() {
		v.changed = now
	}
	v.rows = rows
	v.readText(now)
}

func (v *vigil) readText(now time.Time) {
	v.text = readLog(v.rows, v.tail)
	if v.text.runner > 0 && v.started.IsZero() {
		v.started = now
	}
	if v.text.marked && v.marked.IsZero() {
		v.marked = now
	}
}

func (v *vigil) sawRecord(now time.Time, r record, err error) {
	v.pollErr = err
	switch status := statusOf(err); {
	case status == http.StatusNotFound || status == http.StatusGone:
		if v.missing.IsZero() {
			v.missing = now
		}
		return
	case err != nil:
		return
	}
	v.missing = time.Time{}
	if r.Status != v.status && r.Status != "" {
		v.status = r.Status
		v.statuses = append(v.statuses, clean(r.Status, 32))
	}
	v.exit = r.ExitCode
	if r.LogTail != v.tail {
		v.tail, v.changed = r.LogTail, now
		v.readText(now)
	}
	switch phaseOf(r.Status) {
	case up:
		v.start(now)
	case failed, final:
		if v.ended.IsZero() {
			v.ended = now
		}
	}
	if v.exit != nil {
		v.start(now)
	}
}

func (v *vigil) sawDetails(now time.Time, s *snapshot) {
	if s == nil {
		return
	}
	v.seen = s
	if c := s.sandbox(); c != nil && !c.neverStarted {
		if c.Started {
			v.start(now)
		}
		if c.Exited && v.ended.IsZero() {
			v.ended = now
		}
	}
}

func (v *vigil) start(now time.Time) {
	if v.started.IsZero() {
		v.started = now
	}
}

// wantsDetails reports whether the replicas' state would tell more.
func (v *vigil) wantsDetails() bool {
	_, _, known := v.exitCode()
	return !known && (v.text.marked || !v.ended.IsZero() || v.started.IsZero() && v.status != "" && v.status != "submitted")
}

// exitCode is that of the run, with the platform's reason.
func (v *vigil) exitCode() (code int, reason string, known bool) {
	if c := v.seen.sandbox(); c != nil && c.Exited && !c.neverStarted {
		return c.ExitCode, c.ExitReason, true
	}
	if v.exit != nil {
		return *v.exit, "", true
	}
	return 0, "", false
}

// end says whether the run is over at this time, and how: a Result, or the
// sandbox's fault.
func (v *vigil) end(now time.Time) (res sandbox.Result, err error, over bool) {
	if v.text.marked {
		if l, ok := readLabel(v.text.value, v.nonce); ok {
			p, err := openParcel(l, v.parcelRows())
			switch {
			case err == nil:
				return p.result(v.timeout, v.memory), nil, true
			case !errors.Is(err, errParts), now.Sub(v.changed) > quiet:
				return res, v.fault(true, fmt.Sprintf("the code has run, and its result could not be read: %v", err)), true
			}
			return res, nil, false
		}
		return v.endMarked(now)
	}
	if c := v.seen.sandbox(); c != nil && c.neverStarted {
		return res, v.fault(false, "the container could not be started: "+v.seen.obstacle()), true
	}
	if !v.missing.IsZero() && now.Sub(v.missing) > missingWait {
		return res, v.fault(!v.started.IsZero(), "the platform does not know the workload any more: somebody else has deleted it"), true
	}
	if v.started.IsZero() {
		return v.endUnstarted(now)
	}
	return v.endUnmarked(now)
}

// parcelRows are the rows, and what the record has of them.
func (v *vigil) parcelRows() []row {
	return append(v.rows[:len(v.rows):len(v.rows)], row{Message: v.tail})
}

// endMarked: the image's own runner has told of a value, and not how the code
// ended: a value may have been set before an exception, or before the time was up.
func (v *vigil) endMarked(now time.Time) (res sandbox.Result, err error, over bool) {
	code, reason, known := v.exitCode()
	waited := now.Sub(v.marked)
	told := v.text.value != nil || v.text.timedOut || v.text.trace != ""
	if !known && waited < exitWait || !known && !told && waited < nullWait {
		return res, nil, false
	}
	if v.text.broken {
		if now.Sub(v.changed) < exitWait { // the rest of the line may come
			return res, nil, false
		}
		return res, v.fault(true, "the code has run, and its result could not be read: the log holds only a part of it"), true
	}
	res = v.output()
	res.ReturnValue = v.text.value
	if !known {
		res.Notes = append(res.Notes, "the platform did not tell the code's exit status; what is said of success comes from its output")
		switch {
		case v.text.timedOut:
			code = 124
		case v.text.trace != "":
			code = 1
		}
	}
	v.classify(&res, code, reason)
	return res, nil, true
}

// classify sets the status by an exit code.
func (v *vigil) classify(res *sandbox.Result, code int, reason string) {
	switch {
	case code == 0:
		res.Status = sandbox.StatusOK
	case code == 124:
		res.Status, res.Error = sandbox.StatusTimeout, fmt.Sprintf("The time limit of %v was reached.", v.timeout)
	case reason == "OOMKilled":
		res.Status = sandbox.StatusOOM
		res.Error = "The container was ended: the code went beyond its memory limit."
	case v.text.marked:
		res.Status, res.ExitCode, res.Error = sandbox.StatusError, code, v.text.trace
		if res.Error == "" {
			res.Error = fmt.Sprintf("The code ended with exit code %d.", code)
		}
		return
	default:
		res.Status, res.ExitCode = sandbox.StatusCrash, code
		res.Error = strings.TrimSpace(fmt.Sprintf("The interpreter ended with exit code %d before the code was done.\n\n%s", code, v.text.trace))
		return
	}
	res.ExitCode = res.Status.ExitCode()
}

// endUnstarted: the container has not been seen to run.
func (v *vigil) endUnstarted(now time.Time) (res sandbox.Result, err error, over bool) {
	if phaseOf(v.status) == final {
		return res, v.fault(false, "the container never started"), true
	}
	if now.Sub(v.began) <= v.provisioning {
		return res, nil, false
	}
	return res, v.fault(false, fmt.Sprintf("the container did not start within %v", v.provisioning)), true
}

// endUnmarked: the code has started, and no result is there.
func (v *vigil) endUnmarked(now time.Time) (res sandbox.Result, err error, over bool) {
	code, reason, known := v.exitCode()
	if known && (code == 124 || reason == "OOMKilled") {
		res = v.output()
		v.classify(&res, code, reason)
		return res, nil, true
	}
	limit := v.started.Add(v.codeTime)
	silent := now.Sub(v.changed) > quiet
	if !v.ended.IsZero() {
		patient := v.text.runner > 0 // what has begun to come would have come on
		patience := v.ended.Add(quiet)
		if overall := v.began.Add(v.provisioning + v.codeTime); !patient && !known && overall.After(patience) {
			patience = overall
		}
		if !now.After(patience) || !silent && !now.After(limit.Add(lateLog)) {
			return res, nil, false
		}
		return v.endLost(code, reason, known)
	}
	if !now.After(limit) || !silent && !now.After(limit.Add(lateLog)) {
		return res, nil, false
	}
	res = v.output()
	v.classify(&res, 124, "")
	res.Error += " The code did not end by itself, so its container was deleted."
	return res, nil, true
}

// endLost: the run is over, and its marker will not come.
func (v *vigil) endLost(code int, reason string, known bool) (res sandbox.Result, err error, over bool) {
	const sigkill, sigterm = 128 + 9, 128 + 15
	if value, ok := v.text.glued(); ok && (!known || code == 0) {
		res = v.output()
		res.ReturnValue, res.Status = value, sandbox.StatusOK
		return res, nil, true
	}
	switch {
	case !known:
		return res, v.fault(true, "the run ended, and no result is in its log"), true
	case code == 0:
		return res, v.fault(true, "the code has run to its end, and its result is not in the log"), true
	case code == sigkill || code == sigterm:
		return res, v.fault(true, fmt.Sprintf("the platform ended the container (exit code %d, %s)", code, or(reason, "no reason told"))), true
	}
	res = v.output()
	v.classify(&res, code, reason)
	return res, nil, true
}

// output is what the log has of the code's own.
func (v *vigil) output() sandbox.Result {
	var res sandbox.Result
	res.Stdout, res.Truncated.Stdout = v.kept(v.text.stdout)
	res.Stderr, res.Truncated.Stderr = v.kept(v.text.stderr)
	if v.cut {
		res.Notes = append(res.Notes, "the log is longer than what is read of it: the beginning of the output is missing, and is not counted")
	}
	if d := v.text.at.Sub(v.text.first); d > 0 && !v.text.first.IsZero() {
		res.Duration = d
	}
	return res
}

// kept is what a result holds of a stream.
func (v *vigil) kept(all []string) (string, sandbox.Count) {
	text := []byte(lines(all))
	head, tail := text, []byte(nil)
	if len(text) > v.keep {
		head, tail = text[:v.keep/2], text[len(text)-v.keep/2:]
	}
	return stream(head, tail, int64(len(text)))
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

// fault is the sandbox's: what happened, and what the platform had to say.
func (v *vigil) fault(ran bool, what string) error {
	var more []string
	if why := v.seen.obstacle(); why != "" && !strings.Contains(what, why) {
		more = append(more, why)
	}
	if v.status != "" {
		more = append(more, "status "+strings.Join(v.statuses, ", "))
	}
	if n := len(v.text.platform); n > 0 {
		more = append(more, v.text.platform[n-1])
	}
	for _, err := range []error{v.pollErr, v.logErr} {
		if err != nil {
			more = append(more, err.Error())
		}
	}
	if len(more) > 0 {
		what += " (" + strings.Join(more, "; ") + ")"
	}
	return errInfra(ran, errors.New(what))
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
