package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcp-sandbox/sandbox"
)

const (
	auditDepth   = 1024    // lines that wait to be written, at most
	auditTools   = 50      // external tools that are named
	auditCommand = 8 << 10 // bytes of a command line: what may be longer is refused, and its hash tells which it was
)

// auditLine is a call in the audit log.
type auditLine struct {
	Time      time.Time      `json:"time"`
	Principal string         `json:"principal"`
	Session   string         `json:"session,omitempty"`
	Tool      string         `json:"tool"`
	CodeHash  string         `json:"code_sha256,omitempty"`
	Command   string         `json:"command,omitempty"`
	LineHash  string         `json:"command_sha256,omitempty"` // of a command that is not here in full
	Status    sandbox.Status `json:"status"`
	ExitCode  int            `json:"exit_code"`
	DurationS float64        `json:"duration_s"`
	Externals map[string]int `json:"externals,omitempty"` // tool outside -> how often it was called; see countCalls
}

// auditGap is a line that says how many others are missing about there.
type auditGap struct {
	Time    time.Time `json:"time"`
	Dropped int64     `json:"dropped"`
}

func auditOf(r sandbox.Record) auditLine {
	l := auditLine{
		Time: r.Time.UTC(), Principal: r.Principal, Session: r.Session, Tool: r.Tool,
		Status: r.Status, ExitCode: r.ExitCode, DurationS: float64(r.Took.Microseconds()) / 1e6, Externals: countCalls(r.Calls),
	}
	switch {
	case r.Source == "":
	case r.Tool == "execute_cli" && len(r.Source) <= auditCommand:
		l.Command = r.Source
	case r.Tool == "execute_cli":
		l.Command, l.LineHash = r.Source[:auditCommand], hashOf(r.Source)
	default:
		l.CodeHash = hashOf(r.Source)
	}
	return l
}

// countCalls counts by tool. Code may ask for tools that there are not, by any name: those
// beyond auditTools names are counted together, as "others".
func countCalls(calls []sandbox.Call) map[string]int {
	if len(calls) == 0 {
		return nil
	}
	counts := map[string]int{}
	for _, c := range calls {
		name := c.Name
		if _, known := counts[name]; !known && len(counts) >= auditTools {
			name = "others"
		}
		counts[name]++
	}
	return counts
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// encodeLine writes v as people and grep read it: nothing is escaped for HTML.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// auditLog writes a line for each call. It never makes a call wait: what the disk
// does not take in time is counted, and a line says how much is missing.
// It is safe for concurrent use.
type auditLog struct {
	out     auditFile
	log     *slog.Logger
	lines   chan []byte
	dropped atomic.Int64 // that no line has told of yet
	ended   chan struct{}

	mu     sync.RWMutex // of closing lines
	closed bool

	failing bool // the writer's: the log has said so
}

// auditFile takes whole lines.
type auditFile interface {
	io.Writer
	Sync() error
	Close() error
}

// newAuditLog writes to out, which it owns. close ends it.
func newAuditLog(out auditFile, log *slog.Logger) *auditLog {
	a := &auditLog{out: out, log: log, lines: make(chan []byte, auditDepth), ended: make(chan struct{})}
	go a.write()
	return a
}

// record puts down a call that has ended.
func (a *auditLog) record(r sandbox.Record) {
	line, err := encodeLine(auditOf(r))
	if err != nil {
		a.dropped.Add(1)
		return
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		a.dropped.Add(1)
		return
	}
	select {
	case a.lines <- line:
	default:
		if a.dropped.Add(1) == 1 {
			a.log.Warn("the audit log is too slow: calls are missing in it, and a line will say how many")
		}
	}
}

// write is the only writer.
func (a *auditLog) write() {
	defer close(a.ended)
	for line := range a.lines {
		if !a.tellGap() || !a.put(line) {
			a.dropped.Add(1)
		}
	}
	a.tellGap()
	if err := errors.Join(a.out.Sync(), a.out.Close()); err != nil {
		a.log.Error("the audit log was not closed in order", "err", err)
	}
}

// tellGap writes how many are missing, if any are.
func (a *auditLog) tellGap() bool {
	n := a.dropped.Load()
	if n == 0 {
		return true
	}
	line, err := encodeLine(auditGap{Time: time.Now().UTC(), Dropped: n})
	if err != nil || !a.put(line) {
		return false
	}
	a.dropped.Add(-n)
	a.log.Warn("calls are missing in the audit log", "dropped", n)
	return true
}

func (a *auditLog) put(line []byte) bool {
	_, err := a.out.Write(line)
	switch {
	case err != nil && !a.failing:
		a.log.Error("the audit log can't be written: calls will be missing in it", "err", err)
	case err == nil && a.failing:
		a.log.Info("the audit log can be written again")
	}
	a.failing = err != nil
	return err == nil
}

// close writes what waits, until ctx ends at most.
func (a *auditLog) close(ctx context.Context) error {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.lines)
	}
	a.mu.Unlock()
	select {
	case <-a.ended:
	case <-ctx.Done():
		return fmt.Errorf("the audit log: the disk took too long; %d calls are missing at its end", int64(len(a.lines))+a.dropped.Load())
	}
	if n := a.dropped.Load(); n > 0 {
		return fmt.Errorf("the audit log: %d calls are missing at its end", n)
	}
	return nil
}
