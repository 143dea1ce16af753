package externals

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
)

const (
	scribeLine  = 500      // bytes of a line that are kept
	scribeTotal = 64 << 10 // bytes of a child's lines that are logged
)

var _ io.Writer = (*scribe)(nil)

// scribe logs what a child writes to its standard error, at debug, as far as that is
// worth it. It is safe for concurrent use.
type scribe struct {
	log     *slog.Logger
	secrets redactor

	mu      sync.Mutex
	line    []byte
	written int
	newest  string
}

func newScribe(log *slog.Logger, secrets redactor) *scribe {
	return &scribe{log: log, secrets: secrets}
}

// Write never fails: the child is not to be stopped by it.
func (s *scribe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece, p = p[:i], p[i+1:]
		} else {
			p = nil
		}
		// A little more than is shown, so that no secret is cut before it is found.
		if room := 4*scribeLine - len(s.line); room > 0 {
			s.line = append(s.line, piece[:min(room, len(piece))]...)
		}
		if i >= 0 {
			s.flush()
		}
	}
	return n, nil
}

func (s *scribe) flush() {
	text := oneLine(s.secrets.text(string(s.line)), scribeLine)
	s.line = s.line[:0]
	if text == "" {
		return
	}
	s.newest = text
	if s.written += len(text); s.written <= scribeTotal {
		s.log.Debug("it writes", "stderr", text)
	} else if s.written-len(text) <= scribeTotal {
		s.log.Debug("it writes more, which is not logged")
	}
}

// last is the last line that was written, finished or not.
func (s *scribe) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(bytes.TrimSpace(s.line)) > 0 {
		return oneLine(s.secrets.text(string(s.line)), scribeLine)
	}
	return s.newest
}
