package allowlist

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ruleCase is what must pass of a command with a rule, and what must not. A
// refused line is followed by words of the sentence that says why.
type ruleCase struct {
	command string
	allowed []string
	refused [][2]string
}

var ruleCases = []ruleCase{
	{"find", []string{
		"find", "find . -type f -name '*.go'", "find -L . -maxdepth 2 -size +1M -printf '%s %p\\n'", "find . \\( -name a -o -name b \\) -print0",
		"find . -newermt 2024-01-01 ! -newer f", "find . -name -exec", "find *.d -name x", "find . -mtime -7 -perm -u+w", "find -O2 . -quit", "find -- . -ls",
	}, [][2]string{
		{"find . -exec rm {} +", "grep -rl"}, {"find . -name x -delete", "-print lists"}, {"find . -fprintf f %p", "write to the output"},
		{"find . -name *.go", "quote it"}, {"find . -okdir ls", "runs programs"}, {"find . -newerxy f", "no such test"}, {"find . -n*", "wildcard"},
		{"find . '-print -print0'", "no such test"}, {"find . '-name -newer' -delete", "no such test"}, {"find . -maxdepth 1 *", "wildcard"},
		{"find . --name x", "no such test"}, {"find . -Oexec", "no such test"},
	}},
	{"awk", []string{
		"awk -F, -v OFS='\\t' '{print $1, $2}' f", "awk -f prog.awk f", "awk --field-separator=: -- '{print}' f", "awk -e 'NR>1' --source 'END{print NR}'",
		"awk -k '{print}' f", "awk --lint=fatal 1 f", "awk '{print}' -o f", "awk '$1 / 2 > 3 / 1 {print}' f", "awk '/[/]|x/ {n++} END {print (n > 1) ? \"a\" : \"b\"}' f",
		"awk '{getline l; if (l < 3 || $1 > 3) print}' f", "awk '{print $1, \"a > b | c\" # > d\n}\n$2 > 3' f", "awk '{a[$1]++} END {for (k in a) if (a[k] > 1) print k, a[k]}' f",
	}, [][2]string{
		{"awk -o 1 f", "writes a file"}, {"awk -oF 1 f", "writes a file"}, {"awk --profile=x 1", "writes a file"}, {"awk -i inplace 1 f", "leave it out"},
		{"awk -W exec=x", "any long option"}, {"awk -l time 1", "compiled code"}, {"awk -bi inplace 1 f", "inplace"}, {"awk --fiel=: 1", "--field-separator"},
		{"awk 'BEGIN{system(\"x\")}'", "runs programs"}, {"awk '{print | \"sort\"}' f", "after awk"}, {"awk '{print > \"o\"}' f", "leave it out"},
		{"awk '{while ((getline l < \"f\") > 0) n++}'", "name the file"}, {"awk -e 1 -e 'BEGIN{@f()}'", "by its name"}, {"awk '@load \"x\"'", "loads code"},
		{"awk -L -p 1", "writes a file"}, {"awk -D 1", "terminal"},
	}},
	{"sed", []string{
		"sed -n '/a/,/b/p' f", "sed -E -e 's/a|b/c/g' -e '$d' f", "sed -f s.sed f", "sed -l 80 -n l f", "sed --expression='s/w/e/' f", "sed '/x/a\\\nw text' f",
		"sed 's/[^/]*e//; y/ew/we/; s|w|e|g' f", "sed -nf s.sed f", "sed --sandbox p f", "sed -z 's/\\n/,/g' f", "sed '1!G;h;$!d' f", "sed ':e; s/x/w/; te' f",
		"sed '/[[:space:]/]w/d' f", "sed '# w comment' f", "sed '/a/{s/b/c/g;n;d}' f", "sed '2q5' f", "sed 's/a/b/3gI' f", "sed -- -n f",
		"sed ':end;s/x/y/;t end' f", "sed 'b end;:end' f", "sed 'T end\n:end' f", "sed 'b w;p;:w' f", "sed ': w;s/x/y/;t\tw;p' f", "sed '/x/{b w};p;:w' f", "sed 'b#w' f", "sed 'v 4.2;p' f",
	}, [][2]string{
		{"sed -i s/a/b/ f", "changed text is the output"}, {"sed -ni p f", "changes the file"}, {"sed s/a/b/ f -i.bak", "changes the file"}, {"sed --in-p p f", "changes the file"},
		{"sed -e p -e '1e id' f", "runs programs"}, {"sed 's/a/b/w o' f", "writes a file"}, {"sed '/[/]/w o' f", "writes a file"}, {"sed '$r o' f", "use cat"},
		{"sed --quie p f", "write --quiet"}, {"sed -l -i p f", "a number"}, {"sed '/a/{p;W o\n}' f", "writes a file"}, {"sed 's/x/y/;s/x/id/Me' f", "runs programs"},
		{"sed '\\%a%e id' f", "runs programs"}, {"sed 'a text\ne id' f", "runs programs"}, {"sed ':a w;p' f", "writes a file"}, {"sed 't a;w o' f", "writes a file"}, {"sed '{b};w o' f", "writes a file"},
		{"sed 't a;a foo\n1e id' f", "runs programs"}, {"sed 'b \nw o' f", "writes a file"}, {"sed 'b#x\nw o' f", "writes a file"}, {"sed -s*", "wildcard"},
	}},
	{"sort", []string{
		"sort -t, -k2,2n -u f", "sort -to f", "sort -k1o f", "sort --key=2 --reverse f", "sort -S 10% f", "sort -nrk2 *.csv", "sort --files0-from=f", "sort -- -o", "sort --check f", "sort -k -o",
	}, [][2]string{
		{"sort -o o f", "sorted lines are the output"}, {"sort f -no o", "sorted lines"}, {"sort --outp=o f", "sorted lines"}, {"sort --compress-program=x f", "runs a program"},
		{"sort -T . f", "/tmp"}, {"sort --rev f", "write --reverse"}, {"sort -x f", "not among"}, {"sort --merge=x f", "not among"}, {"sort -o*", "wildcard"},
	}},
	{"uniq", []string{"uniq", "uniq -c f", "uniq -f 1 -w5 f", "uniq --all-repeated=separate -", "uniq -- f"}, [][2]string{
		{"uniq a b", "would be written"}, {"uniq - b", "would be written"}, {"uniq a - -c", "would be written"}, {"uniq a -c", "before the file"}, {"uniq a -f b", "before the file"}, {"uniq *", "wildcard"}, {"uniq -- -c b", "would be written"}, {"uniq --gro f", "write --group"},
	}},
	{"date", []string{"date", "date -u '+%F'", "date -d '2 days ago' +%s", "date -Iseconds", "date --rfc-3339=ns", "date -r f +%F"}, [][2]string{
		{"date -s x", "sets the clock"}, {"date --se=x", "sets the clock"}, {"date -us x", "sets the clock"}, {"date 01010000", "sets the clock"}, {"date +%F +%T", "one operand"}, {"date *", "wildcard"},
	}},
	{"file", []string{"file *", "file -bi f", "file --mime-type f", "file -F: -f names", "file -e tar f"}, [][2]string{
		{"file -C", "magic.mgc"}, {"file -bz f", "decompressors"}, {"file -m x f", "system's"}, {"file --comp", "magic.mgc"}, {"file -p f", "timestamps"}, {"file --mim f", "write --mime"},
	}},
	{"tree", []string{"tree", "tree -L 2 -a", "tree -L2", "tree -aL 2 -I 'node_modules|.git'", "tree --sort=size --du -h", "tree --sort size", "tree -H . -T x", "tree -- d"}, [][2]string{
		{"tree -o f", "tree is the output"}, {"tree -L2 -o f", "tree is the output"}, {"tree -L -o f", "begins with -"}, {"tree -L2o f", "tree is the output"}, {"tree -H . -R", "-L LEVEL"}, {"tree -- -o", "tree is the output"},
		{"tree -P *.go", "quote it"}, {"tree --output=f", "tree is the output"}, {"tree --filelimit -o f", "begins with -"}, {"tree --noreport=x", "not among"}, {"tree -PI a -o", "begins with -"},
	}},
	{"diff", []string{"diff a b", "diff -u -r a b", "diff -U5 a b", "diff -x l a b", "diff -5 a b", "diff --color=always a b", "diff -y -W 80 a b", "diff --label x a b"}, [][2]string{
		{"diff -l a b", "runs pr"}, {"diff -ul a b", "runs pr"}, {"diff --pag a b", "runs pr"}, {"diff a b -rl", "runs pr"}, {"diff --diff-program=x a b", "not among"},
	}},
	{"which", []string{"which ls", "which -a ls cat"}, [][2]string{{"which --read-alias", "not among"}, {"which -i", "not among"}}},
	{"xxd", []string{"xxd f", "xxd -c 8 -g1 -l 0x20 f", "xxd -s -16 f", "xxd -r -p f", "xxd -rp", "xxd -ps -", "xxd -s+4 -u f", "xxd -i -n name f", "xxd -R never f", "xxd -- f", "xxd --cols 4 f"}, [][2]string{
		{"xxd a b", "is written"}, {"xxd - b", "is written"}, {"xxd -r a b", "is written"}, {"xxd -c 8 a b", "is written"}, {"xxd -c8 a b", "is written"}, {"xxd -- a b", "is written"},
		{"xxd '-g -groupsize' a b", "not among"}, {"xxd -group 2 a", "not among"}, {"xxd -col 8 a", "not among"}, {"xxd f -r", "is written"}, {"xxd *", "wildcard"}, {"xxd -R a b", "not among"}, {"xxd -pc 8 a", "not among"},
	}},
	{"env", []string{"env", "env -0", "env -i", "env -", "env LC_ALL=C sort f", "env LANG=C TZ=UTC date +%F", "env LC_ALL=C ls *.go", "env LC_ALL=C"}, [][2]string{
		{"env ls", "without env"}, {"env LC_ALL=C id", "not an allowed command"}, {"env A=1 ls", "may be set"}, {"env -i ls", "changes how"}, {"env -S 'ls'", "changes how"}, {"env LC_ALL=C env", "once"},
		{"env LC_ALL=C sort -o x f", "sorted lines"}, {"env LC_ALL=C find . -delete", "deletes"}, {"env LC_ALL=C *", "wildcard"}, {"env TZ=/f date", "time zone"}, {"env LC_ALL=C PATH=. ls", "may be set"}, {"env -- ls", "changes how"},
		{"env LC_ALL=C /bin/ls", "not an allowed command"}, {"env LC_ALL=C uniq a b", "would be written"},
	}},
	{"unzip", []string{"unzip -l a.zip", "unzip -p a.zip f", "unzip -qql a.zip", "unzip -l *.zip", "unzip -Z1 a.zip", "unzip -Z -l a.zip", "unzip -v", "unzip -l a.zip -x f", "unzip -q -c a.zip"}, [][2]string{
		{"unzip a.zip", "unzip -l"}, {"unzip", "extracts"}, {"unzip -l-l a.zip", "extract"}, {"unzip -l --l a.zip", "extract"}, {"unzip -lT a.zip", "change files"}, {"unzip -l a.zip -d x", "after the archive"},
		{"unzip -q a.zip", "extracts"}, {"unzip -ZM a.zip", "letters"}, {"unzip -Z -T a.zip", "letters"}, {"unzip -l -Z a.zip", "letters"}, {"unzip -l - a.zip", "letters"}, {"unzip -l a.zip f -o", "after the archive"},
	}},
	{"tar", []string{"tar tf a.tar", "tar tvzf a.tgz", "tar -tf a.tar d", "tar -xOf a.tar f", "tar xOf a.tar f", "tar --list --file=a.tar", "tar -tf *.tar", "tar -xf a.tar --to-stdout", "tar tf ./a:b", "tar tfv a.tar", "tar --help", "tar t", "tar xf a.tar -O f"}, [][2]string{
		{"tar xf a.tar", "tar -tvf"}, {"tar -xf a.tar", "tar -xOf"}, {"tar cf a.tar f", "writes an archive"}, {"tar -czf a f", "writes an archive"}, {"tar", "neither"}, {"tar xfO a.tar", "dash before"}, {"tar tIf x a.tar", "runs a program"},
		{"tar -tf h:a", "./h:a"}, {"tar -tf a --to-c=x", "runs a program"}, {"tar tf a --index-file=o", "writes a file"}, {"tar -tf a -x", "only one"}, {"tar t* a", "first word"}, {"tar *", "first word"}, {"tar -tf a -T l", "further options"},
		{"tar --ext -f a", "write --extract"}, {"tar -tf a --checkpoint-action=exec=x", "runs a program"}, {"tar xbO 20 a.tar", "dash before"}, {"tar tff a h:b", "./h:b"}, {"tar --version -x", "writes files"}, {"tar -xf a.tar f -O", "before the names"}, {"tar xf a.tar f --to-stdout", "before the names"},
	}},
	{"zip", []string{"zip -sf a.zip", "zip --show-files a.zip", "zip -h", "zip -h2", "zip -v", "zip -L"}, [][2]string{
		{"zip", "unzip -l"}, {"zip a.zip f", "unzip -l"}, {"zip -sf -T a.zip", "unzip -l"}, {"zip -sf- a.zip", "unzip -l"}, {"zip -sf a.zip f", "unzip -l"}, {"zip -sf *.zip", "unzip -l"}, {"zip -v a.zip f", "unzip -l"}, {"zip -sf @", "unzip -l"},
	}},
}

