package externals

import (
	"strings"

	"mcp-sandbox/sandbox"
)

// Flat is a name as Python can write it: what is no letter, digit or underscore
// becomes an underscore, an n is put before a digit, and an underscore after a keyword.
func Flat(name string) string {
	flat := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
	if flat == "" || '0' <= flat[0] && flat[0] <= '9' {
		flat = "n" + flat
	}
	for _, k := range keywords {
		if flat == k {
			return flat + "_"
		}
	}
	return flat
}

// keywords are those of Python 3.9 to 3.14.
var keywords = strings.Fields(`False None True and as assert async await break class continue def del elif else except
	finally for from global if import in is lambda nonlocal not or pass raise return try while with yield`)

// matches reports whether a name fits a pattern, in which * stands for any text
// and ? for one character.
func matches(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, back := -1, 0
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, back = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i, j = i+1, j+1
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

// nearest suggests what a name that is not there was meant to be; "" = nobody knows.
func nearest(name string, tools []sandbox.ExternalTool) string {
	var same []string
	for _, t := range tools {
		if strings.EqualFold(Flat(t.Name), Flat(name)) || len(name) > 2 && strings.Contains(Flat(t.Name), Flat(name)) {
			same = append(same, t.Name)
		}
	}
	if len(same) == 0 || len(same) > 5 {
		return ""
	}
	return "; did you mean " + strings.Join(same, ", ") + "?"
}
