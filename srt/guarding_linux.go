package srt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guarding is one start of a guardian under way.
type guarding struct {
	wall    *landlockWall
	group   *cgroup
	command command
	config  guardConfig
	own     cageDir
}

// run starts the guardian and sees it through until the guest's program has been executed.
// On an error all is dead.
func (s *guarding) run(ctx context.Context) (_ *cage, err error) {
	var ends [6]*os.File // of the configuration, the report, the guardian's life
	for i := 0; i < len(ends) && err == nil; i += 2 {
		ends[i], ends[i+1], err = os.Pipe()
	}
	defer func() {
		for i, f := range ends {
			if f != nil && (i != lifeW || err != nil) {
				f.Close()
			}
		}
	}()
	if err != nil {
		return nil, failed(layerExec, err)
	}
	cmd := s.prepare(ends[configR], ends[reportW], ends[lifeR])
	if err := cmd.Start(); err != nil {
		return nil, failed(layerExec, err)
	}
	for _, i := range []int{configR, reportW, lifeR} { // or their ends would never come
		ends[i].Close()
	}
	started := &guardEnds{cmd: cmd, life: ends[lifeW], own: s.own}
	defer func() {
		if err != nil { // before the guardian stands there is nobody but be-child, which does as it is told
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	stop := context.AfterFunc(ctx, func() { // a child that hangs in the kernel must not hold the caller beyond ctx
		ends[configW].SetDeadline(time.Unix(1, 0))
		ends[reportR].SetDeadline(time.Unix(1, 0))
	})
	defer stop()
	if err := s.group.place(cmd.Process.Pid); err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, failed(layerCgroup, err)
	}
	first, err := s.receive(ends[reportR], s.send(ends[configW]))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return cageOf(cmd, s.kin(first), started, s.group, s.config.Domain.Policy.Memory), nil
}

const (
	configR = iota
	configW
	reportR
	reportW
	lifeR
	lifeW
)

func (s *guarding) prepare(config, report, life *os.File) *exec.Cmd {
	cmd := exec.Command(s.wall.exe, "be-child", verbConfine)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdout, cmd.Stderr = s.command.Stdout, s.command.Stderr
	cmd.ExtraFiles = append([]*os.File{config, report, life, config}, s.command.Extra...) // the second holds a number
	// No signal at the server's death, by which the guardian could not end the others: it sees
	// the end of its pipe.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// kin of a program whose process the guardian has started.
func (s *guarding) kin(first int) kin {
	p := s.config.Domain.Policy
	disks := []string{p.Tmp}
	if p.Workspace.Host != "" {
		disks = append(disks, p.Workspace.Host)
	}
	return kin{first: first, disks: disks}
}

// send writes the configuration, after its length, and that it may go on: it is in its
// control group already.
func (s *guarding) send(w *os.File) error {
	text, err := json.Marshal(s.config)
	if err != nil {
		return err
	}
	message := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	_, err = w.Write(append(message, goAhead))
	return err
}

// receive reads the report to its end: the number of the program's process, or why there is
// none. sent is what became of the configuration.
func (s *guarding) receive(r *os.File, sent error) (first int, err error) {
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return 0, failed(layerExec, err)
	}
	rest, isReady := cutReady(text)
	if isReady {
		if first, err := strconv.Atoi(string(rest)); err == nil && first > 1 {
			return first, nil // the exec closed the report
		}
		for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
			rest = rest[1:]
		}
	}
	var report childReport
	if json.Unmarshal(rest, &report) == nil && report.Layer != "" {
		return 0, &LayerError{Layer: report.Layer, Remedy: report.Remedy, Err: report.err()}
	}
	return 0, failed(layerExec, errors.Join(fmt.Errorf("the guardian ended early, or said %.100q", text), sent))
}

// guardEnds ends a guardian's cage.
type guardEnds struct {
	cmd  *exec.Cmd
	life *os.File // it sees the end of this
	own  cageDir
}

// kill lets go of the guardian, which ends all in its domain, and then itself.
func (e *guardEnds) kill() error {
	if err := e.life.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// press kills the others, too, which on a starved machine are in the guardian's way. Itself it
// must not die before them: who else would find them?
func (e *guardEnds) press() {
	for _, pid := range descendants(e.cmd.Process.Pid, nil)[1:] {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is what we want
	}
}

func (e *guardEnds) clear() error { return e.own.clear() }
