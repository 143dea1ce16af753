// Package kernel is both ends of the talk with Python: the interpreter's side
// (the sources under py, embedded), which runs user code and remembers its
// variables, and the server's side, [Client], which sends requests, ends what
// must be ended, and believes nothing that is not well-formed.
//
// Three processes stand on the interpreter's side. The supervisor never runs
// user code: it relays requests and replies, tells of the worker's life and
// death, interrupts and kills. The worker runs the code. The standby is a copy
// of the worker, parked since the last checkpoint (see sandbox.Checkpoint): when
// the worker ends, it goes on in its place. What decides the
// status and the state of a result is the supervisor's word or the server's
// own observation, never the worker's alone.
//
// A frame is a kind (one byte), a length (four bytes, big-endian) and that much
// JSON. R goes to the worker, C to the supervisor; S comes from the supervisor,
// W from the worker. V and v carry what code shows, ahead of the reply.
// X and x carry calls of external tools and their answers, see externals.go. D, B and P carry a snapshot of the variables, which no one
// but the interpreter reads, see [Client.Save]. Where main.py is started with --held 1, no worker is made
// before one byte, Go, has come ahead of the first frame.
package kernel

import (
	"embed"
	"io/fs"
)

//go:embed py/*.py
var sources embed.FS

// Go is the byte that a held supervisor waits for.
const Go = 'g'

// Sources are the files of the interpreter's side, by name. The one to start is
// main.py.
func Sources() map[string]string {
	out := map[string]string{}
	entries, err := fs.ReadDir(sources, "py")
	if err != nil {
		panic(err) // embedded: can't happen
	}
	for _, e := range entries {
		b, err := sources.ReadFile("py/" + e.Name())
		if err != nil {
			panic(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}
