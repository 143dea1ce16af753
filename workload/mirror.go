package workload

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"mcp-sandbox/sandbox"
)

// mirror keeps two workspaces the same between calls: the session's own, on this
// machine, and that in its container. Before a call the local changes go there,
// after it the remote ones come here. All access on this side is by an os.Root.
// It is not safe for concurrent use: it belongs to the session's turn.
type mirror struct {
	root *os.Root
	own  string // directory to remove in the end; "" = the root is the caller's
	disk int64  // bytes that the local workspace may hold

	known   map[string]mirrored // what is the same on both sides, by path
	version int64               // of the remote workspace, as known
	told    map[string]bool     // notes that were given already
}

// mirrored is a file or directory as both sides have it.
type mirrored struct {
	dir   bool
	size  int64
	mtime time.Time // on this side
	sum   [sha256.Size]byte
	young bool // it was so new when it was looked at that its time tells little
}

// changes are what the agent tells of the remote workspace, see agent/files.py.
type changes struct {
	Version int64
	Full    bool // all there is, not just what changed
	Changed []remoteFile
	Gone    []string
	Left    map[string]int // what was not looked at, and how often
}

// remoteFile is an entry of the remote workspace.
type remoteFile struct {
	Path  string
	Kind  string // f or d
	Size  int64
	MTime int64 // ns
}

const (
	mirrorMost   = 10_000                // entries on either side
	mirrorBytes  = 256 << 20             // in one direction before or after one call
	mirrorPart   = 1 << 20               // in one request
	mirrorPrefix = ".mcp-sandbox-"       // of files on their way
	mirrorYoung  = 50 * time.Millisecond // the kernel's clock of files ticks
	mirrorDeep   = 40                    // nested directories
	shownNames   = 5                     // in a note
)

func newMirror(root *os.Root, own string, disk int64) *mirror {
	m := &mirror{root: root, own: own, disk: disk, told: map[string]bool{}}
	m.forget()
	return m
}

// forget is for a fresh container, whose workspace is empty.
func (m *mirror) forget() { m.known, m.version = map[string]mirrored{}, 0 }

// close removes a workspace of the session's own.
func (m *mirror) close() error {
	if m.own == "" {
		return nil
	}
	return errors.Join(m.root.Close(), os.RemoveAll(m.own))
}

// once drops the notes that were given before.
func (m *mirror) once(notes []string) []string {
	return slices.DeleteFunc(notes, func(n string) bool {
		was := m.told[n]
		if len(m.told) < 1000 {
			m.told[n] = true
		}
		return was
	})
}

// plainPath reports whether a path of the other side's may be used here.
func plainPath(p string) bool {
	return fs.ValidPath(p) && p != "." && len(p) <= 1000 && !strings.ContainsRune(p, 0) &&
		!slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool { return strings.HasPrefix(s, mirrorPrefix) })
}

// open opens a regular file for reading. It waits for nobody, whatever has been
// put in the file's place.
func (m *mirror) open(path string) (*os.File, fs.FileInfo, error) {
	f, err := m.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// sum is the hash of a file, of at most size bytes.
func (m *mirror) sum(path string, size int64) (sum [sha256.Size]byte, err error) {
	f, _, err := m.open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, size+1)); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// same reports whether a file is here as it was when both sides were the same.
func (m *mirror) same(path string, info fs.FileInfo, was mirrored) bool {
	if was.dir || was.size != info.Size() || !info.Mode().IsRegular() {
		return false
	}
	if was.mtime.Equal(info.ModTime()) && !was.young {
		return true
	}
	sum, err := m.sum(path, info.Size())
	return err == nil && sum == was.sum
}

// keep notes that a file is the same on both sides from now on.
func (m *mirror) keep(path string, info fs.FileInfo, sum [sha256.Size]byte) {
	m.known[path] = mirrored{size: info.Size(), mtime: info.ModTime(), sum: sum, young: time.Since(info.ModTime()) < mirrorYoung}
}

// size is what the files known are together, in bytes.
func (m *mirror) size() int64 {
	var n int64
	for _, k := range m.known {
		n += k.size
	}
	return n
}

// omissions are files that were left out, by why.
type omissions map[string][]string

func (o omissions) add(why, path string) { o[why] = append(o[why], path) }

// notes says what was left out, with some of the names; what begins each note.
func (o omissions) notes(begin string) []string {
	var notes []string
	for _, why := range slices.Sorted(maps.Keys(o)) {
		paths := o[why]
		var shown []string
		for _, p := range paths[:min(len(paths), shownNames)] {
			shown = append(shown, clean(p, 100))
		}
		note := fmt.Sprintf("%s (%s): %s", begin, why, strings.Join(shown, ", "))
		if more := len(paths) - len(shown); more > 0 {
			note += fmt.Sprintf(" and %d more", more)
		}
		notes = append(notes, note)
	}
	return notes
}

// randomName is for a file that is on its way.
func randomName() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// filesOf are a result's files, of paths with their sizes.
func filesOf(paths map[string]int64) []sandbox.File {
	var files []sandbox.File
	for p, size := range paths {
		files = append(files, sandbox.File{Path: p, Size: size})
	}
	slices.SortFunc(files, func(a, b sandbox.File) int { return strings.Compare(a.Path, b.Path) })
	return files
}
