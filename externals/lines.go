package externals

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxDrain is the most that is read of one line beyond its limit, in bytes. What
// has no end then is no protocol.
const maxDrain = 256 << 20

// errEndless ends a connection whose peer sends a line without an end.
var errEndless = errors.New("it sends a line without an end")

// tooLarge is a message beyond the limit, of which nothing was kept.
type tooLarge struct {
	size int64  // bytes, at least
	max  int64  // limit
	id   string // of the request it answers, as JSON; "" = not found
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("the reply has more than %d bytes, which is the limit of one reply: ask for less at a time", e.max)
}

// lines reads messages, one a line, none of them longer than max.
type lines struct {
	r   *bufio.Reader
	max int64
}

func newLines(r io.Reader, max int64) *lines {
	return &lines{bufio.NewReaderSize(r, 64<<10), max}
}

// next is the next line that is not blank. A line beyond the limit is read to its end,
// kept of it is only whose reply it is, and the error is a *tooLarge; others end the
// stream.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.line()
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil {
			return line, err
		}
	}
}

func (l *lines) line() ([]byte, error) {
	var line []byte
	for {
		piece, err := l.r.ReadSlice('\n')
		if int64(len(line)+len(piece)) > l.max {
			return nil, l.drain(line, piece, err)
		}
		switch {
		case err == nil && line == nil:
			return bytes.Clone(piece), nil
		case err == nil:
			return append(line, piece...), nil
		case !errors.Is(err, bufio.ErrBufferFull): // a last line without its end was cut
			return nil, err
		}
		line = append(line, piece...)
	}
}

// drain reads the rest of a line that is too long.
func (l *lines) drain(line, piece []byte, err error) error {
	var finder idFinder
	finder.feed(line)
	finder.feed(piece)
	size := int64(len(line) + len(piece))
	for errors.Is(err, bufio.ErrBufferFull) {
		if size > l.max+maxDrain {
			return errEndless
		}
		piece, err = l.r.ReadSlice('\n')
		finder.feed(piece)
		size += int64(len(piece))
	}
	if err != nil {
		return err
	}
	return &tooLarge{size: size, max: l.max, id: finder.found()}
}

// idFinder finds the member "id" of a JSON object that is too large to be kept, of
// which it sees one piece after the other.
type idFinder struct {
	depth   int
	quoted  bool   // within a string
	escaped bool   // after a backslash
	value   bool   // at depth 1 after a colon
	key     []byte // at depth 1: the string that is read as a key
	id      []byte
	reading bool // the value of "id" is being read
	done    bool
}

const longestID = 64

func (f *idFinder) feed(data []byte) {
	for _, c := range data {
		if f.done {
			return
		}
		f.take(c)
	}
}

func (f *idFinder) take(c byte) {
	if f.quoted {
		f.inString(c)
		return
	}
	switch c {
	case '"':
		f.quoted = true
		if f.depth == 1 && !f.value {
			f.key = f.key[:0]
		}
	case '{', '[':
		f.depth++
	case '}', ']':
		if f.depth--; f.depth == 0 {
			f.ended()
		}
	case ':':
		if f.depth == 1 {
			f.value, f.reading = true, string(f.key) == "id"
			return
		}
	case ',':
		if f.depth == 1 {
			f.ended()
			f.value = false
		}
	}
	if f.reading && !f.done && c > ' ' && c != ',' {
		f.keep(c)
	}
}

func (f *idFinder) inString(c byte) {
	switch {
	case f.reading:
		f.keep(c)
	case f.depth == 1 && !f.value && c != '"' && len(f.key) < longestID:
		f.key = append(f.key, c)
	}
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.quoted = false
	}
}

func (f *idFinder) keep(c byte) {
	if f.id = append(f.id, c); len(f.id) > longestID {
		f.id, f.reading, f.done = nil, false, true
	}
}

func (f *idFinder) ended() {
	if f.reading {
		f.reading, f.done = false, true
	}
}

// found is the id as JSON, or "".
func (f *idFinder) found() string {
	if !f.done {
		return ""
	}
	return string(f.id)
}
