package allowlist

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse holds whatever is accepted to what the package promises.
func FuzzParse(f *testing.F) {
	for _, j := range corpus(f) {
		f.Add(j.Command)
	}
	strict, err := New(Options{Strict: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, command string) {
		p, err := Parse(command)
		again, errAgain := Parse(command)
		if !cmp.Equal(p, again) || !cmp.Equal(err, errAgain, cmp.AllowUnexported(Error{})) {
			t.Fatalf("read twice: %v, %v", err, errAgain)
		}
		literal, errLiteral := strict.Parse(command)
		if err != nil {
			checkRefusal(t, command, err)
			if errLiteral == nil {
				t.Errorf("%q: the strict reading accepts more", command)
			}
			return
		}
		if errLiteral == nil {
			if !cmp.Equal(p, literal) {
				t.Errorf("%q: the strict reading reads otherwise", command)
			}
			if strings.ContainsAny(command, ";`<>") || strings.Contains(command, "||") || strings.Contains(command, "$(") {
				t.Errorf("%q: the strict reading accepts it", command)
			}
		} else {
			checkRefusal(t, command, errLiteral)
		}
		checkPipeline(t, command, p)
	})
}

// checkPipeline holds p to what whoever runs it relies on.
func checkPipeline(t *testing.T, command string, p *Pipeline) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range whole().Commands() {
		known[name] = true
	}
	if len(p.Steps) == 0 {
		t.Errorf("%q: no steps", command)
	}
	for _, step := range p.Steps {
		if len(step.Stages) == 0 {
			t.Errorf("%q: a step without stages", command)
		}
		for _, stage := range step.Stages {
			if !known[stage.Name] {
				t.Errorf("%q: runs %q", command, stage.Name)
			}
			for _, env := range stage.Env {
				if name, value, _ := strings.Cut(env, "="); !mayBeSet(name) || !plainValue(value) {
					t.Errorf("%q: sets %q", command, env)
				}
			}
			for _, arg := range stage.Args {
				if strings.ContainsRune(arg.Text, 0) {
					t.Errorf("%q: NUL in %q", command, arg.Text)
				}
				if arg.Pattern != "" && (!strings.ContainsAny(arg.Pattern, "*?[") || !cmp.Equal(unescape(arg.Pattern), arg.Text)) {
					t.Errorf("%q: pattern %q of %q", command, arg.Pattern, arg.Text)
				}
			}
		}
	}
	requote(t, command, p)
}

func unescape(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// requote writes p again, every word without a pattern in single quotes, and
// reads that: the way from text to arguments must lead back to where it came.
func requote(t *testing.T, command string, p *Pipeline) {
	t.Helper()
	var b strings.Builder
	for i, step := range p.Steps {
		if i > 0 {
			b.WriteString(" && ")
		}
		for j, stage := range step.Stages {
			if j > 0 {
				b.WriteString(" | ")
			}
			for _, env := range stage.Env {
				name, value, _ := strings.Cut(env, "=")
				b.WriteString(name + "='" + value + "' ")
			}
			b.WriteString(stage.Name)
			for _, arg := range stage.Args {
				if arg.Pattern != "" || strings.ContainsAny(arg.Text, "\a\b\x1b\f\r\v") {
					return
				}
				b.WriteString(" '" + strings.ReplaceAll(arg.Text, "'", `'\''`) + "'")
			}
		}
	}
	if b.Len() > maxLine {
		return
	}
	again, err := Parse(b.String())
	if err != nil {
		t.Errorf("%q, written again as %q: %v", command, b.String(), err)
	} else if diff := cmp.Diff(p, again); diff != "" {
		t.Errorf("%q, written again as %q (-want +got):\n%s", command, b.String(), diff)
	}
}
