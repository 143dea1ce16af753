package srt

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"mcp-sandbox/allowlist"
)

// pipelines runs command lines without a shell, argv by argv, in the directory
// and the namespace that this process is in. It belongs to PID 1 of a PID
// namespace: what a line leaves behind is killed and reaped by number -1. One
// line runs at a time; stop may come from another goroutine.
type pipelines struct {
	resolve  func(name string, args []string) (allowlist.Exec, error)
	programs map[string]string // the executable of each program: PATH is searched for nothing
	env      []string
	null     uintptr    // standard input of a step's first stage
	streams  [2]uintptr // what the stages have as descriptors 1 and 2
	scratch  []*os.File // the directories that a line may write, emptied after each

	names glob // of the step that is being prepared

	// Held while a process is started, so that none is started after a stop has killed.
	starting sync.Mutex
	id       uint64 // of the line that runs; 0 = none
	stopped  bool
}

// prepared is a stage that may start.
type prepared struct {
	path string
	argv []string
	env  []string
}

// run runs a line to its end, and returns when every process of it is dead and
// reaped. begin must have been called.
func (p *pipelines) run(line *allowlist.Pipeline) lineReport {
	var report lineReport
	for _, step := range line.Steps {
		stages, refusal := p.prepare(step)
		if refusal != nil {
			report.Refused = refusal
			break
		}
		reports := p.step(step, stages)
		report.Steps = append(report.Steps, reports)
		if fatal(reports) != nil || p.isStopped() {
			break
		}
	}
	reap()
	p.resetStreams()
	if err := empty(p.scratch); err != nil {
		report.Unclean = err.Error()
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	report.Stopped, p.id = p.stopped, 0
	return report
}

// begin registers a line, so that it can be stopped from now on. It reports
// false while another one runs.
func (p *pipelines) begin(id uint64) bool {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.id != 0 || id == 0 {
		return false
	}
	p.id, p.stopped = id, false
	return true
}

// stop kills everything that the line has started. A line that is over is not
// disturbed, nor is the one after it.
func (p *pipelines) stop(id uint64) {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.id != id {
		return
	}
	p.stopped = true
	_ = unix.Kill(-1, unix.SIGKILL) // nobody to be killed is fine
}

func (p *pipelines) isStopped() bool {
	p.starting.Lock()
	defer p.starting.Unlock()
	return p.stopped
}

// prepare makes every stage's argv as its program will get it. A step runs
// whole or not at all: one stage that is refused refuses the others.
func (p *pipelines) prepare(step allowlist.Step) ([]prepared, *refusal) {
	if len(step.Stages) == 0 {
		return nil, &refusal{Text: "a step without commands"}
	}
	stages := make([]prepared, len(step.Stages))
	p.names = glob{stopped: p.isStopped}
	defer func() { p.names = glob{} }()
	for i, s := range step.Stages {
		args, err := p.arguments(s)
		if err != nil {
			return nil, &refusal{Name: s.Name, Text: err.Error()}
		}
		exec, err := p.resolve(s.Name, args)
		if err != nil {
			return nil, deniedBy(s.Name, err)
		}
		env, err := p.environment(s.Env)
		if err != nil {
			return nil, deniedBy(s.Name, err)
		}
		argv := make([]string, 1+len(exec.Args))
		argv[0] = s.Name // as typed, so that messages read so
		copy(argv[1:], exec.Args)
		stages[i] = prepared{path: p.programs[exec.Program], argv: argv, env: env}
	}
	return stages, nil
}

// arguments puts names in the place of wildcards. A pattern that matches
// nothing stays as it was typed.
func (p *pipelines) arguments(s allowlist.Stage) ([]string, error) {
	args := make([]string, 0, len(s.Args))
	p.names.stage()
	for _, a := range s.Args {
		if a.Pattern == "" {
			args = append(args, a.Text)
			continue
		}
		names, err := p.names.expand(a.Pattern)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			names = []string{a.Text}
		}
		args = append(args, names...)
	}
	return args, nil
}