// raw reads words between blanks and quotes into a stage, with a * as wildcard
// where it isn't quoted, so that these tests need nothing of the reading.
func raw(line string) Stage {
	var args []Arg
	for _, m := range regexp.MustCompile(`(?:'[^']*'|[^ '])+`).FindAllString(line, -1) {
		a := Arg{Text: strings.NewReplacer("'", "", `\(`, "(", `\)`, ")").Replace(m)}
		if strings.Contains(regexp.MustCompile(`'[^']*'`).ReplaceAllString(m, ""), "*") {
			a.Pattern = a.Text
		}
		args = append(args, a)
	}
	return Stage{Name: args[0].Text, Args: args[1:]}
}

func texts(args []Arg) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a.Text
	}
	return out
}

func newList(t testing.TB, o Options) *List {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRules(t *testing.T) {
	l := newList(t, Options{})
	for _, c := range ruleCases {
		t.Run(c.command, func(t *testing.T) {
			for _, line := range c.allowed {
				s := raw(line)
				if err := l.checkStage(s); err != nil {
					t.Errorf("%s: refused: %v", line, err)
				}
				if _, err := l.Resolve(s.Name, texts(s.Args)); err != nil {
					t.Errorf("%s: Resolve: %v", line, err)
				}
			}
			for _, r := range c.refused {
				s := raw(r[0])
				err := l.checkStage(s)
				switch {
				case err == nil:
					t.Errorf("%s: allowed", r[0])
				case !strings.Contains(err.Message, r[1]):
					t.Errorf("%s: %q doesn't say %q", r[0], err.Message, r[1])
				case err.arg < -1 || err.arg >= len(s.Args):
					t.Errorf("%s: argument %d of %d", r[0], err.arg, len(s.Args))
				case err.Rule == "" || err.Offset != -1:
					t.Errorf("%s: %+v", r[0], err)
				}
			}
		})
	}
	for _, c := range ruled() {
		if !slices.ContainsFunc(ruleCases, func(r ruleCase) bool { return r.command == c.name }) {
			t.Errorf("no cases for %s", c.name)
		}
	}
}

// TestArgumentAtFault holds the index by which a refusal finds its place.
func TestArgumentAtFault(t *testing.T) {
	l := newList(t, Options{})
	for line, want := range map[string]int{
		"sort f -o out": 1, "env LC_ALL=C sort f -o out": 3, "find . -name x -delete": 3, "sort -k 1 -x": 2, "uniq a b": 1, "uniq -c a b": 2,
		"tar": -1, "zip": -1, "date +%F 0101": 1, "tar -t -f h:a": 2, "sed -n -e w f": 2, "awk -v a=1 system": 2, "nothing": -1, "env TZ=UTC id": 1,
	} {
		if err := l.checkStage(raw(line)); err == nil || err.arg != want {
			t.Errorf("%s: %+v, want argument %d", line, err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	l := newList(t, Options{Dangerously: []string{"jless"}})
	for line, want := range map[string]Exec{
		"ls -la":                          {"ls", []string{"-la"}},
		"awk 1 f":                         {"gawk", []string{"--sandbox", "1", "f"}},
		"awk --sandbox 1":                 {"gawk", []string{"--sandbox", "1"}},
		"awk -- 1 f":                      {"gawk", []string{"--sandbox", "--", "1", "f"}},
		"sed -n p f":                      {"sed", []string{"--sandbox", "-n", "p", "f"}},
		"env LC_ALL=C awk 1 f":            {"env", []string{"LC_ALL=C", "gawk", "--sandbox", "1", "f"}},
		"env LC_ALL=C TZ=UTC sed p":       {"env", []string{"LC_ALL=C", "TZ=UTC", "sed", "--sandbox", "p"}},
		"env LC_ALL=C ls a=b":             {"env", []string{"LC_ALL=C", "ls", "a=b"}},
		"env -i":                          {"env", []string{"-i"}},
		"env":                             {"env", nil},
		"jless --anything -o x":           {"jless", []string{"--anything", "-o", "x"}},
		"env LC_ALL=C jless --anything x": {"env", []string{"LC_ALL=C", "jless", "--anything", "x"}},
	} {
		s := raw(line)
		got, err := l.Resolve(s.Name, texts(s.Args))
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if got.Program != want.Program || !slices.Equal(got.Args, want.Args) {
			t.Errorf("%s: %s", line, cmp.Diff(want, got))
		}
	}
	// The names that a wildcard became are judged like those typed.
	for _, argv := range [][]string{{"uniq", "a", "b"}, {"find", "-delete"}, {"zip", "-sf", "a", "b"}, {"sort", "-o", "x"}, {"gawk", "1"}, {"/bin/ls"}, {""}} {
		var refusal *Error
		if _, err := l.Resolve(argv[0], argv[1:]); !errors.As(err, &refusal) {
			t.Errorf("%q: %v", argv, err)
		}
	}
}

func TestOptionsOfTheList(t *testing.T) {
	l := newList(t, Options{})
	if got := l.Commands(); len(got) != 37 || !slices.IsSorted(got) {
		t.Errorf("%d commands: %v", len(got), got)
	}
	if got := l.Helpers(); !slices.Equal(got, []string{"bzip2", "gzip", "xz", "zstd"}) {
		t.Errorf("helpers: %v", got)
	}
	if l.Program("awk") != "gawk" || l.Program("ls") != "ls" || l.Program("gzip") != "" {
		t.Error("Program: ", l.Program("awk"), l.Program("ls"), l.Program("gzip"))
	}
	l.Commands()[0] = "changed"
	if l.Commands()[0] == "changed" {
		t.Error("the list can be changed by who reads it")
	}
	l = newList(t, Options{Only: []string{"ls", "cat"}, Dangerously: []string{"jless", "g++"}})
	if got := l.Commands(); !slices.Equal(got, []string{"cat", "g++", "jless", "ls"}) {
		t.Errorf("narrowed and widened: %v", got)
	}
	if l.Helpers() != nil {
		t.Errorf("helpers without tar: %v", l.Helpers())
	}
	if _, err := l.Resolve("sort", nil); err == nil {
		t.Error("sort ran on a list without it")
	}
	_, err := New(Options{Only: []string{"rm", "ls"}, Dangerously: []string{"cat", "-x", "a/b", "", "..", "time", "a b"}})
	for _, want := range []string{`"rm" can't be`, "printenv", `"cat" is on the list already`, `"-x" is no plain`, `"a/b" is no plain`, `"" is no plain`, `".." is no plain`, `"time" is a word`, `"a b" is no plain`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
}

// TestEveryCommandSaysWhy: the table is for reviewers.
func TestEveryCommandSaysWhy(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range table() {
		if c.why == "" || seen[c.name] || c.walk != nil && c.check != nil || c.most > 0 && c.tooMany == "" {
			t.Errorf("%s: %+v", c.name, c)
		}
		seen[c.name] = true
		if c.options == nil {
			continue
		}
		for _, r := range c.options.refused {
			for name := range strings.FieldsSeq(r.names) {
				takes := c.options.word(strings.TrimPrefix(name, "--"))
				if !strings.HasPrefix(name, "--") {
					takes = c.options.letter(name[1])
				}
				if takes != unlisted {
					t.Errorf("%s %s is allowed and refused", c.name, name)
				}
			}
		}
	}
}

// TestHelp runs --help of the programs on this machine: what it names is
// allowed here by name, or refused.
func TestHelp(t *testing.T) {
	l := newList(t, Options{})
	option := regexp.MustCompile(`(?m)(?:^|[\s\[|])(--?[a-zA-Z0-9][-a-zA-Z0-9]*)`)
	for _, c := range ruled() {
		if c.options == nil || c.name == "which" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			path, err := exec.LookPath(c.executable())
			if err != nil {
				t.Skipf("%s is not here", c.executable())
			}
			out, _ := exec.Command(path, "--help").CombinedOutput()
			var refused []string
			for _, m := range option.FindAllStringSubmatch(string(out), -1) {
				name := m[1]
				known := strings.HasPrefix(name, "--") && c.options.word(name[2:]) != unlisted ||
					len(name) == 2 && c.options.letter(name[1]) != unlisted
				if known {
					continue
				}
				args := []string{name}
				if c.name == "tar" {
					args = []string{"-tf", "a", name}
				}
				if _, err := l.Resolve(c.name, args); err == nil && len(name) == 2 {
					t.Errorf("%s passes, and the table doesn't know it", name)
				} else if err != nil && !slices.Contains(refused, name) {
					refused = append(refused, name)
				}
			}
			if len(out) < 100 {
				t.Errorf("--help says nothing: %q", out)
			}
			t.Logf("refused: %s", strings.Join(refused, " "))
		})
	}
}

// FuzzResolve: nothing panics or takes long, a refusal is an *Error that points
// at an argument, and what passed passes again and means the same.
func FuzzResolve(f *testing.F) {
	for _, c := range ruleCases {
		for _, line := range c.allowed {
			s := raw(line)
			f.Add(s.Name, strings.Join(texts(s.Args), "\x00"), uint64(0))
		}
		for _, r := range c.refused {
			s := raw(r[0])
			f.Add(s.Name, strings.Join(texts(s.Args), "\x00"), uint64(1))
		}
	}
	l := newList(f, Options{})
	f.Fuzz(func(t *testing.T, name, joined string, wild uint64) {
		args := strings.Split(joined, "\x00")
		s := Stage{Name: name}
		for i, a := range args {
			arg := Arg{Text: a}
			if wild>>(i%64)&1 == 1 {
				arg.Pattern = a + "*"
			}
			s.Args = append(s.Args, arg)
		}
		if err := l.checkStage(s); err != nil && (err.arg < -1 || err.arg >= len(args) || err.Message == "" || err.Rule == "") {
			t.Errorf("%q %q: %+v", name, args, err)
		}
		got, err := l.Resolve(name, args)
		if err != nil {
			return
		}
		if wild == 0 && l.checkStage(s) != nil {
			t.Errorf("%q %q passes only once", name, args)
		}
		if name == "env" {
			if again, err := l.Resolve(name, args); err != nil || !cmp.Equal(got, again) {
				t.Errorf("%q %q: %v, then %v, %v", name, args, got, again, err)
			}
			return
		}
		if again, err := l.Resolve(name, got.Args); err != nil || !cmp.Equal(got, again) {
			t.Errorf("%q %q: %v, then %v, %v", name, args, got, again, err)
		}
	})
}

// TestResolveIsLinear: an argv as long as Linux allows (2 MiB, a word 128 KiB)
// takes no time to speak of. The bound is for busy machines: what is not linear takes hours.
func TestResolveIsLinear(t *testing.T) {
	l := newList(t, Options{})
	many := func(word string) []string { return slices.Repeat([]string{word}, 2<<20/(len(word)+1)) }
	for _, c := range []struct {
		name string
		args []string
	}{
		{"sort", many("-n")}, {"sort", []string{"-" + strings.Repeat("n", 1<<17)}}, {"find", many("-name")}, {"find", many("(")}, {"env", many("LC_A=")}, {"tar", many("-t")},
		{"tar", []string{strings.Repeat("tf", 1<<16)}}, {"sed", many("-ep")}, {"sed", []string{strings.Repeat("s/[/", 1<<15)}}, {"sed", []string{strings.Repeat("s/[[:/", 1<<14)}},
		{"awk", []string{strings.Repeat("/[", 1<<16)}}, {"awk", []string{strings.Repeat("/[[:", 1<<15)}}, {"awk", []string{strings.Repeat(`"`, 1<<17)}}, {"xxd", many("-c")}, {"tree", many("-P")}, {"unzip", many("-l")},
	} {
		start := time.Now()
		_, err := l.Resolve(c.name, c.args)
		t.Logf("%s %.20q… %v", c.name, c.args[0], time.Since(start))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s %.20q… took %v (%v)", c.name, c.args[0], took, err)
		}
	}
}

// TestPrograms: they are what Resolve would execute, and what that executes.
func TestPrograms(t *testing.T) {
	l := newList(t, Options{Dangerously: []string{"git"}})
	for command, want := range map[string]string{
		"ls -l": "ls", "awk 1 f": "gawk", "env": "env", "env -0": "env", "env LC_ALL=C": "env", "env LC_ALL=C sort f": "env sort",
		"env TZ=UTC LANG=C awk 1 f": "env gawk", "git log": "git", "grep env f": "grep",
	} {
		p, err := l.Parse(command)
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		s := p.Steps[0].Stages[0]
		if got := strings.Join(l.Programs(s), " "); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
		args := make([]string, len(s.Args))
		for i, a := range s.Args {
			args[i] = a.Text
		}
		if e, err := l.Resolve(s.Name, args); err != nil || !strings.HasPrefix(want, e.Program) {
			t.Errorf("%s: %+v, %v", command, e, err)
		}
	}
	if got := l.Programs(Stage{Name: "sh"}); got != nil {
		t.Errorf("not on the list: %q", got)
	}
}
