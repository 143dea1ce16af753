package srt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// requirements is what files of requirements ask for, in a form of our own: pip and uv
// never read the files themselves, so that no line means more to them than it did here.
type requirements struct {
	lines       []string // requirements and options, one a line
	constraints []string
	variables   []string // ${NAME} in the addresses of indexes: the installer puts their values in
}

const (
	maxRequirements      = 1 << 20 // bytes of one file
	maxRequirementsFiles = 100     // included in one another
)

// requirementsReader reads a file and those that it names.
type requirementsReader struct {
	build  bool // what comes as source is wanted too
	refuse func(path string) error
	seen   map[string]bool
	into   *[]string // lines or constraints
	requirements
}

// readRequirements reads the file at path. Packages that come as source, whose installation
// would run their code, are refused unless build is set; what refuse refuses is not read.
// All faults are returned together.
func readRequirements(path string, build bool, refuse func(string) error) (requirements, error) {
	r := &requirementsReader{build: build, refuse: refuse, seen: map[string]bool{}}
	r.into = &r.lines
	if err := r.file(path); err != nil {
		return requirements{}, err
	}
	if len(r.lines) == 0 {
		return requirements{}, fmt.Errorf("%s names no package", path)
	}
	return r.requirements, nil
}

func (r *requirementsReader) file(path string) error {
	path, err := resolved(path)
	if err != nil {
		return err
	}
	if r.seen[path] {
		return nil
	}
	if r.seen[path] = true; len(r.seen) > maxRequirementsFiles {
		return fmt.Errorf("%s: more than %d files", path, maxRequirementsFiles)
	}
	if err := r.refuse(path); err != nil {
		return err
	}
	text, err := readBounded(path, maxRequirements)
	if err != nil {
		return err
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return fmt.Errorf("%s is no text in UTF-8", path)
	}
	var errs []error
	for number, line := range logicalLines(string(text)) {
		if err := r.line(filepath.Dir(path), line); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, number, err))
		}
	}
	return errors.Join(errs...)
}

func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}

var requirementComment = regexp.MustCompile(`(^|\s+)#.*$`)

// logicalLines yields the lines that say something, continued ones as one, each with the
// number of its first.
func logicalLines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		joined, first := "", 0
		number := 0
		for line := range strings.Lines(text + "\n") {
			number++
			line = strings.TrimRight(line, "\r\n")
			if joined == "" {
				first = number
			}
			if rest, more := strings.CutSuffix(line, `\`); more && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				joined += rest + " "
				continue
			}
			joined = strings.TrimSpace(requirementComment.ReplaceAllString(joined+line, ""))
			if joined != "" && !yield(first, joined) {
				return
			}
			joined = ""
		}
		if joined = strings.TrimSpace(joined); joined != "" {
			yield(first, joined)
		}
	}
}

func (r *requirementsReader) line(dir, line string) error {
	if strings.HasPrefix(line, "-") {
		return r.option(dir, line)
	}
	line, err := r.requirement(dir, line)
	if err == nil {
		*r.into = append(*r.into, line)
	}
	return err
}

// requirementOptions are the options that a line may have, by their names, and whether
// each has a value.
var requirementOptions = map[string]struct {
	name  string
	value bool
}{
	"-r": {"--requirement", true}, "--requirement": {"--requirement", true},
	"-c": {"--constraint", true}, "--constraint": {"--constraint", true},
	"-i": {"--index-url", true}, "--index-url": {"--index-url", true}, "--pypi-url": {"--index-url", true},
	"--extra-index-url": {"--extra-index-url", true}, "--no-index": {"--no-index", false},
	"-f": {"--find-links", true}, "--find-links": {"--find-links", true},
	"--trusted-host": {"--trusted-host", true}, "--pre": {"--pre", false},
	"--prefer-binary": {"--prefer-binary", false}, "--require-hashes": {"--require-hashes", false},
	"--only-binary": {"--only-binary", true}, "--no-binary": {"--no-binary", true},
	"-e": {"--editable", true}, "--editable": {"--editable", true},
}

func (r *requirementsReader) option(dir, line string) error {
	name, value := line, ""
	if i := strings.IndexAny(line, "= \t"); i >= 0 {
		name, value = line[:i], strings.TrimSpace(line[i+1:])
	}
	if !strings.HasPrefix(line, "--") && len(name) > 2 { // -rother.txt
		name, value = line[:2], strings.TrimSpace(line[2:])
	}
	option, known := requirementOptions[name]
	switch {
	case !known:
		return fmt.Errorf("the option %s is not known here", name)
	case option.value != (value != ""):
		return fmt.Errorf("%s with the value %q", name, value)
	case strings.ContainsAny(value, " \t\"'\\"):
		return fmt.Errorf("%s: %q has spaces or quotes", name, value)
	}
	switch option.name {
	case "--editable":
		return errors.New("an editable package stays where it is, which code inside can't see: name a wheel of it")
	case "--no-binary":
		if !r.build {
			return fmt.Errorf("%s asks for a package as source, and %w", name, errSource)
		}
	case "--requirement", "--constraint":
		return r.include(dir, option.name, value)
	case "--index-url", "--extra-index-url", "--find-links":
		var err error
		if value, err = r.place(dir, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	r.lines = append(r.lines, strings.TrimSpace(option.name+" "+value)) // also of a file of constraints: they hold for all
	return nil
}

func (r *requirementsReader) include(dir, as, path string) error {
	if strings.Contains(path, "://") {
		return fmt.Errorf("%s is not on this machine: download it, and look at it, first", path)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	outer := r.into
	if as == "--constraint" {
		r.into = &r.constraints
	}
	err := r.file(path)
	r.into = outer
	return err
}

var requirementVariable = regexp.MustCompile(`\$\{([A-Z0-9_]+)\}`)

// place is the address of an index or of a directory with wheels. The one of a directory is
// made absolute, since the installer works elsewhere.
func (r *requirementsReader) place(dir, value string) (string, error) {
	for _, m := range requirementVariable.FindAllStringSubmatch(value, -1) {
		r.variables = append(r.variables, m[1])
	}
	if u, err := url.Parse(requirementVariable.ReplaceAllString(value, "x")); err == nil && slices.Contains([]string{"http", "https"}, u.Scheme) {
		return value, nil
	}
	return r.local(dir, value)
}

// local is the absolute path of what lies on this machine, where code inside can't reach it.
func (r *requirementsReader) local(dir, path string) (string, error) {
	path = strings.TrimPrefix(path, "file://")
	if strings.Contains(path, "://") || strings.Contains(path, "${") {
		return "", fmt.Errorf("%s is neither a path nor an address by http or https", path)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	path, err := resolved(path)
	if err == nil {
		err = r.refuse(path)
	}
	if err == nil && strings.ContainsAny(path, " \t\"'\\#") {
		err = fmt.Errorf("%q has spaces or quotes", path)
	}
	return path, err
}
