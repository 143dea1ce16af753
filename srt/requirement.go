package srt

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// errSource is in the error of a package whose installation would run code of its own
// outside the wall.
var errSource = errors.New("to build that would run its code outside the wall, as the server's user: " +
	"name a wheel, or allow it by --dangerously-build-packages")

// One requirement is a name with extras and versions, or with an address, and a marker:
// PEP 508, in plain ASCII.
var (
	requirementHash   = regexp.MustCompile(`\s--hash=[a-z0-9]+:[0-9a-f]+$`)
	requirementMarker = regexp.MustCompile(`^[\w.'"<>=!~ ()*+,-]+$`)
	requirementName   = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`)
	requirementRest   = regexp.MustCompile(`^\s*(\[[\w.,\s-]*\])?\s*(\(?\s*[<>=!~][\w.*+!<>=~,\s-]*\)?)?$`)
	requirementAt     = regexp.MustCompile(`^\s*(\[[\w.,\s-]*\])?\s*@\s*(\S+)$`)
)

// requirement checks one requirement, and makes paths in it absolute.
func (r *requirementsReader) requirement(dir, line string) (string, error) {
	what, hashes := line, ""
	for {
		at := requirementHash.FindStringIndex(what)
		if at == nil {
			break
		}
		hashes = " " + strings.TrimSpace(what[at[0]:]) + hashes
		what = strings.TrimSpace(what[:at[0]])
	}
	if strings.Contains(" "+what, " --") {
		return "", fmt.Errorf("%q: an option of a requirement other than --hash", line)
	}
	what, marker, marked := cutMarker(what)
	if marked && !requirementMarker.MatchString(marker) {
		return "", fmt.Errorf("%q is no marker", marker)
	}
	what, err := r.wanted(dir, what)
	if err != nil {
		return "", err
	}
	if marked {
		what += " ; " + marker
	}
	return what + hashes, nil
}

// cutMarker cuts what is behind the semicolon, which in an address needs a space before it.
func cutMarker(what string) (before, marker string, found bool) {
	sep := ";"
	if strings.ContainsAny(what, "/@") {
		sep = " ;"
	}
	before, marker, found = strings.Cut(what, sep)
	return strings.TrimSpace(before), strings.TrimSpace(marker), found
}

func (r *requirementsReader) wanted(dir, what string) (string, error) {
	name := requirementName.FindString(what)
	rest := what[len(name):]
	switch {
	case name != "" && requirementRest.MatchString(rest) && !isArchive(what):
		return strings.Join(strings.Fields(what), " "), nil
	case strings.ContainsAny(what, "$\"'\\"):
		return "", fmt.Errorf("%q is no requirement", what)
	}
	if m := requirementAt.FindStringSubmatch(rest); name != "" && m != nil {
		at, err := r.archive(dir, m[2])
		return strings.TrimSpace(name+m[1]) + " @ " + at, err
	}
	if strings.ContainsAny(what, " \t") || !strings.ContainsAny(what, "/.") {
		return "", fmt.Errorf("%q is no requirement", what)
	}
	return r.archive(dir, what)
}

// isArchive tells a file from a name with dots: x.whl would be a name by its letters.
func isArchive(what string) bool {
	return slices.ContainsFunc([]string{".whl", ".zip", ".gz", ".bz2", ".xz", ".tar", ".tgz"}, func(ending string) bool {
		return strings.HasSuffix(strings.ToLower(what), ending)
	})
}

// archive is the address or the path of one package: of a wheel, unless source is wanted too.
func (r *requirementsReader) archive(dir, at string) (string, error) {
	path, remote := at, false
	if u, err := url.Parse(at); err == nil && u.Scheme != "" && u.Scheme != "file" {
		path, remote = u.Path, true
		if !slices.Contains([]string{"http", "https"}, u.Scheme) && !r.build {
			return "", fmt.Errorf("%s comes as source, and %w", at, errSource)
		}
	}
	if !strings.HasSuffix(path, ".whl") && !r.build {
		return "", fmt.Errorf("%s comes as source, and %w", at, errSource)
	}
	if remote {
		return at, nil
	}
	local, err := r.local(dir, at)
	if err != nil {
		return "", err
	}
	return "file://" + local, nil
}
