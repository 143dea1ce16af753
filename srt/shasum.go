package srt

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// shasum is the command of that name, which comes with Perl: same options, same
// output, same exit codes as its version 6. What it does not have is the reading
// of bits, -0.
type shasum struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	options        shasumOptions
	mode           byte // how files are read, and the mark before their names: ' ', '*' or 'U'
}

const (
	shasumVersion = "6.02"
	bitsMode      = '^'
)

// shasumAlgorithms by the names that -a takes.
var shasumAlgorithms = map[string]func() hash.Hash{
	"1": sha1.New, "224": sha256.New224, "256": sha256.New, "384": sha512.New384, "512": sha512.New,
	"512224": sha512.New512_224, "512256": sha512.New512_256,
}

func (s *shasum) run(args []string) int {
	files, ok := s.options.parse(args, s.stderr)
	o := &s.options
	if !ok {
		return s.usage("")
	}
	if o.help {
		fmt.Fprint(s.stdout, shasumHelp)
		return 0
	}
	if fault := o.fault(); fault != "" {
		return s.usage("shasum: " + fault + "\n")
	}
	if o.version {
		fmt.Fprintln(s.stdout, shasumVersion)
		return 0
	}
	if o.bits {
		return s.usage("shasum: BITS mode is not available here\n")
	}
	s.mode = ' '
	switch {
	case o.binary:
		s.mode = '*'
	case o.universal:
		s.mode = 'U'
	}
	if len(files) == 0 {
		files = []string{"-"}
	}
	code := 0
	for _, name := range files {
		if o.check {
			good, err := s.verify(name)
			if err != nil { // Perl's die ends everything, with the error's number
				fmt.Fprintf(s.stderr, "shasum: %s: %s\n", name, reason(err))
				return exitOf(err)
			}
			if !good {
				code = 1
			}
		} else if !s.print(name) {
			code = 1
		}
	}
	return code
}

func (s *shasum) usage(fault string) int {
	fmt.Fprint(s.stderr, fault, "Type shasum -h for help\n")
	return 1
}

