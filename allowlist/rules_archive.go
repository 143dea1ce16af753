package allowlist

import "strings"

func tarOptions() *options {
	return &options{
		short: "txvzjJZaiROhlkpf:C:b:",
		long: "list extract get to-stdout verbose gzip gunzip ungzip bzip2 xz zstd auto-compress no-auto-compress file= directory= " +
			"exclude= exclude-from= exclude-vcs wildcards no-wildcards wildcards-match-slash no-wildcards-match-slash anchored " +
			"no-anchored ignore-case no-ignore-case ignore-zeros strip-components= show-transformed-names show-stored-names " +
			"occurrence=? full-time utc numeric-owner quoting-style= block-number totals null recursion no-recursion starting-file= " +
			"newer= after-date= newer-mtime= record-size= blocking-factor= read-full-records check-links dereference " +
			"preserve-permissions same-permissions warning= help usage version",
		refused: []refusal{
			{"-c --create -r --append -u --update -A --catenate --concatenate --delete", "it writes an archive; " + tarInstead},
			{"-d --diff --compare", "it compares with files on the disk, which is not among what is allowed; use `tar -xOf ARCHIVE NAME | diff - FILE`"},
			{"--to-command -I --use-compress-program -F --info-script --new-volume-script --rsh-command --rmt-command --checkpoint-action", "it runs a program; leave it out: compression is recognised"},
			{"--index-file --volno-file --one-top-level", "it writes a file; leave it out: the list is the output"},
			{"-T --files-from", "it reads further options from a file; write the names"},
			{"-M --multi-volume", "it waits for another volume; leave it out"},
		},
	}
}

const tarInstead = "`tar -tvf ARCHIVE` lists, `tar -xOf ARCHIVE NAME` prints a file"

// checkTar allows to list, and to extract to the output.
func checkTar(_ *List, c *command, args []Arg) *Error {
	if len(args) == 0 || strings.HasPrefix(args[0].Text, "-") {
		p, err := c.options.parse(c, args)
		if err != nil {
			return err
		}
		return checkTarMode(c, p)
	}
	// The old style: letters without a dash in the first word. GNU's tar takes
	// their values from the words that follow, in order; busybox puts a dash
	// before the word. Where the two differ (xfO), both must be harmless.
	if args[0].Pattern != "" {
		return c.refuse(0, args[0].Text, "a wildcard can't stand in the first word, which is read as options: begin with -tf")
	}
	p := new(parsed)
	next := 1
	for i := range len(args[0].Text) {
		got := given{name: "-" + args[0].Text[i:i+1]}
		switch c.options.letter(args[0].Text[i]) {
		case unlisted:
			return c.options.refuse(c, 0, got.name, got.name)
		case valued:
			if next < len(args) {
				got.text, got.at, got.wild = args[next].Text, next, args[next].Pattern != ""
				next++
			}
		}
		p.options = append(p.options, got)
	}
	if err := c.options.parseFrom(c, p, args, next); err != nil {
		return err
	}
	if err := checkTarMode(c, p); err != nil {
		return err
	}
	return checkDashed(c, args)
}

// checkDashed judges the old style as busybox reads it.
func checkDashed(c *command, args []Arg) *Error {
	dashed := append([]Arg{{Text: "-" + args[0].Text}}, args[1:]...)
	p, err := c.options.parse(c, dashed)
	if err == nil {
		err = checkTarMode(c, p)
	}
	if err != nil {
		return c.refuse(0, args[0].Text, "not every tar reads these letters in the same way: put a dash before them, and the letter that takes a value last, as in -xOf")
	}
	return nil
}

// checkTarMode allows exactly one of listing, and extracting to the output.
func checkTarMode(c *command, p *parsed) *Error {
	lists, extracts := p.has("-t", "--list"), p.has("-x", "--extract", "--get")
	for _, o := range p.options {
		if o.name != "-f" && o.name != "--file" {
			continue
		}
		if host, _, remote := strings.Cut(o.text, ":"); remote && !strings.Contains(host, "/") {
			return c.refuse(o.at, "-f "+o.text, "a name with : is taken for one on another machine; write ./"+shorten(o.text))
		}
	}
	for _, o := range p.options {
		if (o.name == "-O" || o.name == "--to-stdout") && extracts && p.after(o) {
			// BSD's tar would take it for a name in the archive, and extract.
			return c.refuse(o.at, o.name, "it must stand before the names: `tar -xOf ARCHIVE NAME`")
		}
	}
	switch {
	case lists && extracts:
		return c.refuse(0, "-t -x", "only one of them; "+tarInstead)
	case extracts && !p.has("-O", "--to-stdout"):
		return c.refuse(0, "-x", "it writes files; "+tarInstead)
	case !lists && !extracts && !p.has("--help", "--usage", "--version"):
		return c.refuse(-1, "", "neither -t nor -xO is given; "+tarInstead)
	}
	return nil
}

const unzipInstead = "`unzip -l ARCHIVE` lists, `unzip -p ARCHIVE NAME` prints a file, `unzip -t ARCHIVE` tests"

// checkUnzip allows what prints. Options are read by hand, because a - among
// the letters takes back the letter after it: -l-l extracts.
func checkUnzip(_ *List, c *command, args []Arg) *Error {
	i, prints, info := 0, false, false
	for ; i < len(args) && strings.HasPrefix(args[i].Text, "-"); i++ {
		word := args[i].Text
		if args[i].Pattern != "" {
			return c.refuse(i, word, wildOption)
		}
		letters := word[1:]
		allowed := "lvtzpcqCaL"
		switch {
		case i == 0 && strings.HasPrefix(letters, "Z"):
			info, prints = true, true // zipinfo, which can only list
			letters, allowed = letters[1:], zipinfoLetters
		case info:
			allowed = zipinfoLetters
		}
		if letters == "" && !(i == 0 && info) || strings.Trim(letters, allowed) != "" {
			return c.refuse(i, word, "it may extract or change files; "+unzipInstead+"; only the letters "+allowed+" are allowed")
		}
		prints = prints || strings.ContainsAny(letters, "lvtzpc")
	}
	if !prints {
		return c.refuse(min(i, len(args)-1), "", "it extracts files; "+unzipInstead)
	}
	for i++; i < len(args); i++ {
		if word := args[i].Text; strings.HasPrefix(word, "-") && word != "-x" {
			return c.refuse(i, word, "after the archive only names may follow, and -x before those to leave out; "+unzipInstead)
		}
	}
	return nil
}

// zipinfoLetters are zipinfo's options but M, which starts a pager, and T, which
// changes timestamps where it is read as unzip's own.
const zipinfoLetters = "12slmvhtzC"

// checkZip allows to list an archive and to ask for help, word by word: zip's
// options may be taken back, joined and abbreviated in too many ways.
func checkZip(_ *List, c *command, args []Arg) *Error {
	const instead = "zip writes archives; `unzip -l ARCHIVE` lists one, `zip -sf ARCHIVE` too"
	if len(args) == 0 {
		return c.refuse(-1, "", instead)
	}
	switch first := args[0].Text; {
	case args[0].Pattern != "":
	case len(args) == 1 && (first == "-h" || first == "-h2" || first == "-v" || first == "-L"):
		return nil
	case len(args) == 2 && (first == "-sf" || first == "--show-files"):
		if archive := args[1]; archive.Pattern == "" && archive.Text != "" && archive.Text[0] != '-' && archive.Text[0] != '@' {
			return nil
		}
	}
	return c.refuse(0, args[0].Text, instead)
}
