package allowlist

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// words makes a stage of words as the program gets them.
func stage(name string, words ...string) Stage {
	s := Stage{Name: name, Args: []Arg{}}
	for _, w := range words {
		s.Args = append(s.Args, Arg{Text: w})
	}
	return s
}

func steps(groups ...[]Stage) *Pipeline {
	p := &Pipeline{}
	for _, g := range groups {
		p.Steps = append(p.Steps, Step{Stages: g})
	}
	return p
}

func TestParseShape(t *testing.T) {
	sorted := stage("sort", "f")
	sorted.Env = []string{"LC_ALL=C", "TZ=Europe/Berlin"}
	for command, want := range map[string]*Pipeline{
		"ls":                                 steps([]Stage{stage("ls")}),
		"ls | wc -l":                         steps([]Stage{stage("ls"), stage("wc", "-l")}),
		"ls && pwd":                          steps([]Stage{stage("ls")}, []Stage{stage("pwd")}),
		"ls|cat|wc&&pwd && cat f |wc":        steps([]Stage{stage("ls"), stage("cat"), stage("wc")}, []Stage{stage("pwd")}, []Stage{stage("cat", "f"), stage("wc")}),
		"\n\t ls  \t-l\n\n":                  steps([]Stage{stage("ls", "-l")}),
		"ls |\n\n wc &&\npwd":                steps([]Stage{stage("ls"), stage("wc")}, []Stage{stage("pwd")}),
		"ls | # all\n # of\nwc":              steps([]Stage{stage("ls"), stage("wc")}),
		"# first\nls # second\n#third":       steps([]Stage{stage("ls")}),
		"ls \\\n  -l \\\n-a\\\n b":           steps([]Stage{stage("ls", "-l", "-a", "b")}),
		"ls | \\\nwc \\\n&& pwd \\\n":        steps([]Stage{stage("ls"), stage("wc")}, []Stage{stage("pwd")}),
		"# all\nls \\\n  -l # long\n":        steps([]Stage{stage("ls", "-l")}),
		"ls \\\n# none":                      steps([]Stage{stage("ls")}),
		"ls \\\n\\\n-l\\\n\t#":               steps([]Stage{stage("ls", "-l")}),
		"ls '#' a#b \\# \"#\"":               steps([]Stage{stage("ls", "#", "a#b", "#", "#")}),
		"LC_ALL=C TZ='Europe/Berlin' sort f": steps([]Stage{sorted}),
		"ls A=1 LC_ALL=C":                    steps([]Stage{stage("ls", "A=1", "LC_ALL=C")}),
	} {
		got, err := Parse(command)
		if err != nil {
			t.Errorf("%q: %v", command, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", command, diff)
		}
	}
}

// TestParseWord has one word each, and what bash 5.2 makes of it.
func TestParseWord(t *testing.T) {
	for word, want := range map[string]Arg{
		`a`:                 {Text: `a`},
		`''`:                {Text: ``},
		`""`:                {Text: ``},
		`a'b c'"d e"f`:      {Text: `ab cd ef`},
		`a\ b\"c\'d\\e`:     {Text: `a b"c'd\e`},
		`\e\x\ec`:           {Text: `exec`},
		`'a\nb\'`:           {Text: `a\nb\`},
		`"a\nb\\\"\$"`:      {Text: `a\nb\"$`},
		"\"\\`\"":           {Text: "`"},
		`$'\t\n\\\'\"\e\?'`: {Text: "\t\n\\'\"\x1b?"},
		`$'\a\b\E\f\r\v'`:   {Text: "\a\b\x1b\f\r\v"},
		`a$'\t'b`:           {Text: "a\tb"},
		`"$'\t'"`:           {Text: `$'\t'`},
		"'a\nb'":            {Text: "a\nb"},
		"'a\\\nb'":          {Text: "a\\\nb"},
		`$HOME`:             {Text: Home},
		`"${HOME}/x"`:       {Text: Home + `/x`},
		`$PWD/$USER.txt`:    {Text: Dir + `/` + User + `.txt`},
		`'$HOME'`:           {Text: `$HOME`},
		`\$HOME`:            {Text: `$HOME`},
		`"\$HOME"`:          {Text: `$HOME`},
		`a$`:                {Text: `a$`},
		`"a$"`:              {Text: `a$`},
		`$/$.$,$%$:$=`:      {Text: `$/$.$,$%$:$=`},
		`~`:                 {Text: Home},
		`~/x`:               {Text: Home + `/x`},
		`a~`:                {Text: `a~`},
		`'~'`:               {Text: `~`},
		`\~/x`:              {Text: `~/x`},
		`--file=~/x`:        {Text: `--file=~/x`},
		`x='~'`:             {Text: `x=~`},
		`{}`:                {Text: `{}`},
		`{a}`:               {Text: `{a}`},
		`{a,b`:              {Text: `{a,b`},
		`a,b}`:              {Text: `a,b}`},
		`{a\,b}`:            {Text: `{a,b}`},
		`{'a,b'}`:           {Text: `{a,b}`},
		`'{a,b}'`:           {Text: `{a,b}`},
		`!`:                 {Text: `!`},
		`]`:                 {Text: `]`},
		`a[b`:               {Text: `a[b`},
		`a]b[`:              {Text: `a]b[`},
		`'*'`:               {Text: `*`},
		`\*`:                {Text: `*`},
		`"*"'?'\[a\]`:       {Text: `*?[a]`},
		`*`:                 {Text: `*`, Pattern: `*`},
		`*.go`:              {Text: `*.go`, Pattern: `*.go`},
		`a?`:                {Text: `a?`, Pattern: `a?`},
		`[a-c]*`:            {Text: `[a-c]*`, Pattern: `[a-c]*`},
		`[!a]`:              {Text: `[!a]`, Pattern: `[!a]`},
		`[a'-'c]`:           {Text: `[a-c]`, Pattern: `[a\-c]`},
		`['!'a]`:            {Text: `[!a]`, Pattern: `[\!a]`},
		`['^'a]`:            {Text: `[^a]`, Pattern: `[\^a]`},
		`[[":"alpha:]]`:     {Text: `[[:alpha:]]`, Pattern: `[[\:alpha:]]`},
		`"*"*`:              {Text: `**`, Pattern: `\**`},
		`\**`:               {Text: `**`, Pattern: `\**`},
		`'\'*`:              {Text: `\*`, Pattern: `\\*`},
		`\\*`:               {Text: `\*`, Pattern: `\\*`},
		`"a b"/*.txt`:       {Text: `a b/*.txt`, Pattern: `a b/*.txt`},
		`$HOME/*`:           {Text: Home + `/*`, Pattern: Home + `/*`},
		`~/*`:               {Text: Home + `/*`, Pattern: Home + `/*`},
		`"."*`:              {Text: `.*`, Pattern: `.*`},
		`é*`:                {Text: `é*`, Pattern: `é*`},
		`文件.txt`:            {Text: `文件.txt`},
	} {
		p, err := Parse("echo " + word)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if diff := cmp.Diff([]Arg{want}, p.Steps[0].Stages[0].Args); diff != "" {
			t.Errorf("%s (-want +got):\n%s", word, diff)
		}
	}
}

// TestFaultyArgument is where a fault lies that the rules of arguments find.
func TestFaultyArgument(t *testing.T) {
	for command, at := range map[string]string{
		`sort -o out f`:                          `-o`,
		`ls && cat f | LC_ALL=C sort -k2 -nro x`: `-nro`,
		`find . -name 'a b' "-delete"`:           `"-delete"`,
		`ls é | find . \
  -name x -exec ls {} \;`: `-exec`,
		`uniq "a" *.txt`: `*.txt`,
	} {
		_, err := Parse(command)
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Errorf("%q: %v", command, err)
			continue
		}
		if want := strings.Index(command, at); refusal.Offset != want {
			t.Errorf("%q: offset %d, want %d: %v", command, refusal.Offset, want, err)
		}
		if where := place(command, refusal.Offset); !strings.Contains(err.Error(), where) {
			t.Errorf("%q: no %q in %q", command, where, err)
		}
		checkRefusal(t, command, err)
	}
}

func TestPipelineTravels(t *testing.T) {
	p, err := Parse(`LC_ALL=C sort *.csv | grep '<a>' && echo "$HOME"`)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got := &Pipeline{}
	if err := json.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("JSON changes it (-want +got):\n%s", diff)
	}
}

