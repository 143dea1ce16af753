package tools

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
)

// halfCharacter returns the first \u escape in a JSON string that is half of a
// surrogate pair without the other half, "" if there is none. encoding/json
// would make it U+FFFD in silence, and other text would run than was sent.
func halfCharacter(raw json.RawMessage) string {
	for i := 0; i+1 < len(raw); i += 2 {
		for raw[i] != '\\' {
			if i++; i+1 >= len(raw) {
				return ""
			}
		}
		first, ok := escaped(raw[i:])
		if !ok || !utf16.IsSurrogate(first) {
			continue
		}
		second, ok := escaped(raw[min(i+6, len(raw)):])
		if !ok || utf16.DecodeRune(first, second) == '\uFFFD' {
			return string(raw[i : i+6])
		}
		i += 10 // and the two that any escape is passed by
	}
	return ""
}

// escaped is the UTF-16 unit of the \u escape with which raw begins.
func escaped(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(unit), err == nil
}
