package tools

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHalfCharacter(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "", `"\\"`: "", `"\n\t"`: "", `"é😀"`: "",
		`"\ud83d\ude00"`: "", `"x\ud83d\ude00y\u00e9"`: "", `"\\ud83d"`: "", `"\\\\ud83d"`: "",
		`"\ud83d"`: `\ud83d`, `"\uDE00"`: `\uDE00`, `"\ud83dx"`: `\ud83d`, `"\ud83d\n"`: `\ud83d`,
		`"\ud83d\ud83d\ude00"`: `\ud83d`, `"\ud83d\ude00\ude00"`: `\ude00`, `"\\\ud83d"`: `\ud83d`, `"\ud83d\u0041"`: `\ud83d`,
	} {
		if got := halfCharacter(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// What it lets pass, encoding/json takes without a change, and the other way round.
func FuzzHalfCharacter(f *testing.F) {
	for _, s := range []string{`"\ud83d\ude00"`, `"\ud83d"`, `"\\\ud83d"`, `"\\ud83d"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var text string
		if !utf8.ValidString(raw) || json.Unmarshal([]byte(raw), &text) != nil || raw == "null" {
			return
		}
		if strings.Contains(strings.ToLower(raw), "fffd") || strings.ContainsRune(raw, utf8.RuneError) {
			return // sent as such
		}
		if half := halfCharacter(json.RawMessage(raw)) != ""; half != strings.ContainsRune(text, utf8.RuneError) {
			t.Errorf("%q: half %v, decoded %q", raw, half, text)
		}
	})
}

func TestHalfCharactersAreRefused(t *testing.T) {
	for _, a := range []*arguments{
		newArguments(json.RawMessage(`{"code":"print('\ud83d')"}`), "code"),
		newArguments(json.RawMessage(`{"command":"echo \ud83d"}`), "command"),
	} {
		if _, ok := a.fields["code"]; ok {
			a.code()
		} else {
			a.command()
		}
		if err := a.err(); err == nil || !strings.Contains(err.Error(), `\ud83d`) {
			t.Errorf("%v", err)
		}
	}
}
