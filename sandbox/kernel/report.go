package kernel

import (
	"fmt"
	"slices"
	"syscall"

	"mcp-sandbox/sandbox"
)

// report turns what was seen into the Result's facts.
func (r *runner) report(res *sandbox.Result) {
	res.State = sandbox.StateKept
	switch {
	case r.history.between != nil:
		r.reportBetween(res)
	case r.history.fresh:
		res.State = sandbox.StateNew
	}
	switch {
	case r.why != nil && (r.killed || r.broken != nil || r.out.died != nil):
		r.reportKilled(res)
	case r.broken != nil:
		r.reportBroken(res)
	case r.out.died != nil:
		r.reportDied(res)
	default:
		r.reportReply(res)
		if r.why != nil {
			r.reportStopped(res)
		}
	}
}

// reportStopped: the code was told to end, and did. It may have ended by itself
// a moment before, or because its children were killed.
func (r *runner) reportStopped(res *sandbox.Result) {
	res.Status, res.ExitCode = r.why.Status, r.why.Status.ExitCode()
	text := r.why.Text + " The code was interrupted; the variables are kept as they were at that moment."
	if !r.out.reply.Interrupted {
		text = r.why.Text + " The code ended before an interrupt reached it; the variables are kept."
	}
	if res.Error != "" {
		text += "\n\n" + res.Error
	}
	res.Error = text
}

// reportBetween tells of a death that no call was there to hear of.
func (r *runner) reportBetween(res *sandbox.Result) {
	ended := fmt.Sprintf("the interpreter ended between the calls (%s): ", describe(r.history.between))
	h := r.history.revived
	if h == nil {
		res.State = sandbox.StateLost
		res.Notes = append(res.Notes, ended+Fresh)
		r.noteUnsaved(res)
		return
	}
	res.State = sandbox.StateRestored
	restored := "its variables were restored"
	if h.after < h.before {
		restored += fmt.Sprintf(" as they were after call %d of %d", h.after, h.before)
	}
	res.Notes = append(append(res.Notes, ended+restored), h.notes...)
}

// reportEnd says what became of the variables when the interpreter ended in a call.
func (r *runner) reportEnd(res *sandbox.Result) {
	if r.heir == nil {
		res.State = sandbox.StateLost
		res.Error += lostText
		if !r.history.fresh && r.broken == nil {
			r.noteUnsaved(res)
		}
		return
	}
	res.State = sandbox.StateRestored
	res.Error += restoredText
	if last := r.heir.before - 1; r.heir.after < last {
		res.Notes = append(res.Notes, fmt.Sprintf("the last checkpoint was made after call %d: what later calls, %d to %d, changed in variables is undone", r.heir.after, r.heir.after+1, r.heir.before))
	}
	res.Notes = append(res.Notes, r.heir.notes...)
}

func (r *runner) noteUnsaved(res *sandbox.Result) {
	if note := r.c.cfg.Unsaved; note != "" && !slices.Contains(res.Notes, note) {
		res.Notes = append(res.Notes, note)
	}
}

const restoredText = " What the call changed in variables is undone: they are restored from the last checkpoint. The files of the workspace are as the call left them."

const lostText = " All variables are lost; the files of the workspace are kept. The next call starts a fresh interpreter."

func (r *runner) reportKilled(res *sandbox.Result) {
	res.Status, res.ExitCode = r.why.Status, r.why.Status.ExitCode()
	res.Error = r.why.Text
	if !r.why.Kill {
		res.Error += " The code did not stop when it was interrupted, so the interpreter was ended."
	}
	r.reportEnd(res)
}

// reportBroken: the channel ended while code ran. Either the wall's first
// process was killed, or user code wrote rubbish where only replies belong.
func (r *runner) reportBroken(res *sandbox.Result) {
	res.Status, res.ExitCode = sandbox.StatusCrash, 128+int(syscall.SIGKILL)
	res.Error = "The interpreter was ended: its channel to the server broke (" + r.broken.Error() + ")."
	r.checkMemory(res)
	r.reportEnd(res)
}

func (r *runner) reportDied(res *sandbox.Result) {
	died := r.out.died
	res.Status = sandbox.StatusCrash
	res.Error = "The interpreter ended: " + describe(died) + "."
	if died.Signal == nil {
		res.ExitCode = *died.Exit
	} else if res.ExitCode = 128 + *died.Signal; *died.Signal == int(syscall.SIGKILL) {
		r.checkMemory(res)
	}
	r.reportEnd(res)
}

func (r *runner) checkMemory(res *sandbox.Result) {
	if r.c.cfg.OOM == nil || !r.c.cfg.OOM() {
		return
	}
	res.Status, res.ExitCode = sandbox.StatusOOM, sandbox.StatusOOM.ExitCode()
	res.Error = "The interpreter was ended: the session went beyond its memory limit of " + Bytes(r.c.cfg.Memory) + "."
}

func (r *runner) reportReply(res *sandbox.Result) {
	p := r.out.reply
	res.Output, res.ReturnValue, res.Error = p.Output, p.ReturnValue, p.Error
	res.Notes = append(res.Notes, p.Notes...)
	switch {
	case p.Status == "ok":
		res.Status = sandbox.StatusOK
	case p.OOM:
		res.Status, res.ExitCode = sandbox.StatusOOM, sandbox.StatusOOM.ExitCode()
		res.Error += "\n\nThe session's memory limit is " + Bytes(r.c.cfg.Memory) + ". The variables are kept: delete what is not needed."
	default:
		if hint := r.hint(p.Hint); hint != "" {
			res.Error += "\n\n" + hint
		}
		res.Status, res.ExitCode = sandbox.StatusError, p.ExitCode
		if res.ExitCode < 1 || res.ExitCode > 255 { // the worker's word, so bounded
			res.ExitCode = 1
		}
	}
}

// hint is what the server explains of an error of a kind; "" if nothing. An interrupt
// that it has sent itself needs no explanation.
func (r *runner) hint(kind string) string {
	if kind == "signal" && r.why != nil {
		return ""
	}
	return r.c.cfg.Hints[kind]
}

// describe says in a few words how a worker died.
func describe(e *event) string {
	if e.Signal != nil {
		s := syscall.Signal(*e.Signal)
		return fmt.Sprintf("killed by signal %d, %v", *e.Signal, s)
	}
	return fmt.Sprintf("it exited with code %d, by os._exit or from native code", *e.Exit)
}

// Bytes writes a size as a person would.
func Bytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
