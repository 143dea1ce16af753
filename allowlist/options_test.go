package allowlist

import (
	"slices"
	"strings"
	"testing"
)

// TestAmong: a word is among others if it is one of them, and not a part of one, nor
// two of them.
func TestAmong(t *testing.T) {
	for _, list := range []string{findAlone, findValued, xxdAlone, xxdValue, "-a", " -a ", "", "-aa -a", "-a-a -a", "a b  c"} {
		words := strings.Fields(list)
		for _, w := range words {
			for _, word := range []string{w, w[1:], w[:len(w)-1], w + "x", "x" + w, w + " ", " " + w, w + " " + w, w + w, w + "\t", w + "\n" + w} {
				if got, want := among(list, word), slices.Contains(words, word); got != want {
					t.Errorf("%q among %q: %v", word, list, got)
				}
			}
		}
		if among(list, "") || among(list, " ") || among(list, list+" ") || among(list, strings.Join(words, " ")+" x") {
			t.Errorf("no word is among %q", list)
		}
	}
}
