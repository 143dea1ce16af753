package sandbox

import "time"

// Record is what is put down of a call that has ended: who ran what, and how it
// ended, and which tools outside it called. Nothing of what went in besides, or came
// out, is in it.
type Record struct {
	Time      time.Time // when the call came
	Took      time.Duration
	Principal string
	Session   string // "" = the call came to none
	Tool      string
	Source    string // the code, or the command line, as far as it was one; "" = none
	Status    Status
	ExitCode  int
	Calls     []Call // as in the Result
}
