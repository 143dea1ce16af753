package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcp-sandbox/externals"
)

// beUpstreamVerb is the hidden first argument of the keeper of an external server: a
// process between it and us, which ends it with all that it has started as soon as we
// have ended, however that was.
const beUpstreamVerb = "be-upstream"

const (
	keeperGrace = 500 * time.Millisecond // a server has this long to end when it is asked to
	keeperTime  = 3 * time.Second        // for what is then killed to be gone
)

// lifelineFD is the keeper's end of a pipe whose other end we hold.
const lifelineFD = 3

// startUpstream is an externals.Starter.
func startUpstream(c externals.Command) (_ externals.Process, err error) {
	path, err := findCommand(c)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.Dir); c.Dir != "" && (err != nil || !info.IsDir()) { // which exec would blame on the program
		return nil, fmt.Errorf("its cwd %s is no directory", c.Dir)
	}
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	var files []*os.File // of both sides, in the order they are made
	pipe := func() (r, w *os.File) {
		r, w, e := os.Pipe()
		if e != nil {
			err = errors.Join(err, e)
			return nil, nil
		}
		files = append(files, r, w)
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	lifeR, lifeW := pipe()
	undo := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	if err != nil {
		undo()
		return nil, err
	}
	cmd := exec.Command(self, append([]string{beUpstreamVerb, path}, c.Args...)...)
	cmd.Args[0] = "mcp-sandbox"
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = inR, outW, c.Stderr, []*os.File{lifeR}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal of the terminal is for us
	cmd.WaitDelay = time.Second                           // who left the keeper's reach may hold its standard error
	if err := cmd.Start(); err != nil {
		undo()
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, lifeR} {
		_ = f.Close()
	}
	k := &kept{cmd: cmd, stdin: inW, stdout: outR, life: lifeW, gone: make(chan struct{})}
	go k.wait()
	return k, nil
}

// findCommand is where the program is, by the PATH that it will have.
func findCommand(c externals.Command) (string, error) {
	if strings.ContainsRune(c.Path, filepath.Separator) {
		path := c.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		return path, executable(path)
	}
	for _, e := range c.Env {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if path := filepath.Join(dir, c.Path); filepath.IsAbs(path) && executable(path) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("the command %q is not on PATH", c.Path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// kept is an externals.Process under its keeper.
type kept struct {
	cmd           *exec.Cmd
	stdin, stdout *os.File
	life          *os.File
	once          sync.Once
	gone          chan struct{} // closed when err is set
	err           error
}

func (k *kept) Stdin() io.WriteCloser { return k.stdin }
func (k *kept) Stdout() io.ReadCloser { return k.stdout }

// Kill lets go of the keeper's lifeline, and kills the keeper itself if that does
// not help.
func (k *kept) Kill() {
	k.once.Do(func() {
		_ = k.life.Close()
		select {
		case <-k.gone:
		case <-time.After(keeperGrace + keeperTime + time.Second):
			_ = k.cmd.Process.Kill()
		}
	})
}

func (k *kept) Wait() error {
	<-k.gone
	return k.err
}

// wait is the one goroutine of a process; it ends with it.
func (k *kept) wait() {
	k.err = k.cmd.Wait()
	_ = k.life.Close()
	close(k.gone)
}

// beUpstream is the keeper: it starts the program with the streams that are its own,
// and ends with the program's exit code when that and all that it has started are gone.
func beUpstream(argv []string, stderr io.Writer) int {
	runtime.LockOSThread() // the child ends with the thread that started it
	keepToOurselves()
	life := os.NewFile(lifelineFD, "lifeline")
	if len(argv) == 0 || life == nil {
		fmt.Fprintln(stderr, "mcp-sandbox: "+beUpstreamVerb+" is for mcp-sandbox itself")
		return exitUsage
	}
	adoptOrphans()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = keptAttributes()
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "mcp-sandbox: %v\n", err)
		return 127
	}
	pid := cmd.Process.Pid
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} { // the ends of the streams are the child's
		_ = f.Close()
	}
	let := make(chan struct{})
	go func() {
		_, _ = life.Read(make([]byte, 1)) // nothing is ever written
		close(let)
	}()
	ended, none := reap(pid)
	code := 0
	select {
	case code = <-ended:
	case <-let: // some have to clean up elsewhere, such as a container
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-none:
			return code
		case <-time.After(keeperGrace):
		}
	}
	for limit := time.Now().Add(keeperTime); time.Now().Before(limit); {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // the group, while there is one
		for _, child := range children() {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		select {
		case <-none:
			return code
		case <-time.After(5 * time.Millisecond): // what they leave behind becomes ours
		}
	}
	return code
}

// keepToOurselves has no child get more than its streams: not our lifeline, nor what
// whoever started us left open.
func keepToOurselves() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		syscall.CloseOnExec(lifelineFD)
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= lifelineFD {
			syscall.CloseOnExec(fd)
		}
	}
}

// reap waits for all children, ours and those that we adopt: ended gets the exit code
// of the first, none is closed when there is none left.
func reap(first int) (ended chan int, none chan struct{}) {
	ended, none = make(chan int, 1), make(chan struct{})
	go func() {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil:
				close(none)
				return
			case pid == first && status.Signaled():
				ended <- 128 + int(status.Signal())
			case pid == first:
				ended <- status.ExitStatus()
			}
		}
	}()
	return ended, none
}
