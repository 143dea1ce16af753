package srt

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// usualLibraryDirs are compiled into dynamic loaders: Debian's, Fedora's, musl's.
var usualLibraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
}

// libraryDirs reads a configuration of the dynamic loader, and those that it includes.
func (f *finder) libraryDirs(name string, depth int) ([]string, error) {
	text, err := os.ReadFile(f.root + name)
	if errors.Is(err, fs.ErrNotExist) { // musl has none
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "hwcap":
		case words[0] == "include" && depth < 8: // one that includes itself has no end
			for _, pattern := range words[1:] {
				if !path.IsAbs(pattern) {
					pattern = path.Join(path.Dir(name), pattern)
				}
				found, err := filepath.Glob(f.root + pattern)
				if err != nil {
					return nil, fmt.Errorf("%s: include %s: %w", name, pattern, err)
				}
				for _, other := range found { // sorted, as ldconfig reads them
					more, err := f.libraryDirs(strings.TrimPrefix(other, f.root), depth+1)
					if err != nil {
						return nil, err
					}
					dirs = append(dirs, more...)
				}
			}
		case path.IsAbs(words[0]):
			dirs = append(dirs, path.Clean(words[0]))
		}
	}
	return dirs, nil
}

// elfFile is what of an ELF file decides on its libraries.
type elfFile struct {
	class       elf.Class
	machine     elf.Machine
	interpreter string   // "" of a library, and of a static program
	needed      []string // names of libraries
	rpath       []string // looked in before all else, also for the libraries of libraries
	runpath     []string // looked in for the needed alone
}

// readELF reads the file at host, once.
func (f *finder) readELF(host string) (*elfFile, error) {
	if known, ok := f.read[host]; ok {
		return known, nil
	}
	content, err := os.Open(f.root + host)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	file, err := elf.NewFile(content)
	if err != nil {
		return nil, fmt.Errorf("%s is no program of this kind of system", host)
	}
	b := &elfFile{class: file.Class, machine: file.Machine}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, min(p.Filesz, 4096))
			if _, err := p.ReadAt(name, 0); err != nil {
				return nil, err
			}
			b.interpreter = strings.TrimRight(string(name), "\x00")
		}
	}
	var errs [3]error
	var rpath, runpath []string
	b.needed, errs[0] = file.DynString(elf.DT_NEEDED)
	rpath, errs[1] = file.DynString(elf.DT_RPATH)
	runpath, errs[2] = file.DynString(elf.DT_RUNPATH)
	b.rpath, b.runpath = f.searchPath(rpath, host), f.searchPath(runpath, host)
	if len(b.runpath) > 0 {
		b.rpath = nil // the loader ignores it then
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	f.read[host] = b
	return b, nil
}

// searchPath is an RPATH or RUNPATH in directories. Relative ones are left out: what lies
// below a working directory is nobody's library.
func (f *finder) searchPath(values []string, host string) []string {
	var dirs []string
	for _, value := range values {
		for dir := range strings.SplitSeq(value, ":") {
			dir = strings.NewReplacer("$ORIGIN", path.Dir(host), "${ORIGIN}", path.Dir(host)).Replace(dir)
			if path.IsAbs(dir) {
				dirs = append(dirs, path.Clean(dir))
			}
		}
	}
	return dirs
}

// object gathers what the program or library at host needs, not itself. above are the
// RPATHs of those that need it.
func (f *finder) object(host string, above []string) error {
	if _, ok := f.needs[host]; ok {
		return nil
	}
	f.needs[host] = struct{}{}
	b, err := f.readELF(host)
	if err != nil {
		return err
	}
	dirs := slices.Concat(b.rpath, above, b.runpath, f.dirs)
	if b.interpreter != "" {
		real, err := f.real(b.interpreter)
		if err != nil {
			return fmt.Errorf("its loader %s is not installed", b.interpreter)
		}
		f.show(f.shown(b.interpreter, true))
		dirs = append(dirs, path.Dir(real)) // a loader knows the directory that it came with
	}
	for _, name := range b.needed {
		if err := f.library(name, dirs, slices.Concat(b.rpath, above), b); err != nil {
			return err
		}
	}
	return nil
}

// library gathers a library, and what it needs. Beside the one that every processor of the
// architecture can run there may be others for newer ones, of which the loader takes the
// best: all are shown.
func (f *finder) library(name string, dirs, above []string, of *elfFile) error {
	if strings.Contains(name, "/") {
		dirs, name = []string{path.Dir(name)}, path.Base(name)
	}
	for _, dir := range dirs {
		if !f.fits(path.Join(dir, name), of) {
			continue
		}
		found := []string{path.Join(dir, name)}
		better, _ := filepath.Glob(f.root + dir + "/glibc-hwcaps/*/" + name) // not found if name is a pattern
		for _, b := range better {
			if other := strings.TrimPrefix(b, f.root); f.fits(other, of) {
				found = append(found, other)
			}
		}
		for _, guest := range found {
			host, err := f.real(guest)
			if err != nil {
				return err
			}
			f.show(f.shown(guest, true))
			if err := f.object(host, above); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("its library %s is not installed", name)
}

// fits reports whether a library for the same kind of processor lies at name: the loader
// passes over others.
func (f *finder) fits(name string, of *elfFile) bool {
	host, err := f.real(name)
	if err != nil {
		return false
	}
	b, err := f.readELF(host)
	return err == nil && b.class == of.class && b.machine == of.machine
}
