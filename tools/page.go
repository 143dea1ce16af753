package tools

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

const (
	pageBytes = 100_000  // of text, where no limit is given
	maxPage   = 4 << 20  // bytes of a page, and of what is no text where no limit is given
	maxSkip   = 64 << 20 // bytes that are looked through for a line
)

// extent is the part of a file that is asked for: by bytes, or by lines.
type extent struct {
	offset, limit int64 // limit 0 = as much as is right
	line, lines   int64 // from 1; 0 = not by lines
}

// parseExtent takes a URI's query.
func parseExtent(query string) (s extent, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return s, sandbox.Invalid("the URI's query can't be read: write ?offset=0&limit=100000")
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range values {
			if !yield(name) {
				return
			}
		}
	}) {
		field, least, most := (*int64)(nil), int64(0), int64(1)<<62
		switch name {
		case "offset":
			field = &s.offset
		case "limit":
			field, least, most = &s.limit, 1, maxPage
		case "line":
			field, least = &s.line, 1
		case "lines":
			field, least = &s.lines, 1
		default:
			return s, sandbox.Invalid("the URI's query knows offset and limit, in bytes, or line and lines; not %s", quote(name))
		}
		n, err := strconv.ParseInt(values[name][0], 10, 64)
		if err != nil || n < least || n > most || len(values[name]) > 1 {
			return s, sandbox.Invalid("%s must be one whole number from %d to %d", name, least, most)
		}
		*field = n
	}
	if s.lines > 0 && s.line == 0 {
		s.line = 1
	}
	if s.line > 0 && (values.Has("offset") || values.Has("limit")) {
		return s, sandbox.Invalid("give offset and limit, or line and lines, not both")
	}
	return s, nil
}

// after is the query for what follows a page of s.
func (s extent) after(page page, next int64) string {
	switch {
	case s.line > 0 && page.data[len(page.data)-1] == '\n':
		q := "line=" + strconv.FormatInt(s.line+int64(bytes.Count(page.data, []byte("\n"))), 10)
		if s.lines > 0 {
			q += "&lines=" + strconv.FormatInt(s.lines, 10)
		}
		return q
	case s.limit > 0:
		return "offset=" + strconv.FormatInt(next, 10) + "&limit=" + strconv.FormatInt(s.limit, 10)
	}
	return "offset=" + strconv.FormatInt(next, 10)
}

// page is a part of a file.
type page struct {
	offset int64
	data   []byte
	text   bool // valid UTF-8, in which no rune is cut, without NUL
}

// read reads the extent of a file that has size bytes. What is text is cut between runes;
// all else comes byte for byte.
func (s extent) read(f io.ReaderAt, size int64) (page, error) {
	start, limit := s.offset, s.limit
	if s.line > 0 {
		var err error
		if start, err = findLine(f, size, s.line); err != nil {
			return page{}, err
		}
	}
	if start > size {
		return page{}, sandbox.Invalid("there are %d bytes: offset must not be beyond", size)
	}
	if limit == 0 {
		limit = pageBytes
	}
	p, err := readPage(f, start, limit, size)
	if err == nil && !p.text && s.limit == 0 && s.line == 0 { // a picture is of no use in pieces
		p, err = readPage(f, start, maxPage, size)
		p.text = false
	}
	if err == nil && s.lines > 0 {
		p.data = firstLines(p.data, s.lines)
	}
	return p, err
}

// readPage reads limit bytes from start, or to the end.
func readPage(f io.ReaderAt, start, limit, size int64) (page, error) {
	data := make([]byte, min(limit, size-start))
	n, err := f.ReadAt(data, start)
	if err != nil && !errors.Is(err, io.EOF) { // the end: it has become shorter meanwhile
		return page{}, errors.New("it can't be read")
	}
	data = data[:n]
	p := page{offset: start, data: data}
	whole := data
	if start+int64(n) < size {
		whole = data[:n-sandbox.Unfinished(data)]
	}
	if (len(whole) > 0 || n == 0) && utf8.Valid(whole) && bytes.IndexByte(whole, 0) < 0 {
		p.data, p.text = whole, true
	}
	return p, nil
}

// findLine is the offset at which a line begins, from 1.
func findLine(f io.ReaderAt, size, line int64) (int64, error) {
	buf := make([]byte, 64<<10)
	at := int64(0)
	for left := line - 1; left > 0; {
		n, err := f.ReadAt(buf, at)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return 0, sandbox.Invalid("there are fewer than %d lines", line)
		}
		piece := buf[:n]
		for left > 0 {
			i := bytes.IndexByte(piece, '\n')
			if i < 0 {
				break
			}
			at += int64(i + 1)
			piece = piece[i+1:]
			left--
		}
		if left > 0 {
			at += int64(len(piece))
		}
		if at > maxSkip && left > 0 {
			return 0, sandbox.Invalid("line %d is more than %d bytes from the start: go by offset and limit", line, int64(maxSkip))
		}
	}
	return min(at, size), nil
}

// firstLines is as much of data as the first n lines take.
func firstLines(data []byte, n int64) []byte {
	end := 0
	for ; n > 0; n-- {
		i := bytes.IndexByte(data[end:], '\n')
		if i < 0 {
			return data
		}
		end += i + 1
	}
	return data[:end]
}
