package kernel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The kinds of frame. The supervisor relays requests and worker frames without
// reading them, so a worker's bytes can never pass for the supervisor's.
const (
	kindRequest    = 'R' // server → worker
	kindControl    = 'C' // server → supervisor
	kindSupervisor = 'S' // supervisor → server
	kindWorker     = 'W' // worker → server
	kindDisplay    = 'V' // worker → server: something to look at is coming
	kindShown      = 'v' // worker → server: some of its bytes
	kindData       = 'D' // worker → server, and back: bytes of a snapshot
	kindRewind     = 'B' // worker → server: so many of them hold
	kindPull       = 'P' // worker → server: send more of them
	kindName       = 'N' // worker → server: the name that is saved or loaded next
	kindExternal   = 'X' // worker → server: of a call of an external tool
	kindAnswer     = 'x' // server → worker: its answer
)

// Bounds of a payload in bytes, by the frame's kind.
const (
	MaxFrame = 32 << 20   // a request, or what the supervisor relays at all
	maxReply = 4 << 20    // a worker's reply: two values of a mebibyte and their texts
	maxEvent = 64 << 10   // an event of the supervisor
	maxData  = 64<<10 - 5 // bytes of a snapshot in one frame
	maxName  = 512        // an index and some of a name
)

var errFrame = errors.New("malformed frame")

// WriteFrame sends one frame: a kind, the payload's length as four bytes
// big-endian, the payload.
func WriteFrame(w io.Writer, kind byte, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("%w: %d bytes is above %d", errFrame, len(payload), MaxFrame)
	}
	frame := make([]byte, 5, 5+len(payload))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// readFrame receives one frame of the interpreter's.
func readFrame(r *bufio.Reader) (kind byte, payload []byte, err error) {
	return ReadFrame(r, func(kind byte) uint32 {
		switch kind {
		case kindWorker:
			return maxReply
		case kindSupervisor:
			return maxEvent
		case kindData:
			return maxData
		case kindDisplay:
			return maxDisplayFrame
		case kindShown:
			return maxShownFrame
		case kindRewind, kindPull:
			return 8
		case kindName:
			return maxName
		case kindExternal:
			return maxExternalFrame
		}
		return MaxFrame
	})
}

// ReadFrame receives one frame, whose payload may have as many bytes as most
// says of its kind. io.EOF means that the other side ended between two frames.
// Memory is taken as bytes arrive, not as they are announced.
func ReadFrame(r *bufio.Reader, most func(kind byte) uint32) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n, limit := binary.BigEndian.Uint32(head[1:]), most(head[0])
	if n > limit {
		return 0, nil, fmt.Errorf("%w: %d bytes announced, at most %d allowed", errFrame, n, limit)
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return 0, nil, fmt.Errorf("%w: cut short: %w", errFrame, io.ErrUnexpectedEOF)
	}
	return head[0], buf.Bytes(), nil
}
