package main

import "encoding/json"

// maxAnswers is how much all answers together may hold that their clients have not
// read yet: one with pictures has some 20 MiB, and a client that does not read may have
// a thousand of them under way.
const maxAnswers = 256 << 20

// unread is what stands for an answer that there is no memory for.
const unread = "the code has run, but its result is given up: too much that was answered before has not been read yet; read it, and ask for less at once"

// hold takes memory for an answer until over is called, or puts a short one in its place.
func (b *budget) hold(who string, id json.RawMessage, text []byte) (_ []byte, over func()) {
	n := int64(len(text))
	if n == 0 || !b.take(who, n) {
		if len(id) == 0 {
			id = nil // it answers what had none
		}
		if n > 0 {
			text = failure(id, codeRefused, unread)
		}
		return text, func() {}
	}
	return text, func() { b.give(who, n) }
}
