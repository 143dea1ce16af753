package main

import (
	"strings"
	"testing"
)

// Colours are for a terminal alone, and nothing hangs on them.
func TestTableColours(t *testing.T) {
	d := diagnosis{Ready: true, Wall: "native", Facts: []fact{
		{"walls", "native", factActive, "holds", ""}, {"walls", "srt", factMissing, "not on PATH", "install it"},
	}}
	plain, coloured := table(d, true, false), table(d, true, true)
	if strings.Contains(plain, "\x1b") {
		t.Errorf("%q", plain)
	}
	for _, want := range []string{"\x1b[32mactive\x1b[0m ", "\x1b[31mmissing\x1b[0m", "\x1b[33m→ install it\x1b[0m", "\x1b[1;32mready\x1b[0m"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("no %q in %q", want, coloured)
		}
	}
	for _, code := range []string{"1", "1;32", "2", "31", "32", "33", "36", "0"} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+code+"m", "")
	}
	if coloured != plain {
		t.Errorf("with colours another text:\n%s\n%s", plain, coloured)
	}
}

func TestListed(t *testing.T) {
	all := strings.Fields(strings.Repeat("numpy-2.4.6 ", 20))
	got := listed(all)
	for l := range strings.Lines(got) {
		if len(strings.TrimSpace(l)) > 82 {
			t.Errorf("%d letters: %q", len(l), l)
		}
	}
	if strings.Join(strings.Fields(strings.ReplaceAll(got, ",", " ")), " ") != strings.Join(all, " ") {
		t.Errorf("%q", got)
	}
}
