package srt

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
)

// oddTree has names that wildcards, quotes and shells treat in their own ways.
func oddTree(t testing.TB, dir string) {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{
		"a", "b", "a.txt", "b.txt", "c.txt", "é.txt", "文件.txt", "x y.txt", "-dash.txt", "-n", ".hidden", "]", "[a", "a]b", "back\\slash",
		"star*", "q?", "$HOME", "new\nline", "tab\there", "'quoted'", "\"double\"", "a;b", "a#b", "#c", "~", "{a,b}", "x=~", "A", "B.TXT",
		"sub/a", "sub/b.txt", "sub/.dot", "sub/-x", "sub/deep/c", "foo/bar", "-d/e", "[é]/f", "invalid\xff",
	} {
		files[name] = name
	}
	writeTree(t, dir, files)
}

// differ compares our reading of lines with bash's.
type differ struct {
	list   *allowlist.List
	oracle *bashOracle

	accepted, refused, commands, wild int
}

// newDiffer starts an oracle in a tree of files, in which it leaves this process too: globs
// are expanded here as they are behind the wall.
func newDiffer(t testing.TB, script string) (*differ, string) {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNative(testNative())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.close() })
	dir, err := os.MkdirTemp("", "cli-words-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	oddTree(t, dir)
	own(t, n, dir)
	t.Chdir(dir)
	return &differ{list: list, oracle: newBashOracle(t, n, dir, script, list.Commands())}, dir
}

// check reports every line that we accept and bash understands otherwise.
func (d *differ) check(t testing.TB, lines []string) {
	t.Helper()
	var asked []string
	var ours []*allowlist.Pipeline
	for _, line := range lines {
		if strings.ContainsRune(line, 0) {
			if _, err := d.list.Parse(line); err == nil {
				t.Errorf("%q was accepted", line)
			}
			continue
		}
		p, err := d.list.Parse(line)
		if err != nil {
			d.refused++
			continue
		}
		if len(line) < maxCall {
			asked, ours = append(asked, line), append(ours, p)
		}
	}
	for i, calls := range d.oracle.ask(t, asked...) {
		want, ok := d.expected(t, ours[i])
		if !ok {
			continue
		}
		d.accepted++
		d.commands += len(want)
		byText := func(a, b bashCall) int { return cmp.Compare(fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)) }
		slices.SortFunc(calls, byText)
		slices.SortFunc(want, byText)
		if diff := diff.Diff(calls, want); diff != "" {
			t.Errorf("%q\n(-bash +ours)\n%s", asked[i], diff)
		}
	}
}

// expected is what bash has to run for a pipeline of ours; false if that can't be told
// here, because a wildcard leads out of the tree or to names beyond a pipe's bound.
func (d *differ) expected(t testing.TB, p *allowlist.Pipeline) (all []bashCall, ok bool) {
	t.Helper()
	for _, step := range p.Steps {
		for _, stage := range step.Stages {
			call := bashCall{Name: stage.Name, Env: [3]string{"", "", "C.UTF-8"}}
			for _, v := range stage.Env {
				name, value, _ := strings.Cut(v, "=")
				if i := slices.Index([]string{"LC_ALL", "TZ", "LANG"}, name); i >= 0 {
					call.Env[i] = value
				}
			}
			for _, a := range stage.Args {
				names := []string{a.Text}
				if a.Pattern != "" {
					if a.Pattern[0] == '/' || strings.Contains(a.Pattern, "..") {
						return nil, false
					}
					d.wild++
					found, err := (&glob{}).expand(a.Pattern)
					if err != nil {
						t.Errorf("%q: %v", a.Pattern, err)
					}
					if len(found) > 0 {
						names = plainNames(found, a.Pattern)
					}
				}
				call.Args = append(call.Args, names...)
			}
			if len(strings.Join(call.Args, " "))+100 > maxCall {
				return nil, false
			}
			all = append(all, call)
		}
	}
	return all, true
}

// plainNames are matches as bash gives them: without the ./ that keeps a file from becoming
// an option.
func plainNames(found []string, pattern string) []string {
	names := slices.Clone(found)
	if !strings.HasPrefix(pattern, "./") {
		for i, name := range names {
			if strings.HasPrefix(name, "./-") {
				names[i] = name[2:]
			}
		}
		slices.Sort(names)
	}
	return names
}

// random checks made lines, 500 at a time, for as long as more says so.
func (d *differ) random(t testing.TB, seed uint64, more func() bool) {
	t.Helper()
	m := &lineMaker{rand.New(rand.NewPCG(seed, 0)), d.list.Commands()}
	for more() && !t.Failed() {
		var lines []string
		for range 500 {
			lines = append(lines, m.line())
		}
		d.check(t, lines)
	}
}

