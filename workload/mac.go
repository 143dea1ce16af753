package workload

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// A message to the agent of a session's container, and its answer, bear a code
// that only the two can make: the agent's side is agent/seal.py, which says how
// a message is laid out. Code in the container that takes the agent's port, or
// whoever stands between, can end a session by that, and forge nothing.

const (
	bootSize  = 16
	sealFixed = bootSize + 8 + sha256.Size // what is before the rest: boot, number, code
	keySize   = 32
)

var errSeal = errors.New("an answer that is not the agent's own")

// seal is what both ends share: a key, set once for each start of the
// container, and by which start that was. It is a value.
type seal struct {
	key  [keySize]byte
	boot [bootSize]byte
}

// newSeal has a fresh key; the boot is the agent's to say.
func newSeal() seal {
	var s seal
	_, _ = rand.Read(s.key[:]) // never fails
	return s
}

// code authenticates a message of a kind: q for a question, a for an answer.
func (s *seal) code(kind byte, path string, boot, number, rest []byte) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte{kind})
	mac.Write([]byte(path))
	mac.Write([]byte{'\n'})
	mac.Write(boot)
	mac.Write(number)
	mac.Write(rest)
	return mac.Sum(nil)
}

// close makes a sealed question of a head, which becomes JSON, and data.
func (s *seal) close(path string, number uint64, head any, data []byte) ([]byte, error) {
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	m := make([]byte, sealFixed+4, sealFixed+4+len(text)+len(data))
	copy(m, s.boot[:])
	binary.BigEndian.PutUint64(m[bootSize:], number)
	binary.BigEndian.PutUint32(m[sealFixed:], uint32(len(text)))
	m = append(append(m, text...), data...)
	copy(m[bootSize+8:], s.code('q', path, m[:bootSize], m[bootSize:bootSize+8], m[sealFixed:]))
	return m, nil
}

// open checks that m answers the question of this number, and takes it apart.
// Where the boot is not known yet, the answer tells it.
func (s *seal) open(path string, number uint64, m []byte) (head, data []byte, err error) {
	if len(m) < sealFixed+4 {
		return nil, nil, fmt.Errorf("%w: %d bytes", errSeal, len(m))
	}
	boot, said, code, rest := m[:bootSize], m[bootSize:bootSize+8], m[bootSize+8:sealFixed], m[sealFixed:]
	if !hmac.Equal(code, s.code('a', path, boot, said, rest)) {
		return nil, nil, fmt.Errorf("%w: its code is wrong", errSeal)
	}
	if binary.BigEndian.Uint64(said) != number {
		return nil, nil, fmt.Errorf("%w: it answers another question", errSeal)
	}
	switch {
	case s.boot == [bootSize]byte{}:
		copy(s.boot[:], boot)
	case s.boot != [bootSize]byte(boot):
		return nil, nil, fmt.Errorf("%w: it is another start's", errSeal)
	}
	size := binary.BigEndian.Uint32(rest)
	if uint64(size) > uint64(len(rest)-4) {
		return nil, nil, fmt.Errorf("%w: its head is cut short", errSeal)
	}
	return rest[4 : 4+size], rest[4+size:], nil
}
