package srt

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// Exit codes of a stage that could not be started, as shells give them.
const (
	exitMissing = 127
	exitRefused = 126
)

// refusedWhole is the error of a line of which nothing ran; nil if something did.
func (e ending) refusedWhole() error {
	if e.report == nil || e.report.Refused == nil || len(e.report.Steps) > 0 || e.why != nil {
		return nil
	}
	r := e.report.Refused
	if r.Rule == "" {
		return sandbox.Invalid("%v", r)
	}
	return &sandbox.Error{
		Status: sandbox.StatusDenied, ExitCode: sandbox.StatusDenied.ExitCode(),
		Err: &allowlist.Error{Rule: r.Rule, Found: r.Found, Offset: -1, Message: r.Text},
	}
}

// String says which command was refused, and why.
func (r *refusal) String() string {
	switch {
	case r.Rule != "": // the list's own sentences name the command
		return fmt.Sprintf("%s (rule: %s)", r.Text, r.Rule)
	case r.Name == "":
		return r.Text
	}
	return r.Name + ": " + r.Text
}

// tell puts into res what the ending says.
func (e ending) tell(res *sandbox.Result, w *warden, line *allowlist.Pipeline) {
	oom := w.cage.oomKilled()
	switch {
	case e.why != nil:
		res.Status, res.ExitCode, res.Error = e.why.Status, e.why.Status.ExitCode(), e.why.Text
		if oom {
			res.Notes = append(res.Notes, outOfMemory(w.memory, e.killed()))
		}
		return
	case e.broken != nil:
		res.Status, res.ExitCode = sandbox.StatusCrash, 128+int(syscall.SIGKILL)
		res.Error = "The commands were ended: the process that ran them died (" + e.broken.Error() + ")."
	default:
		e.report.tell(res, line)
	}
	if oom { // whatever the statuses are: what a killed one would have said is missing
		res.Status, res.ExitCode = sandbox.StatusOOM, sandbox.StatusOOM.ExitCode()
		res.Error = outOfMemory(w.memory, e.killed())
	}
}

// killed says, for the beginning of a sentence, who was ended by SIGKILL.
func (e ending) killed() string {
	if e.report == nil {
		return allEnded
	}
	var names []string
	for _, step := range e.report.Steps {
		for _, s := range step {
			// A line that is told to end is ended by the same signal, all of it.
			if s.Signal == int(syscall.SIGKILL) && !e.report.Stopped && !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	switch len(names) {
	case 0: // one that a command had started, such as tar's decompressor
		return "A program was ended"
	case 1:
		return names[0] + " was ended"
	}
	return strings.Join(names, ", ") + " were ended"
}

const allEnded = "The commands were ended"

// outOfMemory is the sentence on commands that came to the limit of memory.
func outOfMemory(limit int64, ended string) string {
	return ended + ": together the commands went beyond their memory limit of " + kernel.Bytes(limit) + "."
}

// maxStageNotes bounds the notes of one line, which may have 64 stages.
const maxStageNotes = 20

// notRun is the note on a line that ended before its last step.
const notRun = "what follows && was not run"

// tell puts into res the statuses of line. The line's is that of the stage that
// made it fail, see fatal; the others' faults are notes.
func (r lineReport) tell(res *sandbox.Result, line *allowlist.Pipeline) {
	res.Status = sandbox.StatusOK
	for i, step := range r.Steps {
		fault := fatal(step)
		for j := range step {
			s := &step[j]
			switch sigpipe := int(syscall.SIGPIPE); {
			case s == fault:
				res.Status, res.ExitCode, res.Error = sandbox.StatusError, s.code(), s.String()
			case s.code() != 0 && s.Signal != sigpipe && s.code() != 128+sigpipe && len(res.Notes) < maxStageNotes:
				res.Notes = append(res.Notes, "within the pipeline "+s.String())
			default:
				continue
			}
			if hint := missingStdin(line.Steps[i].Stages[j]); hint != "" && !slices.Contains(res.Notes, hint) {
				res.Notes = append(res.Notes, hint)
			}
		}
	}
	switch {
	case r.Refused != nil:
		res.Status, res.ExitCode = sandbox.StatusError, exitRefused
		res.Error = "What follows && was not run. " + r.Refused.String()
	case len(r.Steps) < len(line.Steps):
		res.Notes = append(res.Notes, notRun)
	}
}

// missingStdin is what to say of a command that failed and was to read standard
// input by a name in /dev, where the links into /proc are missing; "" = it was not.
func missingStdin(s allowlist.Stage) string {
	for _, a := range s.Args {
		if a.Text == "/dev/stdin" || a.Text == "/dev/fd/0" {
			return a.Text + " does not exist here: `-` is standard input"
		}
	}
	return ""
}

// meanings of an exit code that is no fault.
var meanings = map[string]string{
	"grep": "no line matched",
	"diff": "the files differ",
	"cmp":  "the files differ",
}

// String says how the command ended, in a few words.
func (r stageReport) String() string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s could not be started: %s", r.Name, r.Error)
	case r.Signal != 0:
		name := syscall.Signal(r.Signal).String()
		return fmt.Sprintf("%s was ended by signal %d (%s)", r.Name, r.Signal, strings.ToLower(name))
	}
	if meaning := meanings[r.Name]; meaning != "" && r.Exit == 1 {
		return fmt.Sprintf("%s exited with 1: %s", r.Name, meaning)
	}
	return fmt.Sprintf("%s exited with %d", r.Name, r.Exit)
}
