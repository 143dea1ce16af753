package srt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// treeOfNames makes a tree with all that names can be, and enters it.
func treeOfNames(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"a", "b", "ab", "abc", "A", "B", "a-b", "-dash", "--force", "a b", "a\nb", "[x]", "a]", "a[b", "é", "ä.txt", "日本", "a.txt", "b.txt",
		"a\\b", "*", "?", "!", "^", "x\xffy", "10", "9", ".hidden", ".h", "..x", "a.b.c", "=", "a=b", "~", "_", "a_b",
		"d/a", "d/b.txt", "d/.h", "d/-x", "d/e/f", "d/e/g.txt", "d-d/a", "d-d/f", "-d/a", ".d/a", "ö/a", "d/[x]/a", "d/\\/a",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "d", "dangling": "nowhere", "d/up": "..", "alink": "a"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil { // must hold nobody up
		t.Fatal(err)
	}
	if tb, ok := t.(interface{ Chdir(string) }); ok {
		tb.Chdir(dir)
	}
}

// bashGlobs lets bash expand each pattern.
func bashGlobs(t testing.TB, patterns []string) [][]string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash to compare with")
	}
	var script strings.Builder
	for _, p := range patterns {
		fmt.Fprintf(&script, "printf '%%s\\0' %s; printf '\\1\\0'\n", p)
	}
	cmd := exec.Command(bash, "--norc", "-s")
	cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	var one []string
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if name == "\x01" {
			all, one = append(all, one), nil
			continue
		}
		one = append(one, name)
	}
	if len(all) != len(patterns) {
		t.Fatalf("bash expanded %d of %d patterns", len(all), len(patterns))
	}
	return all
}

