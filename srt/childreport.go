package srt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// ready is what the child writes when the wall stands and nothing but the exec is left.
// An end of the report without it is a child that died.
const ready = "ready"

// goAhead is what the server sends when the child is in its control group, or if its program
// waits for that by itself (command.Held). Until then the child executes nothing; an end of the pipe without it means that it must not.
const goAhead = 'g'

// childReport is a [LayerError] on its way to the server.
type childReport struct {
	Layer, Error, Remedy string
	Errno                syscall.Errno
}

// cutReady takes the mark off the beginning of a report.
func cutReady(text []byte) ([]byte, bool) {
	if len(text) >= len(ready) && string(text[:len(ready)]) == ready {
		return text[len(ready):], true
	}
	return text, false
}

// err gives the child's error back with the number that errors.Is can find.
func (r childReport) err() error {
	if r.Errno == 0 {
		return errors.New(r.Error)
	}
	return &reportedError{r.Error, r.Errno}
}

type reportedError struct {
	text  string
	errno syscall.Errno
}

func (e *reportedError) Error() string { return e.text }
func (e *reportedError) Unwrap() error { return e.errno }

// readJSON reads a length and as many bytes of JSON, and nothing beyond.
func readJSON(fd int, into any) error {
	var size [4]byte
	if err := readFull(fd, size[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint32(size[:]))
	if err := readFull(fd, text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// readFull reads from a descriptor until b is full. No os.File is made of it: that would
// close the descriptor at some later time, when its number may be the guest's.
func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			b = b[n:]
		}
	}
	return nil
}
