package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
	"mcp-sandbox/srt/egress"
)

// interpreter is Python behind the wall together with the talk to it.
type interpreter struct {
	cage   *cage
	client *kernel.Client
	output *kernel.Output // the client's
	policy Policy
	places places // as its code knows them

	watchdog *watchdog // nil before it runs code for a session

	closing sync.Once
	closed  error
}

// startInterpreter raises the wall and executes Python behind it. It returns
// when Python has been executed; that it answers is for the first call to see.
func (s *session) startInterpreter(ctx context.Context) (_ *interpreter, err error) {
	l, at := s.local, s.local.wall.places(s.workspace)
	policy := l.policy(s.workspace, at)
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	pipe := func(name string, serverReads bool) (server, guest *os.File) {
		server, guest, e := l.wall.pipe(at, name, serverReads)
		if e != nil {
			err = errors.Join(err, e)
			return nil, nil
		}
		files = append(files, guest)
		return server, guest
	}
	stdout, guestStdout := pipe("stdout", true)
	stderr, guestStderr := pipe("stderr", true)
	in, guestIn := pipe("in", false)
	out, guestOut := pipe("out", true)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the wall did not stand within %v", startTimeout))
		defer cancel()
		var c *cage
		c, err = l.wall.start(ctx, policy, command{
			Path:   l.python.Path,
			Args:   []string{"-I", "-S", at.Kernel + "main.pyc", "--in", "3", "--out", "4", "--oom-fd", oomFD(), "--held", "1", "--workdir", at.Workspace, "--checkpoint", string(l.cfg.Checkpoint)},
			Env:    l.guestEnv(at),
			Dir:    at.Workspace,
			Files:  l.kernelFiles(at),
			Stdout: guestStdout, Stderr: guestStderr, Proxy: s.proxyConfig(),
			Extra: []*os.File{guestIn, guestOut},
			OOMFD: oomFD() != noFD, Held: true,
		})
		if err == nil {
			_, err = in.Write([]byte{kernel.Go})
			if err != nil {
				err = errors.Join(err, c.Close())
			}
		}
		if err == nil {
			return l.connect(c, policy, at, in, out, kernel.NewOutput(stdout, stderr, l.cfg.Limits.Output)), nil
		}
	}
	for _, f := range []*os.File{stdout, stderr, in, out} {
		if f != nil {
			f.Close()
		}
	}
	return nil, infra(errors.Join(err, at.drop()))
}

// noFD is the kernel's word for a descriptor that there is not.
const noFD = "-1"

// oomFD is the number of the descriptor of oom_score_adj, which Linux alone has.
func oomFD() string {
	if runtime.GOOS != "linux" {
		return noFD
	}
	return "5"
}

// proxyConfig is how the session's network is served.
func (s *session) proxyConfig() egress.Config {
	cfg := s.local.cfg.proxy
	cfg.Log = s.log
	return cfg
}

// connect makes the talk to a started interpreter.
func (l *Local) connect(c *cage, policy Policy, at places, in, out *os.File, output *kernel.Output) *interpreter {
	client := kernel.NewClient(kernel.Config{
		In: in, Out: out, Output: output, Memory: policy.Memory, Start: startTimeout, OOM: c.oomKilled,
		Hints:   map[string]string{"network": policy.networkHint(), "path": policy.pathHint(), "package": policy.packageHint()},
		Unsaved: unsaved(l.cfg),
		Parked: func(pid int, yes bool) {
			l.checkpoints.count(yes)
			parked(c.kin, pid, yes)
		},
	})
	return &interpreter{cage: c, client: client, output: output, policy: policy, places: at}
}

// watch holds the limits of the session's that the kernel doesn't hold.
func (s *session) watch(i *interpreter) {
	i.output.Keep(s.overflow)
	i.watchdog = watch(watched{cage: i.cage, client: i.client, policy: i.policy, disk: s.disk, others: i.policy.scratchDisks(i.cage.kin), log: s.log})
}

// infra makes a fault of the wall an error that names its layer.
func infra(err error) error {
	var layer *LayerError
	if errors.As(err, &layer) {
		return &sandbox.Error{Status: sandbox.StatusInfra, Layer: layer.Layer, Err: unnamed{err, layer}}
	}
	return &sandbox.Error{Status: sandbox.StatusInfra, Err: err}
}

func (l *Local) kernelFiles(at places) map[string][]byte {
	files := map[string][]byte{}
	for name, code := range l.python.compiled {
		files[at.Kernel+name] = code
	}
	return files
}

// close kills everything behind the wall and waits until it is gone.
func (i *interpreter) close() error {
	i.closing.Do(func() {
		i.client.Close() // first, so that a call under way hears of the close and not of a death
		if i.watchdog != nil {
			i.watchdog.close()
		}
		i.closed = errors.Join(i.cage.Kill(), i.cage.Close())
	})
	return i.closed
}

// lastWords is what an interpreter that never answered wrote to its stderr.
func (i *interpreter) lastWords() string { return i.client.Stray() }
