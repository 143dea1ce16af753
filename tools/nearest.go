package tools

import (
	"slices"
	"strings"
)

// aliases are the arguments that a model may mean by a name, the likeliest
// first; which of them there is depends on the tool.
func aliases(name string) []string {
	switch name {
	case "script", "source", "program", "text":
		return []string{"code", "command"}
	case "python":
		return []string{"code"}
	case "command", "cmd", "cli", "shell", "bash", "code", "argv", "line", "command_line":
		return []string{"command", "code"}
	case "timeout", "timeout_ms", "time_limit", "max_time":
		return []string{"timeout_s"}
	case "args", "arguments":
		return []string{"inputs", "command"}
	case "variables", "params", "data":
		return []string{"inputs"}
	case "session", "kernel_id", "id":
		return []string{"session_id"}
	case "end", "terminate", "delete", "kill":
		return []string{"close"}
	}
	return nil
}

// nearest is the known name that was probably meant; "" if none is close.
func nearest(name string, known []string) string {
	lower := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	for _, meant := range aliases(lower) {
		if slices.Contains(known, meant) {
			return meant
		}
	}
	best, least := "", 3 // two typing errors at most
	for _, k := range known {
		if strings.ReplaceAll(k, "_", "") == strings.ReplaceAll(lower, "_", "") {
			return k
		}
		if d := distance(lower, k); d < least && d < len(k)/2 {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short names, in bytes.
func distance(a, b string) int {
	if len(a) > 2*len(b) {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