// environment is the constructed one with the stage's own variables in it.
func (p *pipelines) environment(own []string) ([]string, error) {
	if len(own) == 0 {
		return p.env, nil
	}
	env := slices.Clone(p.env)
	for _, v := range own {
		if err := allowlist.CheckEnv(v); err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(v, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		env = append(env, v)
	}
	return env, nil
}

// step runs one pipeline and waits for all its stages, as a shell does. Every
// end of a pipe is closed here as soon as a stage has it: only so does a reader
// see the end, and a writer whose reader has gone die of SIGPIPE.
func (p *pipelines) step(step allowlist.Step, stages []prepared) []stageReport {
	reports := make([]stageReport, len(stages))
	pids := make([]int, len(stages))
	in := -1 // reading end of the pipe from the stage before
	for i, s := range stages {
		reports[i].Name = step.Stages[i].Name
		ends, err := [2]int{-1, -1}, error(nil)
		if i < len(stages)-1 {
			err = unix.Pipe2(ends[:], unix.O_CLOEXEC)
		}
		if err == nil {
			pids[i], err = p.start(s, in, ends[1])
		}
		if err != nil {
			reports[i].Exit, reports[i].Error = startFailure(err)
		}
		closeFD(in)
		closeFD(ends[1])
		in = ends[0]
	}
	closeFD(in) // only where the last stage had a pipe, which it never has
	await(pids, reports)
	return reports
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// start executes a stage with its ends of the pipes; -1 is /dev/null for input
// and the line's own stream for output.
func (p *pipelines) start(s prepared, in, out int) (int, error) {
	if s.path == "" {
		return 0, unix.ENOENT
	}
	files := [3]uintptr{p.null, p.streams[0], p.streams[1]}
	if in >= 0 {
		files[0] = uintptr(in)
	}
	if out >= 0 {
		files[1] = uintptr(out)
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.stopped {
		return 0, errStopped
	}
	// Nothing but files is left open by an exec: all else here is close-on-exec.
	return syscall.ForkExec(s.path, s.argv, &syscall.ProcAttr{Env: s.env, Files: files[:]})
}

// startFailure is what a shell's exit code would be, and the reason in words.
func startFailure(err error) (code int, text string) {
	switch {
	case errors.Is(err, unix.ENOENT):
		return exitMissing, "it is not on this machine"
	case errors.Is(err, unix.E2BIG):
		return exitRefused, "its arguments are longer than the system allows"
	case errors.Is(err, unix.EAGAIN):
		return exitRefused, "there are too many processes"
	}
	return exitRefused, err.Error()
}

// await waits until all of pids have ended, and reaps what else ends meanwhile:
// PID 1 inherits all orphans.
func await(pids []int, reports []stageReport) {
	left := 0
	for _, pid := range pids {
		if pid > 0 {
			left++
		}
	}
	for left > 0 {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // ECHILD, which can't be: nobody else here reaps
		}
		i := slices.Index(pids, pid)
		if i < 0 {
			continue
		}
		left--
		pids[i] = 0 // the number is free, and an orphan may get it
		if status.Signaled() {
			reports[i].Signal = int(status.Signal())
		} else {
			reports[i].Exit = status.ExitStatus()
		}
	}
}

// resetStreams takes back what a program may have set for all who share its
// output: a pipe that does not block, or keeps packets apart, would spoil the
// output of later lines.
func (p *pipelines) resetStreams() {
	for _, fd := range p.streams {
		_, _ = unix.FcntlInt(fd, unix.F_SETFL, 0) // can't fail: it is open, and a pipe
	}
}

// reap ends what a line has left behind. PID 1 without children is alone in its
// namespace, so the ordinary case costs one system call.
func reap() {
	var status unix.WaitStatus
	options := unix.WNOHANG
	for {
		pid, err := unix.Wait4(-1, &status, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // ECHILD: nobody is left
		case pid == 0: // somebody lives
			_ = unix.Kill(-1, unix.SIGKILL)
			options = 0
		}
	}
}
