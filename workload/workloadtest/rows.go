package workloadtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// row is a record of the logs.
type row struct {
	at      time.Time // it was written
	visible time.Time // it can be read
	level   string
	message string
	trace   string // a stack trace; ""
	output  bool   // of the container, not of the platform
}

// stream is where a row comes from.
type stream int

const (
	onStdout stream = iota
	onStderr
	onPlatform
)

// maxRows is how many of a workload's rows are kept: containers may write for ever.
const maxRows = 100_000

// write adds a row, which becomes visible as late as its stream is.
func (e *Emulator) write(w *workload, from stream, level, message string) {
	logs := e.cfg.Logs
	lag := []time.Duration{logs.Stdout, logs.Stderr, logs.Platform}[from]
	if logs.Jitter > 0 {
		lag += rand.N(logs.Jitter)
	}
	at := now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(w.rows) < maxRows {
		w.rows = append(w.rows, row{at: at, visible: at.Add(e.clock.scale(lag)), level: level, message: message, output: from != onPlatform})
	}
}

// AddRow adds a row to a workload's logs, as the platform or an instrumented program would.
// It can be read at once. A stack trace of "" is none. It reports whether there is such a workload.
func (e *Emulator) AddRow(workloadID, level, message, stacktrace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.workloads[workloadID]
	if w != nil {
		at := now()
		w.rows = append(w.rows, row{at: at, visible: at, level: level, message: message, trace: stacktrace})
	}
	return w != nil
}

// platformRow is a row that the platform writes about the container.
func (e *Emulator) platformRow(w *workload, level, message string) {
	e.write(w, onPlatform, level, fmt.Sprintf("%s: %s", w.containerName(), message))
}

// tail is the last lines of the output, the oldest first. The mutex is held.
func (w *workload) tail(n int) []string {
	lines := []string{}
	for i := len(w.rows) - 1; i >= 0 && len(lines) < n; i-- {
		if w.rows[i].output {
			lines = append([]string{w.rows[i].message}, lines...)
		}
	}
	return lines
}

// Lines end here whatever a container writes; container runtimes cut much earlier.
const (
	maxLine   = 4 << 20
	splitLine = 16 << 10
)

// lines makes rows of a stream's lines.
func (e *Emulator) lines(w *workload, from stream) *lines {
	limit := maxLine
	if e.cfg.Logs.Split {
		limit = splitLine
	}
	return &lines{limit: limit, emit: func(line []byte, ended bool) {
		if ended && e.cfg.Logs.Newlines {
			line = append(line, '\n')
		}
		// The collector does not know the stream: both are INFO.
		e.write(w, from, "INFO", string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
	}}
}

// lines cuts what is written to it. It is safe for concurrent use.
type lines struct {
	mu    sync.Mutex
	limit int
	rest  []byte
	emit  func(line []byte, ended bool)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			i = len(b)
		}
		part := min(i, l.limit-len(l.rest))
		l.rest, b = append(l.rest, b[:part]...), b[part:]
		switch {
		case len(b) > 0 && b[0] == '\n':
			l.end(true)
			b = b[1:]
		case len(l.rest) == l.limit:
			l.end(false)
		}
	}
	return n, nil
}

func (l *lines) end(ended bool) {
	l.emit(l.rest, ended)
	l.rest = nil
}

// flush ends a last line that lacks its end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.end(false)
	}
}
