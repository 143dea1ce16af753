package kernel

import (
	"fmt"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// Overflow takes a stream that is too long for a result, from its first byte on.
type Overflow interface {
	// Write takes the next piece. A piece that can't be kept is dropped: the guest
	// must neither fail for it nor wait for long.
	Write(p []byte)
	// Close ends it, and names what holds the stream, and how many bytes of it from
	// its start; "" if nothing does.
	Close() (uri string, kept int64)
}

// capture keeps the head and the tail of a stream and counts the rest, in
// memory that does not grow with what is produced. It is not safe for
// concurrent use.
type capture struct {
	half int    // bytes kept at either end
	head []byte // the first half bytes
	tail []byte // a ring of the last half bytes after head
	next int    // where the ring's next byte goes, once it is full
	n    int64  // bytes produced

	spill func() Overflow // where a stream goes that is longer; nil = nowhere
	over  Overflow        // the whole of this one; nil = it is not longer, or goes nowhere
}

func newCapture(limit int) *capture { return &capture{half: max(limit/2, 1)} }

func (c *capture) write(p []byte) {
	switch {
	case c.over != nil:
		c.over.Write(p)
	case c.spill != nil && c.n <= int64(2*c.half) && c.n+int64(len(p)) > int64(2*c.half):
		c.over = c.spill()
		c.over.Write(c.head)
		c.over.Write(c.tail) // not yet turned over: all that came is there
		c.over.Write(p)
	}
	c.n += int64(len(p))
	if room := c.half - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > c.half {
		p = p[len(p)-c.half:]
	}
	if room := c.half - len(c.tail); room > 0 {
		k := min(room, len(p))
		c.tail = append(c.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(c.tail[c.next:], p)
		c.next = (c.next + k) % c.half
		p = p[k:]
	}
}

// take returns what was kept, as text, and starts anew. The mark between head and
// tail says where the rest is.
func (c *capture) take() (string, sandbox.Count) {
	tail := append(append([]byte{}, c.tail[c.next:]...), c.tail[:c.next]...)
	count := sandbox.Count{Produced: c.n, Kept: int64(len(c.head) + len(tail))}
	var text string
	if count.Cut() {
		where := "not kept: write long output to a file"
		if c.over != nil {
			count.Rest, count.Held, where = c.whereabouts()
		}
		head, tail := c.head[:room(c.head, c.half, first)], tail[len(tail)-room(tail, c.half, last):]
		text, count.Kept = sandbox.Excerpt(head, tail, count.Produced-int64(len(head)+len(tail)), where)
	} else {
		text = sandbox.ValidUTF8(append(append([]byte{}, c.head...), tail...))
	}
	*c = capture{half: c.half, spill: c.spill}
	return text, count
}

// room is how many of the runes that next takes off b make at most limit bytes of text,
// in bytes of b: an invalid byte takes three. What is longer would be cut once more by
// whoever shows it, and the mark in the middle with it.
func room(b []byte, limit int, next func([]byte) (r rune, size int, rest []byte)) int {
	n := 0
	for len(b) > 0 {
		r, size, rest := next(b)
		if limit -= max(size, utf8.RuneLen(r)); limit < 0 {
			break
		}
		n += size
		b = rest
	}
	return n
}

func first(b []byte) (rune, int, []byte) {
	r, size := utf8.DecodeRune(b)
	return r, size, b[size:]
}

func last(b []byte) (rune, int, []byte) {
	r, size := utf8.DecodeLastRune(b)
	return r, size, b[:len(b)-size]
}

// whereabouts ends the overflow, and says for a reader where the stream is.
func (c *capture) whereabouts() (uri string, kept int64, where string) {
	uri, kept = c.over.Close()
	switch {
	case uri == "":
		return "", 0, "they could not be kept"
	case kept < c.n:
		return uri, kept, fmt.Sprintf("the first %d of %d are in the resource %s", kept, c.n, uri)
	}
	return uri, kept, fmt.Sprintf("all %d are in the resource %s", kept, uri)
}
