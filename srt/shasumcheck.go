package srt

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// maxCheckLine bounds a line: the longest sum and the longest path, were every
// character of it escaped, come to half of it. Perl takes as much memory as a line
// has, and says of a longer path that it can't be read.
const maxCheckLine = 16 << 10

// checkLine is one line of a list of checksums.
type checkLine struct {
	algorithm, sum, name string
	mode                 byte
}

// checkLines are the two forms of such lines.
type checkLines struct {
	isTag, tag, plain *regexp.Regexp
	byLength          map[int]string // of a sum in the plain form, which does not name its algorithm
}

func newCheckLines(algorithm string) checkLines {
	c := checkLines{
		isTag:    regexp.MustCompile(`^[ \t]*\\?SHA`),
		tag:      regexp.MustCompile(`^[ \t]*(\\?)SHA(\S+) \((.+)\) = ([0-9a-fA-F]+)`),
		plain:    regexp.MustCompile(`^[ \t]*(\\?)([0-9a-fA-F]+)[ \t]([ *^U])(.+)`),
		byLength: map[int]string{40: "1", 56: "224", 64: "256", 96: "384", 128: "512"},
	}
	switch algorithm {
	case "512224":
		c.byLength[56] = algorithm
	case "512256":
		c.byLength[64] = algorithm
	}
	return c
}

// parse reads a line without its newline.
func (c checkLines) parse(text string) (l checkLine, ok bool) {
	escaped := ""
	if c.isTag.MatchString(text) {
		m := c.tag.FindStringSubmatch(text)
		if m == nil {
			return l, false
		}
		escaped, l = m[1], checkLine{strings.ReplaceAll(m[2], "/", ""), m[4], m[3], '*'}
	} else {
		m := c.plain.FindStringSubmatch(text)
		if m == nil {
			return l, false
		}
		escaped, l = m[1], checkLine{c.byLength[len(m[2])], m[2], m[4], m[3][0]}
	}
	if escaped != "" {
		l.name = strings.NewReplacer(`\\`, `\`, `\n`, "\n").Replace(l.name)
	}
	return l, shasumAlgorithms[l.algorithm] != nil
}

// verification counts what the lines of one list came to.
type verification struct {
	formatted, good                  int
	malformed, unreadable, different int
}

// verify checks a list of checksums. Its error is a list that can't be opened.
func (s *shasum) verify(list string) (bool, error) {
	in, name := s.stdin, "standard input"
	if list != "-" {
		f, err := os.Open(list)
		if err != nil {
			return false, err
		}
		defer f.Close()
		in, name = f, list
	}
	lines := newCheckLines(s.options.algorithm)
	r := bufio.NewReaderSize(in, maxCheckLine)
	var v verification
	bad := false
	for number := 1; ; number++ {
		text, err := r.ReadSlice('\n')
		if len(text) > 0 && text[0] != '#' {
			line := strings.TrimSuffix(string(text), "\n")
			if errors.Is(err, bufio.ErrBufferFull) {
				line = "" // which is improperly formatted too
			}
			bad = s.verifyLine(lines, name, number, line, &v) || bad
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil { // the end; what can't be read has no lines
			break
		}
	}
	s.summarize(name, v)
	if v.formatted == 0 || s.options.ignoreMissing && v.good == 0 {
		bad = true
	}
	return !bad, nil
}

// verifyLine reports whether the line makes the whole list fail.
func (s *shasum) verifyLine(lines checkLines, list string, number int, text string, v *verification) (bad bool) {
	o := &s.options
	l, ok := lines.parse(text)
	if !ok {
		if o.warn {
			fmt.Fprintf(s.stderr, "shasum: %s: %d: improperly formatted SHA checksum line\n", list, number)
		}
		v.malformed++
		return o.strict
	}
	v.formatted++
	if o.ignoreMissing {
		if _, err := os.Stat(l.name); err != nil {
			return false
		}
	}
	verdict := "OK"
	switch sum, ok := s.sum(l.name, l.algorithm, l.mode); {
	case !ok:
		verdict = "FAILED open or read"
		v.unreadable++
	case !strings.EqualFold(sum, l.sum):
		verdict = "FAILED"
		v.different++
	default:
		v.good++
	}
	if fine := verdict == "OK"; !o.status && (!fine || !o.quiet) {
		fmt.Fprintf(s.stdout, "%s: %s\n", l.name, verdict)
	}
	return verdict != "OK"
}

func (s *shasum) summarize(list string, v verification) {
	warn := func(n int, one, many, what string) {
		if n == 1 {
			fmt.Fprintf(s.stderr, "shasum: WARNING: 1 %s %s\n", one, what)
		} else if n > 1 {
			fmt.Fprintf(s.stderr, "shasum: WARNING: %d %s %s\n", n, many, what)
		}
	}
	switch {
	case v.formatted == 0:
		fmt.Fprintf(s.stderr, "shasum: %s: no properly formatted SHA checksum lines found\n", list)
	case !s.options.status:
		warn(v.malformed, "line is", "lines are", "improperly formatted")
		warn(v.unreadable, "listed file", "listed files", "could not be read")
		warn(v.different, "computed checksum", "computed checksums", "did NOT match")
	}
	if s.options.ignoreMissing && v.good == 0 && v.formatted > 0 && !s.options.status {
		fmt.Fprintf(s.stderr, "shasum: %s: no file was verified\n", list)
	}
}
