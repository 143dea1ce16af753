package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
)

// maxLine of a message: 1 MiB of code and 8 MiB of inputs fit however they are
// escaped, and little more does.
const maxLine = 16 << 20

// What is kept of a longer one.
const (
	headLine = 64 << 10
	tailLine = 1 << 10
)

// line is one message as it came.
type line struct {
	text []byte
	huge bool // longer than maxLine: text is only the beginning
	tail []byte
}

// lines reads messages, one a line. It is not safe for concurrent use.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, headLine)} }

// next returns the next line that is not blank. The last one need not be
// terminated: `printf … | mcp-sandbox` gets its answer.
func (l *lines) next() (line, error) {
	for {
		next, err := l.one()
		if next.huge || len(bytes.TrimSpace(next.text)) > 0 {
			return next, nil
		}
		if err != nil {
			return line{}, err
		}
	}
}

func (l *lines) one() (line, error) {
	var out line
	for {
		piece, err := l.r.ReadSlice('\n')
		if !out.huge && len(out.text)+len(piece) > maxLine {
			out.huge, out.text = true, bytes.Clone(out.text[:headLine])
		}
		if out.huge {
			out.tail = append(out.tail, piece[max(0, len(piece)-tailLine):]...)
			out.tail = append(out.tail[:0], out.tail[max(0, len(out.tail)-tailLine):]...)
		} else {
			out.text = append(out.text, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return out, err
		}
	}
}

// id finds a huge line's request id, so that its sender need not wait for an
// answer in vain: before the big member, or at the very end.
func (l line) id() json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(l.text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for {
		name, err := dec.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		if name == "id" {
			return value
		}
	}
	if m := regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?[0-9]+|"[^"\\]*")\s*}\s*$`).FindSubmatch(l.tail); m != nil && json.Valid(m[1]) {
		return m[1]
	}
	return nil
}
