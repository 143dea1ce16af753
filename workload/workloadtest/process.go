package workloadtest

import (
	"context"
	"io"
	"net"
)

// Process is what a container runs.
type Process struct {
	Argv []string // Argv[0] is a path of this machine
	Env  []string // all of it, as NAME=VALUE

	Memory int64 // bytes that the container was allotted; 0: nothing was said

	// Port is where the process listens in its container. Where containers share the
	// machine's network, the starter chooses another one and says so in DRX_PORT and PORT.
	Port int

	Stdout, Stderr io.Writer // written from one goroutine each
}

// Starter starts a container's process: in a process group of its own, in an
// empty directory of its own, with nothing on its standard input. ctx bounds
// the start alone. An environment or an argument that the system refuses is an
// error that wraps syscall.E2BIG, a program that is not there or can't be run
// one that wraps fs.ErrNotExist or fs.ErrPermission.
type Starter func(ctx context.Context, p Process) (Running, error)

// Running is a started process. All may be called at any time, from several
// goroutines. One that has a method OOMKilled() bool says by it, after Wait, whether the
// kernel has killed at the memory limit.
type Running interface {
	// Wait returns once the process has ended, all that belonged to it is gone, and its
	// output has been written: its exit code, or 128 and the signal that ended it.
	Wait() int
	Terminate() // SIGTERM
	Kill()      // SIGKILL, to all that belongs to it
	// Dial connects to the port that the process listens on.
	Dial(ctx context.Context) (net.Conn, error)
}
