package externals

import "io"

// Command is a server to start as a child.
type Command struct {
	Path   string // a name is looked for in PATH of Env
	Args   []string
	Env    []string
	Dir    string
	Stderr io.Writer // of the child and of what it starts
}

// Starter starts children. What it starts has no other descriptor of ours, and ends
// with us, with all that it has started, also when we are killed.
type Starter func(Command) (Process, error)

// Process is a running child. It is safe for concurrent use.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	// Kill ends it and all that it has started, which it may ask to end first for
	// a moment.
	Kill()
	// Wait returns when all of that is gone, and says how the child ended; nil
	// is exit code 0. It may be called more than once.
	Wait() error
}
