package srt

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"unicode/utf8"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// The server and the warden talk in the kernel's frames. A line has a number,
// which its report repeats.
const (
	frameConfig = 'C' // server → warden, first and once: wardenConfig
	frameRun    = 'R' // server → warden: lineRequest
	frameStop   = 'S' // server → warden: lineStop
	frameReport = 'W' // warden → server: lineReport
)

// maxWardenFrame bounds a payload in either direction. A line is 8 KiB at most
// where it is read, so that neither a request nor a report comes near it.
const maxWardenFrame = 1 << 20

var errWarden = errors.New("malformed frame")

func wardenBound(byte) uint32 { return maxWardenFrame }

// wardenConfig is all that the warden is told. It comes by a pipe: its arguments
// and environment could be read by what it starts.
type wardenConfig struct {
	List     allowlist.Options
	Programs map[string]string // paths of the executables
	Env      []string          // of every command
	Scratch  []string          // directories of the wall's own that commands may write: emptied after each line
}

type lineRequest struct {
	ID   uint64 // above 0
	Line *allowlist.Pipeline
}

type lineStop struct{ ID uint64 }

// lineReport is how a line ended.
type lineReport struct {
	ID      uint64
	Steps   [][]stageReport // those that ran, in order
	Refused *refusal        // why the step after them did not
	Stopped bool            // it was told to end
	Unclean string          // why what it has left in files could not be removed; "" = it was
}

// refusal is why a step was not started.
type refusal struct {
	Name  string // of the command at fault
	Text  string
	Rule  string // of the allowlist, once wildcards had become names; "" = it is not the allowlist's
	Found string // as allowlist.Error has it
}

// deniedBy is the allowlist's refusal of a command.
func deniedBy(name string, err error) *refusal {
	r := &refusal{Name: name, Text: err.Error(), Rule: "argument"}
	if e := (*allowlist.Error)(nil); errors.As(err, &e) {
		r.Rule, r.Found = e.Rule, e.Found
	}
	return r
}

// stageReport is how one command of a line ended.
type stageReport struct {
	Name   string
	Exit   int
	Signal int    // that killed it; 0 = none
	Error  string // why it could not be started; "" if it was
}

// code is the status as a shell would give it.
func (r stageReport) code() int {
	if r.Signal != 0 {
		return 128 + r.Signal
	}
	return r.Exit
}

// fatal is the stage that makes a step fail; nil if it succeeded. It is the last
// one, if that did not exit with 0: no pipefail. But SIGKILL, which no command of
// the list sends, is the kernel's at the limit of memory, or the host's: of what
// that stage had to say, something is missing, and who reads the end of the pipe
// can't know. So it fails the step wherever it stands.
func fatal(step []stageReport) *stageReport {
	for i := range step {
		if step[i].Signal == int(syscall.SIGKILL) {
			return &step[i]
		}
	}
	if last := &step[len(step)-1]; last.code() != 0 {
		return last
	}
	return nil
}

const maxReportText = 4096 // bytes of a refusal or an error

// decodeReport reads a report on line. The warden runs no code of the guest's,
// and still nothing is believed that it could not have found.
func decodeReport(payload []byte, id uint64, line *allowlist.Pipeline) (lineReport, error) {
	var r lineReport
	if !utf8.Valid(payload) {
		return r, fmt.Errorf("%w: report: not UTF-8", errWarden)
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%w: report: %w", errWarden, err)
	}
	if r.ID != id {
		return r, fmt.Errorf("%w: a report that nobody asked for", errWarden)
	}
	if len(r.Steps) > len(line.Steps) || len(r.Steps) == len(line.Steps) && r.Refused != nil {
		return r, fmt.Errorf("%w: report: %d steps of %d", errWarden, len(r.Steps), len(line.Steps))
	}
	if len(r.Steps) == 0 && r.Refused == nil {
		return r, fmt.Errorf("%w: report: nothing was run or refused", errWarden)
	}
	for i, step := range r.Steps {
		if len(step) != len(line.Steps[i].Stages) || len(step) == 0 {
			return r, fmt.Errorf("%w: report: %d stages of %d", errWarden, len(step), len(line.Steps[i].Stages))
		}
		for j := range step {
			s := &step[j]
			if s.Name != line.Steps[i].Stages[j].Name || s.Exit < 0 || s.Exit > 255 || s.Signal < 0 || s.Signal > 64 {
				return r, fmt.Errorf("%w: report: no such end of a stage: %+v", errWarden, *s)
			}
			s.Error = sandbox.Clip(s.Error, maxReportText)
		}
		// && goes on after success alone.
		if f := fatal(step); f != nil && (i < len(r.Steps)-1 || r.Refused != nil) {
			return r, fmt.Errorf("%w: report: it went on after %+v", errWarden, *f)
		}
	}
	r.Unclean = sandbox.Clip(r.Unclean, maxReportText)
	if f := r.Refused; f != nil {
		for _, text := range []*string{&f.Name, &f.Text, &f.Rule, &f.Found} {
			*text = sandbox.Clip(*text, maxReportText)
		}
	}
	return r, nil
}