// TestSecondReader leaves the scanner out: what is more than simple commands is
// refused by the parser's tree alone. It knows nothing of what parsers and
// shells read in different ways, nor of patterns that shells expand before
// files are looked at; these are the scanner's alone.
func TestSecondReader(t *testing.T) {
	refused := 0
	for _, j := range corpus(t) {
		switch j.Kind {
		case "background", "compound", "operator", "redirect", "substitution", "assignment", "unknown-command":
		default:
			continue
		}
		if j.Want != "deny" || len(j.Command) > maxLine {
			continue
		}
		refused++
		if r, err := whole().read(j.Command); err == nil {
			t.Errorf("%q: read as %v", j.Command, r.out)
		}
	}
	for _, word := range []string{`$"a"`, `$'\x41'`, `$'\101'`, `$X`, `"$X"`, `${HOME:-x}`, `${#HOME}`, `${!HOME}`, `${HOME[0]}`, `${HOME@P}`, `"${HOME^}"`, `$1`, `@(a)`, "`a`", `"$(a)"`} {
		if r, err := whole().read("echo " + word); err == nil {
			t.Errorf("%s: read as %v", word, r.out)
		}
	}
	if refused < 150 {
		t.Errorf("only %d lines tried", refused)
	}
}

// TestZeroList is the strictest: it knows no command.
func TestZeroList(t *testing.T) {
	for _, command := range []string{"ls", "ls | wc", "echo"} {
		if p, err := new(List).Parse(command); err == nil {
			t.Errorf("%q: %v", command, p)
		}
	}
}

