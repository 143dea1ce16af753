package allowlist

import "strings"

// sequences are refused by Options.Strict wherever they stand. A line that
// holds none of them can't redirect, substitute or separate, whoever reads it.
var sequences = []string{"||", ";", "`", "$(", ">", "<"}

// literal refuses the first of the sequences. It asks for no other spelling
// with the same meaning, because a quoted one is refused just the same.
func literal(src string) *Error {
	first, found := len(src), ""
	for _, seq := range sequences {
		if at := strings.Index(src[:first], seq); at >= 0 {
			first, found = at, seq
		}
	}
	if found == "" {
		return nil
	}
	return refuse(src, first, first+len(found), "operator",
		"is refused wherever it stands, also quoted, because this server reads operators strictly; "+
			"search with other characters (. in a pattern stands for any)")
}
