package srt

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mcp-sandbox/sandbox/kernel"
)

// maxFatal is how many names may end an interpreter, one after the other, until all that
// is saved with them is given up: each costs the start of another.
const maxFatal = 5

// tries are what came of earlier tries to save the same variables, or to restore the same
// saved ones. The session's turn guards it. Who restarts the server tries anew.
type tries struct {
	doing string // saving; "" = loading
	bad   []badName
}

// badName is one that cost a try.
type badName struct {
	at     *kernel.NameError
	deaths int           // of interpreters that were at it
	limit  time.Duration // the largest that it was too slow for; 0 = none
}

func (t *tries) name(at *kernel.NameError) *badName {
	i := slices.IndexFunc(t.bad, func(b badName) bool { return b.at.Index == at.Index })
	if i < 0 {
		i = len(t.bad)
		t.bad = append(t.bad, badName{})
	}
	t.bad[i].at = at
	return &t.bad[i]
}

// ended takes note that a name ended the interpreter that was at it, and reports
// whether another try is worth it. The first SIGKILL may have come from elsewhere: the
// name gets another chance.
func (t *tries) ended(at *kernel.NameError) bool {
	b := t.name(at)
	b.deaths++
	if !at.Killed {
		b.deaths++
	}
	return len(t.fatal()) <= maxFatal && b.deaths <= 2*maxFatal
}

// fatal are the names that end an interpreter.
func (t *tries) fatal() []string {
	var names []string
	for _, b := range t.bad {
		if b.deaths > 1 {
			names = append(names, b.at.Name)
		}
	}
	return names
}

// late takes note of the name that took longest until a limit was reached, and reports
// whether it alone is to blame.
func (t *tries) late(at *kernel.NameError, limit time.Duration) bool {
	if at.Index < 0 || at.Took < limit/2 {
		return false
	}
	b := t.name(at)
	b.limit = max(b.limit, limit)
	return true
}

// without are the names that a try with a limit leaves out.
func (t *tries) without(limit time.Duration) []kernel.Skip {
	var skips []kernel.Skip
	doing := cmp.Or(t.doing, "loading")
	for _, b := range t.bad {
		skip := kernel.Skip{Index: b.at.Index, Name: b.at.Name}
		switch {
		case b.deaths > 1:
			skip.Reason = doing + " it ended the interpreter"
		case b.limit >= limit:
			skip.Reason = fmt.Sprintf("%s it took more than half of a time limit of %v", doing, b.limit)
		default:
			continue
		}
		skips = append(skips, skip)
	}
	return skips
}
