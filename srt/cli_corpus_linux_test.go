package srt

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// corpusCase is a case of the allowlist's corpus.
type corpusCase struct {
	Command, Want, Kind, Why string
}

func corpus(t testing.TB) []corpusCase {
	t.Helper()
	text, err := os.ReadFile("../allowlist/testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []corpusCase
	for line := range strings.Lines(string(text)) {
		var c corpusCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// corpusLines are the commands that the corpus wants allowed, or denied, of the kinds named;
// of all kinds if none is.
func corpusLines(t testing.TB, want string, kinds ...string) []string {
	t.Helper()
	var lines []string
	for _, c := range corpus(t) {
		wanted := len(kinds) == 0
		for _, k := range kinds {
			wanted = wanted || c.Kind == k
		}
		if c.Want == want && wanted {
			lines = append(lines, c.Command)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("the corpus has nothing of %s, %q", want, kinds)
	}
	return lines
}
