package allowlist

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// judgment is a line of testdata/corpus.jsonl.
type judgment struct {
	Command     string
	Want        string // allow or deny, with operators read as a shell reads them
	Kind        string // what it tries
	Why         string
	Reading     string // any; token: the strict reading differs; silent: our choice
	WantLiteral string `json:"want_literal"` // if not as Want, with Options.Strict
}

// corpus reads the judgments, and refuses any that could not fail.
func corpus(t testing.TB) []judgment {
	t.Helper()
	raw, err := os.ReadFile("testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []judgment
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var j judgment
		if err := json.Unmarshal(lines.Bytes(), &j); err != nil {
			t.Fatalf("line %d: %v", len(all)+1, err)
		}
		for _, want := range []string{j.Want, j.literal()} {
			if want != "allow" && want != "deny" {
				t.Fatalf("line %d: want %q", len(all)+1, want)
			}
		}
		all = append(all, j)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) < 750 {
		t.Fatalf("%d judgments: some are missing", len(all))
	}
	return all
}

func (j judgment) literal() string {
	if j.WantLiteral == "" {
		return j.Want
	}
	return j.WantLiteral
}

func verdict(err error) string {
	if err == nil {
		return "allow"
	}
	return "deny"
}

func TestCorpus(t *testing.T) {
	strict, err := New(Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range corpus(t) {
		for _, reading := range []struct {
			name  string
			parse func(string) (*Pipeline, error)
			want  string
		}{
			{"token", Parse, j.Want},
			{"literal", strict.Parse, j.literal()},
		} {
			p, err := reading.parse(j.Command)
			if got := verdict(err); got != reading.want {
				t.Errorf("%s reading: %q (%s: %s): %s, want %s: %v", reading.name, j.Command, j.Kind, j.Why, got, reading.want, err)
			}
			if (p == nil) != (err != nil) {
				t.Errorf("%q: pipeline %v with error %v", j.Command, p, err)
			}
			if err != nil {
				checkRefusal(t, j.Command, err)
			}
		}
	}
}

// checkRefusal holds every refusal to what is promised of it.
func checkRefusal(t *testing.T, command string, err error) {
	t.Helper()
	var refusal *Error
	switch {
	case !errors.As(err, &refusal):
		t.Errorf("%q: %T: %v", command, err, err)
	case refusal.Rule == "" || refusal.Message == "" || refusal.Rule == "syntax":
		t.Errorf("%q: a refusal without a reason: %+v", command, refusal)
	case refusal.Offset < -1 || refusal.Offset > len(command):
		t.Errorf("%q: offset %d: %v", command, refusal.Offset, err)
	case len(refusal.Message) > 700 || strings.ContainsAny(refusal.Message, "\n\r\x00"):
		t.Errorf("%q: not a sentence: %q", command, refusal.Message)
	case len(refusal.Found) > maxFound+len("…"):
		t.Errorf("%q: found is not shortened: %q", command, refusal.Found)
	}
}