// No line that is accepted means another argv to bash, or another number of commands, and
// none redirects anything.
func TestReadsLikeBash(t *testing.T) {
	allowed, honest := corpusLines(t, "allow"), []string{}
	for _, line := range honestLines(t) {
		honest = append(honest, line.command)
	}
	d, dir := newDiffer(t, byFunctions)
	before := treeState(t, dir)
	d.check(t, allowed)
	d.check(t, honest)
	if d.accepted < 400 {
		t.Errorf("of the corpus and of honest lines only %d could be compared", d.accepted)
	}
	const made = 12_000 // some ten seconds
	d.random(t, 1, func() bool { return d.accepted+d.refused < made })
	if d.accepted < made/5 || d.refused < made/5 || d.wild < 100 {
		t.Errorf("too few lines to tell: %d accepted, %d refused, %d wildcards", d.accepted, d.refused, d.wild)
	}
	if diff := diff.Diff(before, treeState(t, dir)); diff != "" {
		t.Errorf("the tree has changed:\n%s", diff)
	}
	t.Logf("%d lines accepted, of %d commands and %d wildcards; %d refused", d.accepted, d.commands, d.wild, d.refused)
}

// The same by bash -c and programs, which are slower, so of fewer lines.
func TestReadsLikeBashAndPrograms(t *testing.T) {
	d, _ := newDiffer(t, byPrograms)
	m := &lineMaker{rand.New(rand.NewPCG(3, 0)), d.list.Commands()}
	var lines []string
	for range 400 {
		lines = append(lines, m.line())
	}
	d.check(t, lines)
	if d.accepted < 50 {
		t.Errorf("too few lines to tell: %d accepted", d.accepted)
	}
}

// The oracle is right to be believed: what is not on the list, and what only a shell would
// run, is told too.
func TestBashOracleTells(t *testing.T) {
	d, _ := newDiffer(t, byFunctions)
	for line, want := range map[string]string{
		`echo a "b c" | wc`:         `[{"echo" ["" "" "C.UTF-8"] ["a" "b c"]} {"wc" ["" "" "C.UTF-8"] []}]`,
		"echo ok #\\\nid":           `[{"echo" ["" "" "C.UTF-8"] ["ok"]} {"id" ["" "" "C.UTF-8"] []}]`,
		"echo \"$\\\n(id)\"":        `[{"echo" ["" "" "C.UTF-8"] [""]} {"id" ["" "" "C.UTF-8"] []}]`,
		"TZ=x exec a; printf b; :":  `[{":" ["" "" "C.UTF-8"] []} {"exec" ["" "x" "C.UTF-8"] ["a"]} {"printf" ["" "" "C.UTF-8"] ["b"]}]`,
		"echo *.txt | LC_ALL=C cat": `[{"cat" ["C" "" "C.UTF-8"] []} {"echo" ["" "" "C.UTF-8"] ["-dash.txt" "a.txt" "b.txt" "c.txt" "x y.txt" "é.txt" "文件.txt"]}]`,
		"eval ls; read x; enable y": `[{"enable" ["" "" "C.UTF-8"] ["y"]} {"eval" ["" "" "C.UTF-8"] ["ls"]} {"read" ["" "" "C.UTF-8"] ["x"]}]`,
	} {
		calls := d.oracle.ask(t, line)[0]
		slices.SortFunc(calls, func(a, b bashCall) int { return cmp.Compare(a.Name, b.Name) })
		if got := fmt.Sprintf("%q", calls); got != want {
			t.Errorf("%q\ntold %s\nwant %s", line, got, want)
		}
	}
}

// FuzzReadsLikeBash looks for such lines where no generator does.
func FuzzReadsLikeBash(f *testing.F) {
	d, _ := newDiffer(f, byFunctions)
	m := &lineMaker{rand.New(rand.NewPCG(2, 0)), d.list.Commands()}
	for range 100 {
		f.Add(m.line())
	}
	f.Fuzz(func(t *testing.T, line string) { d.check(t, []string{line}) })
}

// The same for half an hour, by `make prove`.
func TestProveReadsLikeBash(t *testing.T) {
	if !proving() {
		t.Skip("runs by make prove")
	}
	const during = 30 * time.Minute
	d, dir := newDiffer(t, byFunctions)
	before := treeState(t, dir)
	end := time.Now().Add(during)
	d.random(t, uint64(end.UnixNano()), func() bool { return time.Now().Before(end) })
	if diff := diff.Diff(before, treeState(t, dir)); diff != "" {
		t.Errorf("the tree has changed:\n%s", diff)
	}
	if !t.Failed() {
		fmt.Printf("PROOF: commands, read by us and by bash: %d random lines accepted, of %d commands and %d wildcards, and %d refused in %v; no argv and no number of commands differed, no file changed\n",
			d.accepted, d.commands, d.wild, d.refused, during)
	}
}
