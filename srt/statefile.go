package srt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// A state file is a snapshot of a session's variables, which no one but its
// interpreter reads: a magic line, the snapshot, what the server must know of it
// as JSON, the length of that, and a sum over all before. The sum finds damage
// before a byte of it goes anywhere. Who can write the server's private
// directories can forge it: what comes of that comes behind the wall.
const (
	stateMagic   = "mcp-sandbox state 1\n"
	stateTail    = 4 + sha256.Size
	maxStateHead = 4 << 20
)

// stateHead is what the server knows of a snapshot.
type stateHead struct {
	Session string          `json:"session"` // its id
	Saved   time.Time       `json:"saved"`
	Table   json.RawMessage `json:"table"` // for the interpreter
	Notes   []string        `json:"notes"` // what was not kept
}

// stateWriter is a kernel.Sink over a file that is to become a state file.
type stateWriter struct {
	f *os.File
}

// createState makes path, which must not exist.
func createState(path string) (*stateWriter, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(stateMagic); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &stateWriter{f}, nil
}

func (w *stateWriter) Write(p []byte) (int, error) { return w.f.Write(p) }

// Rewind implements kernel.Sink.
func (w *stateWriter) Rewind(size int64) error {
	size += int64(len(stateMagic))
	if err := w.f.Truncate(size); err != nil {
		return err
	}
	_, err := w.f.Seek(size, io.SeekStart)
	return err
}

// finish writes what follows the snapshot. With durable it returns when the
// disk has it all.
func (w *stateWriter) finish(head stateHead, durable bool) error {
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(text) > maxStateHead {
		return fmt.Errorf("its description takes %d bytes", len(text))
	}
	if _, err := w.f.Write(binary.BigEndian.AppendUint32(text, uint32(len(text)))); err != nil {
		return err
	}
	// At the end, over what lies there: a sum on the way could not be rewound.
	size, err := w.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(w.f, 0, size)); err != nil {
		return err
	}
	if _, err := w.f.Write(sum.Sum(nil)); err != nil {
		return err
	}
	if durable {
		return w.f.Sync()
	}
	return nil
}

// errDamaged is in the error of a state file that is not as it was written.
var errDamaged = errors.New("the saved state is damaged")

// openState opens a state file, whole and undamaged. The end of ctx ends the look at it.
func openState(ctx context.Context, path string) (*os.File, stateHead, *io.SectionReader, error) {
	// Not to be held up by a pipe, nor led elsewhere by a link.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, stateHead{}, nil, fmt.Errorf("%w: a link is in its place", errDamaged)
	}
	if err != nil {
		return nil, stateHead{}, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is no file", errDamaged)
	}
	var head stateHead
	var snapshot *io.SectionReader
	if err == nil {
		head, snapshot, err = readState(whileAsked{ctx, f}, info.Size())
	}
	if err != nil {
		return nil, stateHead{}, nil, errors.Join(err, f.Close())
	}
	return f, head, snapshot, nil
}

// whileAsked reads until ctx ends.
type whileAsked struct {
	ctx context.Context
	r   io.ReaderAt
}

func (w whileAsked) ReadAt(p []byte, off int64) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.ReadAt(p, off)
}

// readState checks a state file and takes it apart.
func readState(r io.ReaderAt, size int64) (stateHead, *io.SectionReader, error) {
	var head stateHead
	body := size - stateTail
	if body < int64(len(stateMagic)) {
		return head, nil, fmt.Errorf("%w: it is cut short", errDamaged)
	}
	tail := make([]byte, stateTail)
	magic := make([]byte, len(stateMagic))
	if _, err := r.ReadAt(tail, body); err != nil {
		return head, nil, err
	}
	if _, err := r.ReadAt(magic, 0); err != nil {
		return head, nil, err
	}
	if string(magic) != stateMagic {
		return head, nil, fmt.Errorf("%w: it is of another kind", errDamaged)
	}
	// Before the sum, which takes its time: a file that was made longer has nothing here.
	length := int64(binary.BigEndian.Uint32(tail))
	start := body - length
	if length == 0 || length > maxStateHead || start < int64(len(stateMagic)) {
		return head, nil, fmt.Errorf("%w: a description of %d bytes", errDamaged, length)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, body+4)); err != nil {
		return head, nil, err
	}
	if !bytes.Equal(sum.Sum(nil), tail[4:]) {
		return head, nil, fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, start); err != nil {
		return head, nil, err
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return head, nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	from := int64(len(stateMagic))
	return head, io.NewSectionReader(r, from, start-from), nil
}
