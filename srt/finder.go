package srt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// kind is who asked for a program.
type kind int

const (
	ofList     kind = iota // its arguments are checked, so it must be the very program
	ofOperator             // it may be anything
)

// finder finds programs in the tree of a system, and gathers what they need. Nothing is
// executed: what a program would load is read from its file.
type finder struct {
	root string   // where the system's tree lies; "" but in tests
	dirs []string // where the dynamic loader looks for libraries by itself

	files map[string]Shown    // by guest path
	needs map[string]struct{} // host paths whose own needs are gathered
	read  map[string]*elfFile // by host path
}

func newFinder(root string) (*finder, error) {
	f := &finder{root: root, files: map[string]Shown{}, needs: map[string]struct{}{}, read: map[string]*elfFile{}}
	configured, err := f.libraryDirs("/etc/ld.so.conf", 0)
	if err != nil {
		return nil, err
	}
	f.dirs = append(configured, usualLibraryDirs...)
	return f, nil
}

// all are the files gathered so far, sorted by guest path. What lies in a directory that is
// shown whole is left out.
func (f *finder) all() []Shown {
	var all []Shown
	for _, guest := range slices.Sorted(maps.Keys(f.files)) {
		inside := slices.ContainsFunc(all, func(s Shown) bool { return within(guest, s.Guest) })
		if !inside {
			all = append(all, f.files[guest])
		}
	}
	return all
}

// show adds a file; of two at one place the first stays.
func (f *finder) show(s Shown) {
	if _, ok := f.files[s.Guest]; !ok {
		f.files[s.Guest] = s
	}
}

// alias shows a program under the name of its command too: which must find what can be typed.
func (f *finder) alias(guest, command string) {
	s := f.files[guest]
	s.Guest = path.Join(path.Dir(guest), command)
	f.show(s)
}

// shown is what lies at name, in the same place. A link there is followed anew at each
// start: the versions behind libraries' names change under a running server.
func (f *finder) shown(name string, exec bool) Shown {
	place := f.place(name)
	return Shown{Host: place, Guest: place, Exec: exec}
}

// showData adds what matches a pattern and is there, as data.
func (f *finder) showData(pattern string) {
	found, _ := filepath.Glob(f.root + pattern) // the patterns are constants; ErrBadPattern can't be
	for _, name := range found {
		guest := strings.TrimPrefix(name, f.root)
		if _, err := f.real(guest); err == nil { // else a link that leads nowhere
			f.show(f.shown(guest, false))
		}
	}
}

// program finds an executable by its name, and gathers it with what it needs.
func (f *finder) program(name string, as kind) (guest string, err error) {
	dirs := searched
	if as == ofOperator {
		dirs = append(slices.Clone(searched), searchedToo)
	}
	for _, dir := range dirs {
		guest := path.Join(dir, name)
		host, err := f.real(guest)
		if err != nil {
			continue
		}
		if info, err := os.Stat(f.root + host); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		guest = f.place(guest)
		return guest, f.executable(host, guest, as, 0)
	}
	return "", errors.New("not installed")
}

// maxInterpreters bounds scripts whose interpreters are scripts, as the kernel does.
const maxInterpreters = 4

// executable gathers the file at host, shown at guest, with all it needs; or nothing.
func (f *finder) executable(host, guest string, as kind, depth int) error {
	before, needs := maps.Clone(f.files), maps.Clone(f.needs)
	err := f.tryExecutable(host, guest, as, depth)
	if err != nil {
		f.files, f.needs = before, needs
	}
	return err
}

func (f *finder) tryExecutable(host, guest string, as kind, depth int) error {
	interpreter, err := f.interpreterOf(host)
	switch {
	case err != nil:
		return err
	case interpreter == nil:
		if err := f.object(host, nil); err != nil {
			return err
		}
	case as == ofList:
		// Its interpreter would be one more program behind the wall, and one that runs anything.
		return fmt.Errorf("%s is a script for %s", guest, interpreter[0])
	case depth == maxInterpreters:
		return fmt.Errorf("%s is a script for a script", guest)
	default:
		if err := f.interpreter(interpreter, depth); err != nil {
			return fmt.Errorf("%s is a script: %w", guest, err)
		}
	}
	f.show(f.shown(guest, true))
	return nil
}

// interpreter gathers a script's interpreter. What the script itself imports is not followed.
func (f *finder) interpreter(words []string, depth int) error {
	if !clean(words[0]) {
		return fmt.Errorf("%q is not an absolute, clean path", words[0])
	}
	host, err := f.real(words[0])
	if err != nil {
		return fmt.Errorf("%s is not installed", words[0])
	}
	if err := f.executable(host, f.place(words[0]), ofOperator, depth+1); err != nil {
		return err
	}
	if path.Base(words[0]) == "env" && len(words) == 2 {
		if _, err := f.program(words[1], ofOperator); err != nil {
			return fmt.Errorf("%s: %w", words[1], err)
		}
	}
	return nil
}

// interpreterOf is the first line of a script after "#!", in words as the kernel splits it:
// the interpreter and at most one argument. It is nil for what is no script.
func (f *finder) interpreterOf(host string) ([]string, error) {
	file, err := os.Open(f.root + host)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	line, err := bufio.NewReader(io.LimitReader(file, 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	line, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return nil, nil
	}
	name, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	if argument = strings.TrimSpace(argument); argument != "" {
		return []string{name, argument}, nil
	}
	return []string{name}, nil
}

// place is where the guest finds what the host calls name: the directories' links are
// resolved, since a mount can't lie below one, but the last element stays, because the
// file is asked for by it.
func (f *finder) place(name string) string {
	dir, err := f.real(path.Dir(name))
	if err != nil {
		return name
	}
	return path.Join(dir, path.Base(name))
}

// real is name without symbolic links, all of them followed inside the tree.
func (f *finder) real(name string) (string, error) {
	const maxLinks = 40 // as the kernel
	rest, done := strings.Split(path.Clean(name), "/"), "/"
	for links := 0; len(rest) > 0; {
		at := path.Join(done, rest[0]) // ".." of a link's target goes up in what is resolved
		rest = rest[1:]
		info, err := os.Lstat(f.root + at)
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			done = at
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", name)
		}
		target, err := os.Readlink(f.root + at)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}