// compareGlobs holds our expansion of each pattern against bash's.
func compareGlobs(t *testing.T, patterns []string) {
	t.Helper()
	for i, want := range bashGlobs(t, patterns) {
		var g glob
		got, err := g.expand(patterns[i])
		if err != nil {
			t.Fatalf("%q: %v", patterns[i], err)
		}
		if len(got) == 0 {
			got = []string{unquote(patterns[i])}
		} else {
			for j, name := range want {
				if strings.HasPrefix(name, "-") { // ours alone, so that no file is an option
					want[j] = "./" + name
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: bash -, ours +\n%s", patterns[i], diff)
		}
	}
}

func TestGlobAsBash(t *testing.T) {
	treeOfNames(t)
	compareGlobs(t, []string{
		"*", "?", "a*", "*.txt", "*/", "*/*", "d/*", "./*", "../*/nothing", "**", "**/a", "*/a", "d*/?", "d//*", "*//a", "*///", "*/e//f", "*/e//f*", "*//e//f*", "d//e//*", "d//e//f", "d//[e]", "*/e//", "?//e///f", ".*", "..*", ".h*", "d/.*",
		"-*", "--*", "[ab]", "[a-c]", "[!a]", "[^a]", "[]a]*", "[!]a]", "[a-]*", "[-a]*", "[c-a]", "[[:alpha:]]", "[[:upper:]]", "[[:digit:]]*",
		"[[:nope:]]*", "[[:alpha:]", "[[:alpha:]_-]*", "[", "[*", "a[*", "*[", "*]", "[[]*", "[x", "[[=a=]]*", "[[.a.]]*", "[[.-.]]*", "[a", `\[x\]`, `\**`, `\?*`, `*\*`,
		`a\*`, `[\]]*`, `[\a]*`, `a\\*`, `d/\\/*`, `\.h*`, "é*", "?.txt", "??", "[é]*", "[à-ö]*", "x?y", "x[!a]y", "link/*", "d/up/a*", "dangling*", "*/../a*",
		"nothing*", "nothing/*", "fifo/*", "a/*", "*/e/*", "d/e/[fg]*", "*/[[]x]/*", "d/[[]x]/a", "[d]/a", "[.]h*", "?h*", "/et[c]/passw[d]", "//et[c]", "/*/passwd",
		"[a/b]*", "d[/]a*", "a[!/]b", "*=*", "~*", "[_]", "A*", "[A-Z]*", "[a-Z]*", "*a*b*", "*b", "***", "a**b", "?*?", "[[:word:]]", `[\.[:]*`, "[[:]*", "[x[:]:]*", "[a[.]*", "[[.ab.]]*", "[[.ab.]x]*", "[[.a.]-c]*", "[[=a]*", "[[==]]*", "[[..]]*",
	})
}

// Patterns of all the characters that mean something, put together by chance.
func TestGlobAsBashByChance(t *testing.T) {
	treeOfNames(t)
	pieces := []string{"a", "b", "d", "h", "x", "é", "e", "f", "-", ".", "*", "*", "?", "[", "]", "!", "^", "/", "/", "//", `\*`, `\[`, `\a`, `\.`, `\-`, `\]`, "[ab]", "[!a]", "[a-e]", "[[:alpha:]]", ":", "=", "[[:digit:]x]", "[![:upper:]]", "[[.-.]a]", "[[=a=]b]", "*.txt", "_"}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	// A class without its end means nothing by POSIX; bash reads it one way while it looks
	// for a match and another when it has found one.
	// What matches below the root is the machine's, where processes come and go.
	below := regexp.MustCompile(`^/+[^/]*/`)
	whole, unfinished := regexp.MustCompile(`\[:[a-z]*:\]|\[\..\.\]|\[=.=\]`), regexp.MustCompile(`\[[.:=]`)
	var patterns []string
	for range 4000 {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		if !unfinished.MatchString(whole.ReplaceAllString(b.String(), "")) && !below.MatchString(b.String()) {
			patterns = append(patterns, b.String())
		}
	}
	t.Logf("seed %d", seed)
	compareGlobs(t, patterns)
}

func TestGlobBounds(t *testing.T) {
	t.Chdir(t.TempDir())
	for i := range 300 {
		if err := os.WriteFile(fmt.Sprintf("%0200d", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		if err := os.MkdirAll("x/x/x/x/x", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g := glob{names: maxGlobNames - 300}
	if names, err := g.expand("0*"); err != nil || len(names) != 300 {
		t.Errorf("%d names, %v", len(names), err)
	}
	if _, err := g.expand("0*"); err == nil || !strings.Contains(err.Error(), "65536 names") {
		t.Errorf("names: %v", err)
	}
	g = glob{bytes: maxGlobBytes - 1000}
	if _, err := g.expand("0*"); err == nil || !strings.Contains(err.Error(), "2 MiB") {
		t.Errorf("bytes: %v", err)
	}
	g = glob{entries: maxGlobEntries}
	if _, err := g.expand("nothing*"); err == nil || !strings.Contains(err.Error(), "entries") {
		t.Errorf("entries: %v", err)
	}
	g = glob{stopped: func() bool { return true }}
	if _, err := g.expand("*"); !errors.Is(err, errStopped) {
		t.Errorf("stopped: %v", err)
	}
}

// A path of links that lead back to where they are is as long as its pattern; each step
// of it holds the directory's names.
func TestGlobHoldsLittle(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("d", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 4000 {
		if err := os.WriteFile(fmt.Sprintf("d/zz%0240d", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(".", "d/zz"), os.Symlink(".", "d/-a")); err != nil {
		t.Fatal(err)
	}
	var g glob
	if _, err := g.expand("d/[-z]*/" + strings.Repeat("*/", 38) + "q"); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("%v", err)
	}
	// What has been walked over is not held any more, and what was found is.
	g = glob{}
	for range 3 {
		if names, err := g.expand("*/*/nothing"); err != nil || len(names) != 0 || g.held != 0 {
			t.Fatalf("%d names, %v, %d bytes", len(names), err, g.held)
		}
	}
	if names, err := g.expand("d/zz*"); err != nil || len(names) != 4001 || g.held < 4000*240 {
		t.Errorf("%d names, %v, %d bytes", len(names), err, g.held)
	}
	var err error
	for range 20 { // stages
		g.stage()
		if _, err = g.expand("d/zz*"); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("%v", err)
	}
}

// A hostile name and a hostile pattern take no time to speak of.
func TestGlobMatchIsBounded(t *testing.T) {
	name := strings.Repeat("a", 255)
	m := compile(strings.Repeat("*a", 2000) + "b")
	if m.match(name) {
		t.Error("matches")
	}
	if !compile(strings.Repeat("*a", 100) + "*").match(name) {
		t.Error("does not match")
	}
}

func FuzzGlobCompile(f *testing.F) {
	for _, s := range []string{"*", "[a-z]", "[[:alpha:]", `\`, "[\xff-\xfe]", "[!]", "a[b\\", "[[.a.]-c]"} {
		f.Add(s, "abc")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		m := compile(pattern)
		m.match(name)
		// Every literal is itself.
		quoted := &bytes.Buffer{}
		for i := range len(name) {
			if name[i] < 0x80 {
				quoted.WriteByte('\\')
			}
			quoted.WriteByte(name[i])
		}
		if !compile(quoted.String()).match(name) {
			t.Errorf("%q does not match itself", name)
		}
		if slices.ContainsFunc(compile(quoted.String()), func(k token) bool { return k.kind != literal }) {
			t.Errorf("%q is no literal", quoted)
		}
	})
}
