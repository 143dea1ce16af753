package workload

import (
	"errors"
	"fmt"
	"math"

	"mcp-sandbox/sandbox"
)

// talkQuestion and talkAnswer are the heads of a talk, see agent/talk.py.
type talkQuestion struct {
	Generation int64  `json:"generation"`
	In         int64  `json:"in"`
	Out        int64  `json:"out"`
	Stdout     int64  `json:"stdout"`
	Stderr     int64  `json:"stderr"`
	WaitMS     int64  `json:"wait_ms"`
	LingerMS   int64  `json:"linger_ms"`
	Version    *int64 `json:"version"`
}

type talkAnswer struct {
	Error  string
	In     int64
	Out    [2]int64   // offset and length; the bytes follow the head, in this order
	Stdout [][2]int64 // likewise, in pieces: what lies between them was dropped
	Stderr [][2]int64
	Ended  *struct{ Exit, Signal *int }
	Kills  int // by the kernel, for want of memory, beside a death that is told of
	Files  *changes
}

// errAnswer is an answer that does not fit what was asked.
var errAnswer = errors.New("the agent's answer is malformed")

// take passes on what an answer brings: output first, which was written before
// the frames that came with it.
func (l *link) take(got round) error {
	a := got.answer
	e, ok := errors.AsType[*agentError](got.err)
	gap := ok && e.code == "gap" // it was overtaken by the one after it
	if got.err != nil && !gap {
		return got.err
	}
	if err := l.confirm(a.In); err != nil {
		return err
	}
	if gap {
		l.rewind()
		return nil
	}
	frames, rest, err := cut(got.data, a.Out[1])
	if err != nil {
		return err
	}
	for i, pieces := range [][][2]int64{a.Stdout, a.Stderr} {
		for _, p := range pieces {
			var piece []byte
			if piece, rest, err = cut(rest, p[1]); err != nil {
				return err
			}
			if err := l.feed(sandbox.Stream(i+1), p[0], piece); err != nil {
				return err
			}
		}
	}
	l.mu.Lock()
	if a.Files != nil && l.version >= 0 {
		l.files = a.Files
	}
	l.killed = l.killed || a.Kills > 0
	l.mu.Unlock()
	skip := l.taken[0] - a.Out[0]
	if skip < 0 {
		return errAnswer
	}
	skip = min(skip, int64(len(frames))) // what is known already
	l.taken[0] += int64(len(frames)) - skip
	if _, err := l.out.Write(frames[skip:]); err != nil {
		return err
	}
	if a.Ended != nil {
		l.out.CloseWithError(endedError(a.Ended.Exit, a.Ended.Signal))
	}
	return nil
}

// endedError says how the interpreter's first process ended.
func endedError(exit, signal *int) error {
	switch {
	case signal != nil:
		return fmt.Errorf("its first process was killed by signal %d", *signal)
	case exit != nil:
		return fmt.Errorf("its first process exited with code %d", *exit)
	}
	return errors.New("its first process ended")
}

// cut takes n bytes off the front of b.
func cut(b []byte, n int64) (front, rest []byte, err error) {
	if n < 0 || n > int64(len(b)) {
		return nil, nil, errAnswer
	}
	return b[:n], b[n:], nil
}

// feed passes a piece of output on, as far as it is new.
func (l *link) feed(stream sandbox.Stream, at int64, piece []byte) error {
	known := l.taken[stream]
	if at < 0 || at > math.MaxInt64-int64(len(piece)) {
		return errAnswer
	}
	end := at + int64(len(piece))
	if end <= known {
		return nil
	}
	if at < known {
		piece = piece[known-at:]
		at = known
	}
	l.output.Feed(stream, at-known, piece)
	l.taken[stream] = end
	return nil
}

// confirm drops what the agent has taken, up to an offset.
func (l *link) confirm(in int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in > l.acked+int64(len(l.queue)) {
		return errAnswer
	}
	if in > l.acked {
		l.queue = append([]byte(nil), l.queue[in-l.acked:]...)
		l.acked = in
	}
	l.sent = max(l.sent, l.acked)
	return nil
}
