package srt

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardian is the first process of a wall without namespaces, and does there what PID 1 of
// a namespace does by its nature: all orphans come to it, and with it everything ends. It
// runs nothing of the guest's, which can't signal it either.
type guardian struct {
	program int         // the process of the guest's program
	ending  atomic.Bool // everything is to die
}

// guardianMemory is where its garbage begins to be collected at any price.
const guardianMemory = 16 * mib

// guardChild is the guardian's life. It ends when every process of the session is dead and
// reaped, with the guest's program's exit code, or 128 and the signal that ended that.
func guardChild() int {
	if err := proveScoped(); err != nil { // what it does ends with kill(-1)
		fmt.Fprintln(os.Stderr, "be-child is for mcp-sandbox itself")
		return 2
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(guardianMemory)
	config, err := recall(guardConfigFD)
	if err != nil {
		return reportFailure(guardReportFD, err)
	}
	g, err := startGuardian(config)
	if err != nil {
		return reportFailure(guardReportFD, failed(layerExec, err))
	}
	return g.wait()
}

func startGuardian(config guardConfig) (*guardian, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("take orphans: %w", err)
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP)

	files := []uintptr{0, 1, 2, guardConfigFD, guardReportFD, guardInnerFD}
	for i := range config.Extra {
		files = append(files, uintptr(guardExtraFD+i))
	}
	pid, err := syscall.ForkExec(selfExe, []string{"mcp-sandbox", "be-child", verbEnter}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:    true,            // no signal of the program's is meant for the guardian
			Pdeathsig: syscall.SIGKILL, // of the thread that this is, which lives as long as the guardian
		},
	})
	if err != nil {
		return nil, fmt.Errorf("start the guest's program: %w", err)
	}
	g := &guardian{program: pid}
	if err := letGo(config.Extra); err != nil {
		g.end()
		return nil, err
	}
	go g.live()
	go func() { // ends with this process
		for range terminate {
			_ = unix.Kill(g.program, unix.SIGTERM) // it may be dead, and is a child not yet reaped, or nobody
		}
	}()
	return g, nil
}

// letGo closes all that is the program's: whoever reads its output must see the end of it.
func letGo(extra int) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/null: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	for fd := guardConfigFD; fd < guardExtraFD+extra; fd++ {
		if fd != guardLifeFD {
			_ = unix.Close(fd) // it is open
		}
	}
	return unix.Close(null)
}

// live ends everything when the server wants that, or is dead.
func (g *guardian) live() {
	var b [1]byte
	for {
		_, err := unix.Read(guardLifeFD, b[:]) // nobody writes: it returns at the end
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	g.end()
}

// end kills everything in the domain but the guardian. Nothing can fork past it.
func (g *guardian) end() {
	g.ending.Store(true)
	_ = unix.Kill(-1, unix.SIGKILL) // nobody to be killed is fine
}

// wait reaps until nobody is left. The end of the program is the end of all.
func (g *guardian) wait() (code int) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return code // ECHILD: nobody is left
		}
		if pid == g.program {
			code = status.ExitStatus()
			if status.Signaled() {
				code = 128 + int(status.Signal())
			}
			g.end()
		} else if g.ending.Load() {
			g.end() // what began to be killed may have been forking
		}
	}
}