// print writes a file's line.
func (s *shasum) print(name string) bool {
	sum, ok := s.sum(name, s.options.algorithm, s.mode)
	if !ok {
		return false
	}
	mark := ""
	if strings.ContainsAny(name, "\n\\") {
		name = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(name)
		mark = `\`
	}
	if s.options.tag {
		fmt.Fprintf(s.stdout, "%s%s (%s) = %s\n", mark, tagOf(s.options.algorithm), name, sum)
	} else {
		fmt.Fprintf(s.stdout, "%s%s %c%s\n", mark, sum, s.mode, name)
	}
	return true
}

// tagOf is an algorithm's name in BSD's style.
func tagOf(algorithm string) string {
	if bits, ok := strings.CutPrefix(algorithm, "512"); ok && bits != "" {
		return "SHA512/" + bits
	}
	return "SHA" + algorithm
}

// sum is a file's digest; false if it could not be read, which has been said then.
func (s *shasum) sum(name, algorithm string, mode byte) (string, bool) {
	h := shasumAlgorithms[algorithm]()
	if err := s.read(h, name, mode); err != nil {
		fmt.Fprintf(s.stderr, "shasum: %s: %s\n", name, reason(err))
		return "", false
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

func (s *shasum) read(h hash.Hash, name string, mode byte) error {
	if mode == bitsMode {
		return errors.New("BITS mode is not available here")
	}
	in := s.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	var to io.Writer = h
	if mode == 'U' {
		u := &universal{to: h}
		defer u.end()
		to = u
	}
	_, err := io.CopyBuffer(to, struct{ io.Reader }{in}, make([]byte, 64<<10))
	return err
}

// universal makes every kind of line end a newline.
type universal struct {
	to io.Writer
	cr bool // a carriage return came, and may yet belong to a newline
}

func (u *universal) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+1)
	for _, c := range p {
		if u.cr && c != '\n' {
			out = append(out, '\n')
		}
		if u.cr = c == '\r'; !u.cr {
			out = append(out, c)
		}
	}
	if _, err := u.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (u *universal) end() {
	if u.cr {
		u.to.Write([]byte{'\n'}) // a hash takes everything
	}
}

// reason is what Perl would say of an error: the system's words alone.
func reason(err error) string {
	var n syscall.Errno
	if !errors.As(err, &n) {
		return err.Error()
	}
	text := n.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

func exitOf(err error) int {
	var n syscall.Errno
	if errors.As(err, &n) {
		return int(n)
	}
	return 255
}

// shasumOptions are read as Perl's Getopt::Long reads them, bundled.
type shasumOptions struct {
	algorithm                                  string
	binary, text, universal, bits              bool
	check, tag                                 bool
	status, quiet, warn, strict, ignoreMissing bool
	help, version                              bool
}

func (o *shasumOptions) flags() map[string]*bool {
	return map[string]*bool{
		"binary": &o.binary, "b": &o.binary, "text": &o.text, "t": &o.text, "UNIVERSAL": &o.universal, "U": &o.universal,
		"01": &o.bits, "0": &o.bits, "check": &o.check, "c": &o.check, "tag": &o.tag, "status": &o.status, "s": &o.status,
		"quiet": &o.quiet, "q": &o.quiet, "warn": &o.warn, "w": &o.warn, "strict": &o.strict,
		"ignore-missing": &o.ignoreMissing, "help": &o.help, "h": &o.help, "version": &o.version, "v": &o.version,
	}
}

// fault is what is wrong with the options together; "" if nothing.
func (o *shasumOptions) fault() string {
	modes := 0
	for _, on := range []bool{o.binary, o.text, o.bits, o.universal} {
		if on {
			modes++
		}
	}
	const checks = " option used only when verifying checksums"
	for _, f := range []struct {
		bad  bool
		text string
	}{
		{modes > 1, "Ambiguous file mode"},
		{o.warn && !o.check, "--warn" + checks}, {o.status && !o.check, "--status" + checks},
		{o.quiet && !o.check, "--quiet" + checks}, {o.ignoreMissing && !o.check, "--ignore-missing" + checks},
		{o.strict && !o.check, "--strict" + checks},
		{o.tag && o.text, "--tag does not support --text mode"},
		{o.tag && o.universal, "--tag does not support Universal Newlines mode"},
		{o.tag && o.bits, "--tag does not support BITS mode"},
		{shasumAlgorithms[o.algorithm] == nil, "Unrecognized algorithm"},
	} {
		if f.bad {
			return f.text
		}
	}
	return ""
}

// parse reads options wherever they stand, and returns the operands. It says
// all that is wrong, and returns false if anything is.
func (o *shasumOptions) parse(args []string, stderr io.Writer) (operands []string, ok bool) {
	o.algorithm, ok = "1", true
	complain := func(format string, a ...any) {
		ok = false
		fmt.Fprintf(stderr, format+"\n", a...)
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), ok
		case strings.HasPrefix(arg, "--"):
			args = o.long(arg[2:], args, complain)
		case len(arg) > 1 && arg[0] == '-':
			args = o.short(arg[1:], args, complain)
		default:
			operands = append(operands, arg)
		}
	}
	return operands, ok
}

// setAlgorithm takes a number at the beginning of value and returns the rest.
func (o *shasumOptions) setAlgorithm(value string) (rest string, ok bool) {
	n := 0
	if value != "" && (value[0] == '-' || value[0] == '+') {
		n = 1
	}
	digits := n
	for n < len(value) && '0' <= value[n] && value[n] <= '9' {
		n++
	}
	if n == digits {
		return value, false
	}
	o.algorithm = value[:n]
	if number, err := strconv.Atoi(o.algorithm); err == nil {
		o.algorithm = strconv.Itoa(number)
	}
	return value[n:], true
}

func (o *shasumOptions) short(bundle string, args []string, complain func(string, ...any)) []string {
	flags := o.flags()
	for bundle != "" {
		name := bundle[:1]
		bundle = bundle[1:]
		if flag := flags[name]; flag != nil {
			*flag = true
			continue
		}
		if name != "a" {
			complain("Unknown option: %s", name)
			continue
		}
		value, apart := bundle, bundle == ""
		if apart {
			if len(args) == 0 {
				complain("Option a requires an argument")
				continue
			}
			value = args[0]
		}
		rest, ok := o.setAlgorithm(value)
		switch {
		case !ok || apart && rest != "":
			complain(`Value "%s" invalid for option a (number expected)`, value)
		case apart:
			args = args[1:]
		default:
			bundle = rest
		}
	}
	return args
}

func (o *shasumOptions) long(arg string, args []string, complain func(string, ...any)) []string {
	typed, value, has := strings.Cut(arg, "=")
	if typed == "" {
		typed, has = arg, false
	}
	flags := o.flags()
	switch matches := longNames(typed); {
	case len(matches) == 0:
		complain("Unknown option: %s", typed)
	case len(matches) > 1:
		complain("Option %s is ambiguous (%s)", typed, strings.Join(matches, ", "))
	case flags[matches[0]] != nil && has:
		complain("Option %s does not take an argument", matches[0])
	case flags[matches[0]] != nil:
		*flags[matches[0]] = true
	case !has && len(args) == 0:
		complain("Option %s requires an argument", matches[0])
	default: // the algorithm
		if !has {
			value = args[0]
		}
		if rest, ok := o.setAlgorithm(value); !ok || rest != "" {
			complain(`Value "%s" invalid for option %s (number expected)`, value, matches[0])
		} else if !has {
			return args[1:]
		}
	}
	return args
}

// longNames are the options that a word behind two dashes may stand for: a name,
// a short one too, or the beginning of long ones.
func longNames(typed string) []string {
	if len(typed) == 1 && strings.Contains("abctUswqhv0", typed) {
		return []string{typed}
	}
	var begin []string
	for _, name := range []string{
		"01", "algorithm", "binary", "check", "help", "ignore-missing", "quiet", "status", "strict", "tag", "text", "UNIVERSAL", "version", "warn",
	} {
		switch {
		case strings.EqualFold(name, typed):
			return []string{name}
		case typed != "" && len(typed) < len(name) && strings.EqualFold(name[:len(typed)], typed):
			begin = append(begin, name)
		}
	}
	return begin
}

const shasumHelp = `Usage: shasum [OPTION]... [FILE]...
Print or check SHA checksums. Without FILE, or when FILE is -, standard input is read.

  -a, --algorithm   1 (default), 224, 256, 384, 512, 512224, 512256
  -b, --binary      mark the names as read in binary mode
  -c, --check       read checksums from the FILEs and check them
      --tag         BSD-style lines
  -t, --text        text mode (default)
  -U, --UNIVERSAL   every kind of line end counts as a newline

With --check:
      --ignore-missing  no report and no failure for missing files
  -q, --quiet           no OK for files that match
  -s, --status          no output, the exit code tells
      --strict          improperly formatted lines are failures
  -w, --warn            tell of improperly formatted lines

  -h, --help        this help
  -v, --version     the version
`
