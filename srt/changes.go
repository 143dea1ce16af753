package srt

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mcp-sandbox/sandbox"
)

const (
	changesEntries = 1000                 // of a workspace that are looked at after a call
	changesTime    = 5 * time.Millisecond // that it may take
)

// changes tells which files a call has changed: those whose inode the kernel says has
// changed since the call began. Code can set a file's modification time, but not that.
// One walk after the call does it, and nothing need be remembered of what was there
// before, but for where directories lay: a file keeps its times when one above it is
// moved. Where a file system goes by another machine's clock, too much or too little is
// named. Its methods take turns, which are the session's, but for came.
type changes struct {
	told bool              // that there are too many files
	dirs map[fileID]string // where each directory lay after the last call, as far as it was looked at
	// again are files that were changed so late that the next call, which may begin within
	// the same tick of the clock, would seem to have.
	again map[fileID]int64
	began int64 // ns since 1970: the kernel's clock when the call began

	mu   sync.Mutex
	sent map[fileID]int64 // guarded by mu: files that a client has stored, which no call has changed since then
}

// came says that a client has stored a file, be it between the calls or during one. It
// may be called at any time.
func (c *changes) came(f *os.File) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return // the call then names it: too much rather than too little
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = map[fileID]int64{}
	}
	c.sent[idOf(&st)] = st.Ctim.Nano()
}

// isSent reports whether a file is as a client has stored it.
func (c *changes) isSent(f changed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.sent[f.id]
	return ok && at == f.at
}

// forgetSent forgets what was stored before since: no call to come can seem to have changed it.
func (c *changes) forgetSent(since int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.sent, func(_ fileID, at int64) bool { return at < since })
}

// begin is called before a call.
func (c *changes) begin() { c.began = fileClock() }

// end adds to res what has changed since begin, the newest first.
func (c *changes) end(root *os.Root, res *sandbox.Result) {
	w := changeWalk{
		root: root, since: c.began, until: time.Now().Add(changesTime), left: changesEntries,
		dirs: c.dirs, seen: map[fileID]string{}, moved: map[string]int64{},
	}
	whole := w.walk()
	tick := fileClock()
	again := map[fileID]int64{}
	slices.SortFunc(w.found, func(a, b changed) int {
		if a.at != b.at {
			return int(max(min(b.at-a.at, 1), -1))
		}
		return strings.Compare(a.Path, b.Path)
	})
	for _, f := range w.found {
		if at, ok := c.again[f.id]; (!ok || at != f.at) && !c.isSent(f) {
			res.Files = append(res.Files, f.File)
		}
		if f.at >= tick {
			again[f.id] = f.at
		}
	}
	c.again, c.dirs = again, w.seen
	c.forgetSent(tick)
	res.FilesCut = !whole
	if !whole && !c.told {
		c.told = true
		res.Notes = append(res.Notes, "the workspace holds more files than are looked at after each call: of those that a call changes some may not be named")
	}
}

// changed is a file that has changed.
type changed struct {
	sandbox.File
	id fileID
	at int64 // ns since 1970
}

// changeWalk goes through a workspace level by level, so that what lies at the top is
// found however much lies below.
type changeWalk struct {
	root  *os.Root
	since int64
	until time.Time
	left  int
	found []changed

	dirs  map[fileID]string // where directories lay before the call
	seen  map[fileID]string // and lie now
	moved map[string]int64  // those that lay elsewhere, and all below them, and when they came
}

// walk reports whether it has seen all.
func (w *changeWalk) walk() bool {
	for level := []string{"."}; len(level) > 0; {
		var next []string
		for _, dir := range level {
			below, whole := w.directory(dir)
			if !whole {
				return false
			}
			next = append(next, below...)
		}
		level = next
	}
	return true
}

// directory looks at what dir holds, and returns the directories in it.
func (w *changeWalk) directory(dir string) (below []string, whole bool) {
	f, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, true // removed meanwhile, or closed by its owner
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if w.left--; w.left < 0 {
				return nil, false
			}
			if w.entry(int(f.Fd()), dir, name) {
				below = append(below, path.Join(dir, name))
			}
		}
		switch {
		case err != nil: // the end, or removed meanwhile
			return below, true
		case time.Now().After(w.until):
			return nil, false
		}
	}
}

// entry looks at one entry, and reports whether it is a directory to look into.
func (w *changeWalk) entry(dirfd int, dir, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false // removed meanwhile
	}
	at := max(st.Ctim.Nano(), w.moved[dir])
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFDIR:
		if name == "__pycache__" || name == ".git" { // nobody asked for what lies there
			return false
		}
		below := path.Join(dir, name)
		if at >= w.since && (w.moved[dir] > 0 || w.isMoved(&st, below)) {
			w.moved[below] = at
		}
		w.seen[idOf(&st)] = below
		return true
	case unix.S_IFREG:
		if at >= w.since && !strings.HasPrefix(name, uploadPrefix) {
			w.found = append(w.found, changed{sandbox.File{Path: path.Join(dir, name), Size: st.Size}, idOf(&st), at})
		}
	}
	return false
}

// isMoved reports whether a directory, which has changed in the call, lay elsewhere before.
// Of one that nobody has seen before the times tell: a move changes the inode, and not what
// lies in it.
func (w *changeWalk) isMoved(st *unix.Stat_t, now string) bool {
	if before, ok := w.dirs[idOf(st)]; ok {
		return before != now
	}
	return st.Mtim.Nano() < w.since
}
