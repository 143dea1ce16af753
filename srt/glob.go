package srt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Bounds of what wildcards may become: what a directory holds is not the
// command's choice, and PID 1 of the wall must not run out of memory over it.
const (
	maxGlobNames   = 65536    // of one command
	maxGlobBytes   = 2 << 20  // of its names together, as much as the kernel takes as arguments
	maxGlobEntries = 1 << 20  // directory entries looked at, matching or not, for a pipeline
	maxGlobHeld    = 16 << 20 // bytes in memory at any time for a pipeline
	globOverhead   = 64       // bytes that a name takes besides its own, in the lists that it is in
)

// errStopped ends what is done for a command line whose time is over.
var errStopped = errors.New("stopped")

// glob expands patterns of file names as bash does: a wildcard matches no slash
// and no leading dot, ** is *, names come sorted by their bytes (which is the
// order of C.UTF-8), and . and .. are never matches. It is not bash's that a
// match which begins with - gets ./ in front: a file must not become an option.
//
// One glob serves the patterns of all stages of a pipeline, whose names are in
// memory together before the first of them starts.
type glob struct {
	stopped func() bool // the caller wants no more of it

	names, bytes int // of the stage
	entries      int
	held         int // the names that were taken, and those of the directories on the way down
	found        []string
}

// stage begins the patterns of another stage.
func (g *glob) stage() { g.names, g.bytes = 0, 0 }

// expand returns the names that match pattern, sorted; none if nothing does.
func (g *glob) expand(pattern string) ([]string, error) {
	g.found = nil
	base, rest := "", pattern
	if n := len(rest) - len(strings.TrimLeft(rest, "/")); n > 0 {
		base, rest = rest[:n], rest[n:]
	}
	if err := g.walk(base, rest); err != nil {
		return nil, err
	}
	slices.Sort(g.found)
	for i, name := range g.found {
		if name[0] == '-' {
			g.found[i] = "./" + name
		}
	}
	return g.found, nil
}

// walk matches the segments of rest below base, which is a literal path that is
// empty or ends in a slash.
func (g *glob) walk(base, rest string) error {
	segment, slashes, rest := cutSegment(rest)
	// Names without wildcards are not looked up until something must be known of them:
	// a directory that can be entered and not read is passed through.
	for !isPattern(segment) {
		if segment == "" { // the pattern ended in a slash, and what is before it is a directory
			return g.take(base)
		}
		name := base + unquote(segment)
		if rest == "" && slashes == "" {
			if _, err := os.Lstat(name); err != nil {
				return nil
			}
			return g.take(name)
		}
		if rest == "" {
			return g.takeDir(name, slashes)
		}
		base = name + slashes
		segment, slashes, rest = cutSegment(rest)
	}
	before := g.held
	names, err := g.matches(base, segment)
	if err != nil {
		return err
	}
	on := g.held - before
	if slashes != "" {
		slashes, rest = "/", squeeze(rest) // bash keeps several in front of the first wildcard alone
	}
	for _, name := range names {
		switch {
		case slashes == "":
			err = g.take(base + name)
		case rest == "":
			err = g.takeDir(base+name, slashes)
		default:
			err = g.walk(base+name+slashes, rest)
		}
		if err != nil {
			return err
		}
	}
	g.held -= on
	return nil
}

// takeDir is take for a pattern that ends in slashes, which only directories match.
func (g *glob) takeDir(name, slashes string) error {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return nil
	}
	return g.take(name + slashes)
}

func (g *glob) take(name string) error {
	g.names++
	g.bytes += len(name) + 1
	switch {
	case g.names > maxGlobNames:
		return fmt.Errorf("the wildcards match more than %d names: narrow them, or let find or grep -r walk the tree", maxGlobNames)
	case g.bytes > maxGlobBytes:
		return fmt.Errorf("the names that the wildcards match are longer than %d MiB together: narrow them, or let find or grep -r walk the tree", maxGlobBytes>>20)
	}
	g.found = append(g.found, name)
	return g.hold(name)
}

// hold counts a name that stays in memory. A path of links that lead back is as
// long as its pattern, and holds a directory's names once for each of its steps.
func (g *glob) hold(name string) error {
	if g.held += len(name) + globOverhead; g.held > maxGlobHeld {
		return fmt.Errorf("the names that the wildcards walk over take more than %d MiB together: narrow them, or let find or grep -r walk the tree", maxGlobHeld>>20)
	}
	return nil
}

// matches lists the names in a directory that match a segment. What can't be
// read holds no match, as in bash.
func (g *glob) matches(dir, segment string) ([]string, error) {
	if dir == "" {
		dir = "."
	}
	// O_DIRECTORY refuses a FIFO, which would otherwise hold us until somebody writes.
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	hidden := segment[0] == '.' || strings.HasPrefix(segment, `\.`)
	m := compile(segment)
	var found []string
	for {
		if g.stopped != nil && g.stopped() {
			return nil, errStopped
		}
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if (name[0] == '.' && !hidden) || !m.match(name) {
				continue
			}
			if err := g.hold(name); err != nil {
				return nil, err
			}
			found = append(found, name)
		}
		if g.entries += len(names); g.entries > maxGlobEntries {
			return nil, fmt.Errorf("the wildcards walk over more than %d directory entries: narrow them", maxGlobEntries)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, fs.ErrNotExist): // read, or removed meanwhile
			return found, nil
		case err != nil:
			return found, nil // the rest can't be read
		}
	}
}

// cutSegment takes the first segment off a pattern, and the slashes after it.
// A slash ends a segment whatever stands around it, as in bash.
func cutSegment(pattern string) (segment, slashes, rest string) {
	i := strings.IndexByte(pattern, '/')
	if i < 0 {
		return pattern, "", ""
	}
	end := i
	for end < len(pattern) && pattern[end] == '/' {
		end++
	}
	return pattern[:i], pattern[i:end], pattern[end:]
}

// squeeze makes one slash of several.
func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// isPattern reports whether a segment has an unquoted wildcard. A bracket
// without its end is a character like any other.
func isPattern(segment string) bool {
	return slices.ContainsFunc(compile(segment), func(t token) bool { return t.kind != literal })
}

// unquote removes the backslashes of a segment without wildcards.
func unquote(segment string) string {
	if !strings.Contains(segment, `\`) {
		return segment
	}
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		if segment[i] == '\\' && i+1 < len(segment) {
			i++
		}
		b.WriteByte(segment[i])
	}
	return b.String()
}
