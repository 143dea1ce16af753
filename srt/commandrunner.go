package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

var _ sandbox.CommandRunner = (*session)(nil)

// RunCommand implements sandbox.CommandRunner. The wall for commands is raised
// at the session's first line, and stays; Python need not have been started.
func (s *session) RunCommand(ctx context.Context, req sandbox.CommandRequest) (sandbox.Result, error) {
	if err := s.local.checkCommand(&req); err != nil {
		return sandbox.Result{}, err
	}
	if err := s.take(ctx); err != nil {
		return sandbox.Result{}, err
	}
	defer s.give()
	begun := time.Now()
	w, err := s.startWarden(ctx)
	if err != nil {
		return sandbox.Result{}, err
	}
	if err := s.openWorkspace(); err != nil {
		return sandbox.Result{}, infra(failed(layerWorkspace, err))
	}
	started := time.Since(begun)
	watch := watchCommands(w)
	res, err := w.run(ctx, req)
	watch.close()
	if reason := w.reason(); reason != nil && !errors.Is(reason, sandbox.ErrClosed) {
		// What is left behind the wall must not wait for the next call.
		if buried := s.buryWarden(w); buried != nil {
			err = errors.Join(err, infra(buried))
		}
	}
	if res.Status == "" {
		return res, err
	}
	res.Backend, res.Provisioning = "local", started
	return res, err
}

// checkCommand refuses a line that can't run here, before anything does, and
// fills in what req leaves out.
func (l *Local) checkCommand(req *sandbox.CommandRequest) error {
	if l.programs == nil {
		return fmt.Errorf("srt: this server offers no commands: %w", errors.ErrUnsupported)
	}
	if err := req.Check(); err != nil {
		return err
	}
	if req.Timeout == 0 {
		req.Timeout = sandbox.DefaultTimeout
	}
	for _, step := range req.Pipeline.Steps {
		for _, stage := range step.Stages {
			if stage.Name == "" { // by which helpers are listed as missing
				return sandbox.Invalid("there is no command on one side of |")
			}
			for _, program := range l.cfg.Commands.Programs(stage) {
				if i := slices.IndexFunc(l.programs.lack, func(m Missing) bool { return m.Command != "" && m.Program == program }); i >= 0 {
					return sandbox.Invalid("this machine does not have the command %v", l.programs.lack[i])
				}
			}
		}
	}
	return nil
}

// startWarden raises the wall for commands, unless one stands.
func (s *session) startWarden(ctx context.Context) (*warden, error) {
	s.mu.Lock()
	closed, w := s.closed, s.warden
	s.mu.Unlock()
	switch {
	case closed:
		return nil, sandbox.ErrClosed
	case w != nil && w.reason() == nil:
		return w, nil
	case w != nil: // it was killed between the calls, and nothing is lost with it
		if err := s.buryWarden(w); err != nil {
			return nil, infra(err)
		}
	}
	if err := s.openWorkspace(); err != nil {
		return nil, infra(failed(layerWorkspace, err))
	}
	w, err := s.raiseWarden(ctx)
	if err != nil {
		return nil, infra(err)
	}
	s.mu.Lock()
	if !s.closed {
		s.warden = w
		w = nil
	}
	started := s.warden
	s.mu.Unlock()
	if w != nil { // Close came in between and could not see it
		return nil, errors.Join(sandbox.ErrClosed, w.close())
	}
	return started, nil
}

// raiseWarden raises a wall for commands and begins the talk to its first process.
func (s *session) raiseWarden(ctx context.Context) (_ *warden, err error) {
	l, at := s.local, s.local.wall.places(s.workspace)
	policy := l.commandPolicy(s.workspace, at)
	var server, guest [4]*os.File // requests, reports, stdout, stderr
	for i, name := range [4]string{"requests", "reports", "stdout", "stderr"} {
		if server[i], guest[i], err = l.wall.pipe(at, name, i > 0); err != nil {
			break
		}
	}
	defer func() {
		for _, f := range guest {
			if f != nil {
				f.Close()
			}
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the wall for commands did not stand within %v", startTimeout))
	defer cancel()
	var c *cage
	if err == nil {
		c, err = l.wall.start(ctx, policy, command{
			Path: at.Warden, Args: []string{"be-child", verbWarden}, Dir: at.Workspace,
			Env:    []string{}, // /proc/1/environ of others on the host; its commands get their own
			Stdout: guest[2], Stderr: guest[3],
			Extra: []*os.File{guest[0], guest[1]},
			Held:  true, // until its configuration
		})
	}
	if err != nil {
		for _, f := range server {
			if f != nil {
				f.Close()
			}
		}
		return nil, errors.Join(err, at.drop())
	}
	output := kernel.NewOutput(server[2], server[3], l.cfg.Limits.Output)
	output.Keep(s.overflow)
	return newWarden(c, server[0], server[1], output, l.wardenConfig(at), policy.withDefaults())
}

// wardenConfig is what a session's warden is told.
func (l *Local) wardenConfig(at places) wardenConfig {
	return wardenConfig{
		List: l.cfg.Commands.Options(), Programs: l.programs.at(at), Env: commandEnv(l.programs.paths, at),
		Scratch: at.commandScratch(),
	}
}

// commandEnv is the whole environment of every command. Nothing of it comes
// from the server's.
func commandEnv(programs map[string]string, at places) []string {
	dirs := []string{"/usr/bin", "/bin"}
	var further []string
	for _, p := range programs {
		if dir := path.Dir(p); !slices.Contains(dirs, dir) && !slices.Contains(further, dir) {
			further = append(further, dir)
		}
	}
	slices.Sort(further)
	return []string{
		"PATH=" + strings.Join(append(dirs, further...), ":"),
		"HOME=" + at.Tmp, "PWD=" + at.Workspace, "USER=" + allowlist.User, "LANG=C.UTF-8",
	}
}

// buryWarden takes away a wall for commands that is of no more use.
func (s *session) buryWarden(dead *warden) error {
	reason := dead.reason()
	err := dead.close()
	s.log.Warn("the wall for commands is gone", "reason", reason, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warden == dead {
		s.warden = nil
	}
	return err
}
