package srt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// keeperLifeFD is where the keeper hears of the server's end.
const keeperLifeFD = 3

// srtGrace is how long srt may take to remove its own sockets, once the guest is to end.
const srtGrace = 300 * time.Millisecond

// keepChild is the parent of srt, outside the wall. A kill of srt leaves its helpers behind,
// and a kill of the server would leave all: the keeper ends with srt, or when the server
// closes the lifeline, and not before all that it has started is dead.
func keepChild(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "be-child is for mcp-sandbox itself")
		return 2
	}
	life := os.NewFile(keeperLifeFD, "lifeline")
	if life == nil {
		return 2
	}
	syscall.CloseOnExec(keeperLifeFD)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	if err := adoptOrphans(); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: keep:", err)
		return 1
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr // both lead to one log
	cmd.SysProcAttr = apartFromUs()                                    // by this thread, which stays
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: keep:", err)
		return 1
	}
	os.Stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, life) // an error is an end, too
		close(gone)
	}()
	var err error
	select {
	case err = <-ended:
	case <-gone:
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be dead
		select {
		case err = <-ended:
		case <-time.After(srtGrace):
			err = errors.New("killed")
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its group; it may be empty
	endDescendants()
	if err != nil {
		return 1
	}
	return 0
}
