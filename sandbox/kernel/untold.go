package kernel

import (
	"strings"

	"mcp-sandbox/sandbox"
)

// Fresh ends the note of a call before which an interpreter was lost with its variables.
const Fresh = "this call ran in a fresh one, without the variables of earlier calls"

// Untold is what a cancelled call's result says of an interpreter that had to be
// ended, for a session's next result: whoever cancels does not read theirs. It is
// "" where nothing was lost.
func Untold(cancelled sandbox.Result) string {
	const ended = "the interpreter had to be ended when an earlier call was cancelled: "
	switch cancelled.State {
	case sandbox.StateLost:
		return ended + Fresh
	case sandbox.StateRestored:
		return ended + strings.Join(append([]string{"what that call changed in variables was undone"}, cancelled.Notes...), "; ")
	}
	return ""
}

// Tell adds to a result, first of its notes, that an interpreter was lost before its call.
func Tell(res *sandbox.Result, lost string) {
	res.Notes = append([]string{lost}, res.Notes...)
	switch res.State {
	case sandbox.StateNew:
		res.State = sandbox.StateLost
	case sandbox.StateKept: // what is kept was restored, and nobody was told
		res.State = sandbox.StateRestored
	}
}