// TestParseConcurrently is for the race detector.
func TestParseConcurrently(t *testing.T) {
	all := corpus(t)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for k := i; k < len(all); k += 2 {
				if got := verdict(Validate(all[k].Command)); got != all[k].Want {
					t.Errorf("%q: %s", all[k].Command, got)
				}
			}
		})
	}
	group.Wait()
}

// TestParseIsQuick gives what has made parsers slow or overflow, at the greatest
// length that is read and far beyond.
func TestParseIsQuick(t *testing.T) {
	for _, piece := range []string{
		"\x00", "\xff", "\r", "a", " ", "\n", "\\\n", "\\", "'", `"`, "`", "$", "$(", "$((", "${x:-", `"${x:-"`, "(", "((", "{", "{a,", "{a,b}",
		"[", "[[", "*", "*(", "~", "a=~", "a=", "a[", "x=[", "#", "# \n", "!", "! ", "|", "ls|", "ls &&", "&", ";", "<<a\n", ">(", "$'", `$'\`, "'a' ",
		"if ", "case x in ", "a() ", "é", "\u200b", "\U0010ffff",
	} {
		for _, prefix := range []string{"", "ls ", "echo \"", "LC_ALL=", "ls | "} {
			for _, size := range []int{maxLine, 1 << 20} {
				command := prefix + strings.Repeat(piece, size/len(piece))
				if size == maxLine {
					command = command[:min(len(command), maxLine)]
				}
				took, err := quickest(command)
				if took > 50*time.Millisecond {
					t.Errorf("%q and %d bytes of %q: %v", prefix, size, piece, took)
				}
				if err != nil {
					checkRefusal(t, command, err)
				} else if size > maxLine {
					t.Errorf("%q and %d bytes of %q: accepted", prefix, size, piece)
				}
			}
		}
	}
}

// quickest tries again what took long, because others use the machine too.
func quickest(command string) (took time.Duration, err error) {
	for try := range 20 {
		start := time.Now()
		_, err = Parse(command)
		if t := time.Since(start); try == 0 || t < took {
			took = t
		}
		if took < 10*time.Millisecond {
			break
		}
	}
	return took, err
}

// TestLength is the limit, to the byte.
func TestLength(t *testing.T) {
	longest := "ls " + strings.Repeat("a", maxLine-len("ls "))
	if err := Validate(longest); err != nil {
		t.Error(err)
	}
	if err := Validate(longest + "a"); err == nil {
		t.Error("a longer command is accepted")
	}
}

func BenchmarkValidate(b *testing.B) {
	for name, command := range map[string]string{
		"ls":       "ls -la",
		"grep":     `grep -rn --include='*.go' "func main" . | head -20`,
		"find":     `find . -type f -name '*.csv' -size +10k | sort | head -n 5 && pwd`,
		"awk":      `LC_ALL=C sort -t, -k2 data.csv | awk -F, '$3 > 10 {n[$1]++} END {for (k in n) print k, n[k]}' | sort -rn -k2 | head`,
		"patterns": `cat *.md "$HOME"/notes/[a-c]*.txt | tr -s ' ' '\n' | sort | uniq -c`,
		"refused":  `find . -name x 2>/dev/null | head`,
	} {
		b.Run(name, func(b *testing.B) {
			if err := Validate(command); (err != nil) != (name == "refused") {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				Validate(command)
			}
		})
	}
}
