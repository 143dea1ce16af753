package allowlist

// Pipeline is a command line that has been read and may run. It is a plain
// value, and travels as JSON; whoever runs it checks each argv again with
// [List.Resolve], after wildcards have become names.
type Pipeline struct {
	Steps []Step // joined by &&: each runs if the last stage of the one before it exited with 0
}

// Step is one or more commands joined by |.
type Step struct {
	Stages []Stage
}

// Stage is one command.
type Stage struct {
	Name string   // as it was typed, and as the list knows it
	Env  []string // NAME=VALUE put before the command: LC_*, LANG and TZ alone
	Args []Arg    // what follows the name
}

// Arg is one argument, after the removal of quotes and the few expansions.
type Arg struct {
	Text    string // as the program gets it, unless it is a pattern that matches something
	Pattern string // of file names: as bash's, with \ before what was quoted; "" = no wildcard
}

// What the few permitted expansions give. They are facts of the wall in which
// commands run, so that reading a command line needs nothing of the machine.
const (
	Home = "/tmp"       // ~ and $HOME
	Dir  = "/workspace" // $PWD
	User = "sandbox"    // $USER
)
