package srt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var _ sandbox.Outputs = (*session)(nil)

// outputsDir is where a session's outputs lie, in its directory: the guest is shown
// the workspace alone.
const outputsDir = "outputs"

// outputs are what was too long for a session's results: files by number and name,
// such as 3-stdout.txt. Together they have a quota; the oldest go first. They are
// safe for concurrent use.
type outputs struct {
	dir   string
	id    string // of the session
	quota int64  // bytes
	spare func(dir string) (int64, error)

	mu   sync.Mutex
	all  []*kept // by number
	last int     // the highest number that there ever was
	size int64   // bytes of all
}

// kept is one output.
type kept struct {
	sandbox.Output
	open bool // it is being written, and can't go
}

func (k *kept) file(dir string) string { return filepath.Join(dir, fmt.Sprintf("%d-%s", k.N, k.Name)) }

// newOutputs finds what an earlier server left.
func newOutputs(dir, id string, quota int64, spare func(string) (int64, error)) *outputs {
	o := &outputs{dir: dir, id: id, quota: quota, spare: spare}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return o // none: it is made for the first
	}
	for _, e := range entries {
		number, name, _ := strings.Cut(e.Name(), "-")
		n, err := strconv.Atoi(number)
		info, lost := e.Info()
		if err != nil || lost != nil || n <= 0 || !isOutputName(name) || !info.Mode().IsRegular() {
			continue
		}
		o.all = append(o.all, &kept{Output: sandbox.Output{N: n, Name: name, Size: info.Size()}})
		o.last, o.size = max(o.last, n), o.size+info.Size()
	}
	slices.SortFunc(o.all, func(a, b *kept) int { return a.N - b.N })
	return o
}

// create begins an output under the next number.
func (o *outputs) create(name string) (*kept, *os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Not with its parents: after the session's end there is no place for it.
	if err := os.Mkdir(o.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	o.last++
	k := &kept{Output: sandbox.Output{N: o.last, Name: name}, open: true}
	f, err := os.OpenFile(k.file(o.dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	o.all = append(o.all, k)
	return k, f, nil
}

// reserve makes room for n more bytes of k by removing the oldest, and returns how
// many it may have.
func (o *outputs) reserve(k *kept, n int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size+n > o.quota {
		i := slices.IndexFunc(o.all, func(k *kept) bool { return !k.open })
		if i < 0 || o.remove(i) != nil {
			break
		}
	}
	n = min(n, max(o.quota-o.size, 0))
	o.size += n
	k.Size += n
	return n
}

// remove takes the ith away. mu is held.
func (o *outputs) remove(i int) error {
	if err := os.Remove(o.all[i].file(o.dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o.size -= o.all[i].Size
	o.all = slices.Delete(o.all, i, i+1)
	return nil
}

// done ends the writing of k, of which size bytes are there.
func (o *outputs) done(k *kept, size int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size += size - k.Size
	k.Size, k.open = size, false
	if i := slices.Index(o.all, k); size == 0 && i >= 0 {
		_ = o.remove(i) // an empty file is in nobody's way
	}
}

// list are those that are there.
func (o *outputs) list() []sandbox.Output {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]sandbox.Output, len(o.all))
	for i, k := range o.all {
		all[i] = k.Output
	}
	return all
}

// find opens the one with a number.
func (o *outputs) find(n int) (*os.File, sandbox.Output, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.all {
		if k.N == n {
			f, err := os.OpenFile(k.file(o.dir), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
			return f, k.Output, err
		}
	}
	if 0 < n && n <= o.last {
		return nil, sandbox.Output{}, fmt.Errorf("output %d is not there any longer: a session's outputs may take %s together, and the oldest go first: %w",
			n, kernel.Bytes(o.quota), fs.ErrNotExist)
	}
	return nil, sandbox.Output{}, fmt.Errorf("the session has no output %d: %w", n, fs.ErrNotExist)
}

// spoolRound is how many bytes of a stream are written between two looks at the disk.
const spoolRound = 16 * mib

// spool is a kernel.Overflow over an output's file. It is used by one goroutine at a
// time.
type spool struct {
	outputs *outputs
	kept    *kept
	f       *os.File
	size    int64
	look    int64 // the size at which the disk is looked at next
	full    bool  // no more is taken: what is there must have no hole
}

// spool begins the output of a stream. Where it can't, nothing is kept.
func (o *outputs) spool(name string) *spool {
	s := &spool{outputs: o}
	var err error
	if s.kept, s.f, err = o.create(name); err != nil {
		s.full = true
	}
	return s
}

// Write implements kernel.Overflow.
func (s *spool) Write(p []byte) {
	if s.full || len(p) == 0 {
		return
	}
	if s.size >= s.look {
		if spare, err := s.outputs.spare(s.outputs.dir); err != nil || spare < spoolRound {
			s.full = true
			return
		}
		s.look = s.size + spoolRound
	}
	n := s.outputs.reserve(s.kept, int64(len(p)))
	written, err := s.f.Write(p[:n])
	s.size += int64(written)
	s.full = err != nil || n < int64(len(p))
}

// Close implements kernel.Overflow.
func (s *spool) Close() (uri string, size int64) {
	if s.f == nil {
		return "", 0
	}
	if err := s.f.Close(); err != nil {
		s.size = 0 // what has reached the disk is not known
	}
	s.outputs.done(s.kept, s.size)
	if s.size == 0 {
		return "", 0
	}
	return sandbox.OutputURI(s.outputs.id, s.kept.N), s.size
}

// spools are the session's outputs. It has its id and its directory by now.
func (s *session) spools() *outputs {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outputs == nil {
		s.outputs = newOutputs(filepath.Join(s.dir, outputsDir), s.id, s.local.cfg.Limits.Outputs, s.local.spareDisk)
	}
	return s.outputs
}

// overflow takes a stream that is too long for a result.
func (s *session) overflow(stream sandbox.Stream) kernel.Overflow {
	name := "stdout.txt"
	if stream == sandbox.Stderr {
		name = "stderr.txt"
	}
	return s.spools().spool(name)
}

// Outputs implements sandbox.Outputs.
func (s *session) Outputs() []sandbox.Output { return s.spools().list() }

// OpenOutput implements sandbox.Outputs.
func (s *session) OpenOutput(n int) (*os.File, sandbox.Output, error) { return s.spools().find(n) }

// KeepOutput implements sandbox.Outputs.
func (s *session) KeepOutput(name string, data []byte) (sandbox.Output, error) {
	o := s.spools()
	switch {
	case !isOutputName(name):
		return sandbox.Output{}, fmt.Errorf("srt: %q can't name an output", name)
	case int64(len(data)) > o.quota:
		return sandbox.Output{}, fmt.Errorf("srt: %d bytes are more than a session's outputs may take, %s", len(data), kernel.Bytes(o.quota))
	}
	w := o.spool(name)
	w.Write(data)
	uri, size := w.Close()
	if uri == "" || size < int64(len(data)) {
		return sandbox.Output{}, errors.New("srt: there is no room for an output on the server's disk")
	}
	return sandbox.Output{N: w.kept.N, Name: name, Size: size}, nil
}

// isOutputName reports whether a name is one file's, in letters that mean nothing
// to anybody.
func isOutputName(name string) bool {
	ok := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
	}
	return name != "" && len(name) <= 100 && strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) < 0
}
