package allowlist

import (
	"strings"
	"testing"
)

// Typographic quotes are text, and whoever meant quotes hears of it.
func TestTypographic(t *testing.T) {
	for _, command := range []string{
		"grep “foo bar” f", "awk ‘{print $1}’ f", "ls | grep ”x”", "“ls”", "jq .a f|grep ‘x", "grep --include=“*.go” x .", `grep 'a' “b”`,
	} {
		if Typographic(command) == "" {
			t.Errorf("%s: no hint", command)
		}
	}
	for _, command := range []string{
		"", "grep foo f", `grep "“foo”" f`, "grep '“foo”' f", `grep \“foo f`, "grep don’t f", `echo "a “b” c" > f`, `echo "a \" “b” c" > f`, `echo 'a “`, `echo "a “`, `ls \`,
	} {
		if hint := Typographic(command); hint != "" {
			t.Errorf("%s: %s", command, hint)
		}
	}
	if p, err := Parse("grep “foo bar” f"); err != nil || p.Steps[0].Stages[0].Args[0].Text != "“foo" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := Validate("awk ‘{print $1}’ f"); err == nil || !strings.Contains(err.Error(), "; “ ” ‘ ’ quote nothing") {
		t.Error(err)
	}
}
