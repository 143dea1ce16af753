package allowlist

import "strings"

// options is which options a command may get, and how they are read: as
// getopt_long of the GNU C library does, but for abbreviations of long names,
// which are refused, because what they mean changes from version to version.
type options struct {
	short   string    // the letters; one with : takes a value, with :: only one that is attached. As getopt's own notation
	long    string    // the names in full, between blanks; one with = takes a value, with =? only one after an =
	first   bool      // options end at the first operand; otherwise they may stand after operands
	refused []refusal // options that people will try, and what to write instead
}

// refusal is why an option is not on the list. It decides about nothing but the
// sentence: what is on neither list is refused as well.
type refusal struct {
	names string // as typed, between blanks: "-o --output"
	why   string // "it does what; write this instead"
}

// given is an option that was found, or an operand.
type given struct {
	name string // "-o" or "--output"; "" for an operand
	text string // the value, or the operand
	at   int    // the index of the argument in which the text stands, or else the name
	wild bool   // the text is a pattern: it stands for any names
}

// parsed is a command's arguments, as its program will read them.
type parsed struct {
	options  []given
	operands []given
	letters  [256]bool // which letters without a value options has already; once is enough
}

// has says whether one of the named options was given.
func (p *parsed) has(names ...string) bool {
	for _, o := range p.options {
		for _, n := range names {
			if o.name == n {
				return true
			}
		}
	}
	return false
}

// among says whether word is one of those in list, which stand between blanks.
// A word that has a blank in it is none of them.
func among(list, word string) bool {
	if word == "" || strings.Contains(word, " ") {
		return false
	}
	for at := 0; ; at++ {
		found := strings.Index(list[at:], word)
		if found < 0 {
			return false
		}
		at += found
		end := at + len(word)
		if (at == 0 || list[at-1] == ' ') && (end == len(list) || list[end] == ' ') {
			return true
		}
	}
}

// after says whether an option stands behind the first operand. GNU's programs
// read it all the same; others take it, and what follows, for operands.
func (p *parsed) after(o given) bool {
	return len(p.operands) > 0 && o.at > p.operands[0].at
}

type arity int

const (
	unlisted arity = iota
	alone
	valued
	attached // with a value or without one, which never is the next argument
)

// letter says what the option -c takes.
func (o *options) letter(c byte) arity {
	at := strings.IndexByte(o.short, c)
	if at < 0 || c == ':' || c == ' ' {
		return unlisted
	}
	switch rest := o.short[at+1:]; {
	case strings.HasPrefix(rest, "::"):
		return attached
	case strings.HasPrefix(rest, ":"):
		return valued
	}
	return alone
}

// word says what the option --name takes.
func (o *options) word(name string) arity {
	for w := range strings.FieldsSeq(o.long) {
		rest, ok := strings.CutPrefix(w, name)
		switch {
		case !ok || name == "":
		case rest == "":
			return alone
		case rest == "=":
			return valued
		case rest == "=?":
			return attached
		}
	}
	return unlisted
}

// parse reads the arguments of c.
func (o *options) parse(c *command, args []Arg) (*parsed, *Error) {
	p := new(parsed)
	return p, o.parseFrom(c, p, args, 0)
}

// parseFrom reads the arguments from the index i on.
func (o *options) parseFrom(c *command, p *parsed, args []Arg, i int) *Error {
	ended := false
	for ; i < len(args); i++ {
		a := args[i]
		switch {
		case ended || a.Text == "-" || !strings.HasPrefix(a.Text, "-"):
			p.operands = append(p.operands, given{text: a.Text, at: i, wild: a.Pattern != ""})
			ended = ended || o.first
			continue
		case a.Pattern != "":
			return c.refuse(i, a.Text, wildOption)
		case a.Text == "--":
			ended = true
			continue
		}
		read := o.readCluster
		if strings.HasPrefix(a.Text, "--") {
			read = o.readLong
		}
		took, err := read(c, p, args, i)
		if err != nil {
			return err
		}
		i += took
	}
	return nil
}

const wildOption = "a wildcard can't stand in an option: write it in full, or quote it if it is text"

// readLong reads --name, --name=value or --name value at args[i], and says how
// many further arguments it took.
func (o *options) readLong(c *command, p *parsed, args []Arg, i int) (int, *Error) {
	name, value, hasValue := strings.Cut(args[i].Text[2:], "=")
	got := given{name: "--" + name, text: value, at: i}
	switch takes := o.word(name); {
	case takes == unlisted, takes == alone && hasValue:
		return 0, o.refuse(c, i, args[i].Text, "--"+name)
	case takes == valued && !hasValue && i+1 < len(args):
		got.text, got.at, got.wild = args[i+1].Text, i+1, args[i+1].Pattern != ""
		p.options = append(p.options, got)
		return 1, nil
	}
	p.options = append(p.options, got)
	return 0, nil
}

// readCluster reads letters behind one dash, such as -nrk2, at args[i].
func (o *options) readCluster(c *command, p *parsed, args []Arg, i int) (int, *Error) {
	word := args[i].Text
	for j := 1; j < len(word); j++ {
		got := given{name: "-" + word[j:j+1], at: i}
		takes := o.letter(word[j])
		if takes == unlisted {
			return 0, o.refuse(c, i, word, got.name)
		}
		rest := word[j+1:]
		if takes == alone {
			if !p.letters[word[j]] {
				p.letters[word[j]] = true
				p.options = append(p.options, got)
			}
			continue
		}
		got.text = rest
		if takes == attached || rest != "" || i+1 == len(args) {
			p.options = append(p.options, got)
			return 0, nil
		}
		got.text, got.at, got.wild = args[i+1].Text, i+1, args[i+1].Pattern != ""
		p.options = append(p.options, got)
		return 1, nil
	}
	return 0, nil
}

// refuse says why the option name, which was found in word, is not allowed.
func (o *options) refuse(c *command, at int, word, name string) *Error {
	found := name
	if !strings.HasPrefix(name, "--") && word != name {
		if word[1:2] != name[1:] {
			found = word // the letter is inside a cluster: show it whole
		}
	}
	for _, r := range o.refused {
		for n := range strings.FieldsSeq(r.names) {
			if n == name || abbreviates(name, n) {
				if found == word && word != name {
					return c.refuse(at, found, quote(name)+" in it: "+r.why)
				}
				return c.refuse(at, n, r.why)
			}
		}
	}
	for w := range strings.FieldsSeq(o.long) {
		if n := "--" + strings.TrimRight(w, "=?"); abbreviates(name, n) {
			return c.refuse(at, name, "names of options are not shortened here: write "+n)
		}
	}
	return c.refuse(at, found, quote(name)+" is not among the options that are allowed: "+o.describe())
}

// abbreviates says whether name would be taken for the long option full.
func abbreviates(name, full string) bool {
	return len(name) > 2 && name != full && strings.HasPrefix(name, "--") && strings.HasPrefix(full, name)
}

// describe lists the options that are allowed, the long names left out.
func (o *options) describe() string {
	var plain, withValue strings.Builder
	for i := range len(o.short) {
		switch o.letter(o.short[i]) {
		case alone, attached:
			plain.WriteByte(o.short[i])
		case valued:
			withValue.WriteString(" -" + o.short[i:i+1])
		}
	}
	var parts []string
	if plain.Len() > 0 {
		parts = append(parts, "-"+plain.String())
	}
	if withValue.Len() > 0 {
		parts = append(parts, "with a value"+withValue.String())
	}
	if o.long != "" {
		parts = append(parts, "long names in full")
	}
	return strings.Join(parts, ", ")
}
