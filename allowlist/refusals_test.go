package allowlist

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/refusals.txt anew")

// refusals are the lines whose sentences people and models will read most.
// testdata/refusals.txt has them all: read it after a change as they would.
var refusals = []string{
	"", " \n", "# nothing",
	"ls > out.txt", "ls >> out", "ls 2>/dev/null", "ls 2> /dev/null | wc", "ls nope 2>&1 | head", "ls &> out", "ls > /dev/null 2>&1", "ls >&2", "ls >| f",
	"cat < f", "tr a b < f", "cat f | tr -d '\\r' < g", "awk ‘{print $1}’ f", "cat <<EOF\nx\nEOF", "cat <<< x", "cat <(ls)", "ls >(cat)", "cat <> f", "2>x ls",
	"ls; pwd", "ls ;", "ls;;", "ls & pwd", "ls &", "ls || true", "ls || echo none", "ls |& wc", "(ls)", "ls)", "ls () { pwd; }", "((1 + 1))",
	"ls && ", "ls |", "| ls", "&& ls", "ls | | wc", "ls\n| wc", "ls\npwd", "ls # all\npwd",
	"echo `date`", "echo $(date)", `echo "$(date)"`, "echo $((1 + 1))", "echo $[1]", "echo $X", `echo "$X"`, "echo ${X:-1}", "echo ${HOME%x}", "echo $?", `awk "{print $1}" f`, "echo ${HOME",
	"ls {a,b}.txt", "echo {1..9}", "ls ~root", "ls x=~", "ls !(a)", "ls *(a|b)",
	"echo 'a", `echo "a`, "echo $'a", `echo $'\x41'`, `echo $"a"`, `ls \`, "ls a\\\nb", "ls a\\\\\\\n b", "ls |\\\n| wc", "ls # a \\\n-l", "# a\\\\\nls",
	"ls\r\n", "ls \x00", "ls \x1b[0m", "ls \u0085", "ls \xff", "ls " + strings.Repeat("a", maxLine),
	"ls" + strings.Repeat(" a", maxWords), "ls" + strings.Repeat("|wc", maxCommands),
	"LS_COLORS=x ls", "PATH=. ls", "LC_ALL+=C ls", "LC_ALL=C", "TZ=/etc/passwd date", "TZ=$(x) date", "LC_ALL=C python3 x",
	"python3 -c 'print(1)'", "cd src && ls", "less f", "rg x", "ll", "git log", "rm -rf x", "xargs ls", "bash -c ls", "sudo ls", "gawk 1 f", "test -f x", "[ -f x ]", "for f in *; do cat $f; done", "if ls; then pwd; fi", "{ ls; }", "! ls", "time ls", "export A=1", "true",
	"/bin/ls", "./run.sh", "'ls'", `l\s`, "$HOME", "l*", "ｌｓ", "ls\u200b", "gerp x f", "tial f", "LS", "sha265sum f", "nosuchcommand", "ls | foo",
}

func TestRefusals(t *testing.T) {
	var b strings.Builder
	for _, command := range refusals {
		p, err := Parse(command)
		if err == nil {
			t.Errorf("%q: accepted: %v", command, p)
			continue
		}
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Fatalf("%q: %T", command, err)
		}
		checkRefusal(t, command, err)
		if refusal.Offset >= 0 && !strings.HasPrefix(command[refusal.Offset:], strings.TrimSuffix(refusal.Found, "…")) && refusal.Rule != "limit" && refusal.Found != "\uFFFD" {
			t.Errorf("%q: at %d is no %q", command, refusal.Offset, refusal.Found)
		}
		b.WriteString(quote(shorten(command)) + "\n\t" + refusal.Rule + ": " + strings.ReplaceAll(err.Error(), whole().names(), "(the list)") + "\n")
	}
	const golden = "testdata/refusals.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("sentences have changed; look, and run with -update (-want +got):\n%s", diff)
	}
}

// TestStrictOffersNoQuotes because quoting would not help.
func TestStrictOffersNoQuotes(t *testing.T) {
	strict, err := New(Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ls; pwd", "ls || pwd", "ls > f", "cat < f", "echo $(date)", "echo `date`", "grep 'a;b' f", "awk '$1 > 2' f", "grep '`' f", "echo '$(x)'", "ls # ; x"} {
		_, err := strict.Parse(command)
		if err == nil {
			t.Errorf("%q: accepted", command)
		} else if strings.Contains(err.Error(), "quote it") {
			t.Errorf("%q: %v", command, err)
		}
	}
	for _, command := range []string{"ls | wc && pwd", "grep -E 'a|b' f", "echo '&' \"$HOME\"", "awk '{print $1}' f"} {
		if _, err := strict.Parse(command); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}
