package main

import (
	"context"
	"errors"
	"log/slog"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
	"mcp-sandbox/workload"
)

// remoteConfig is the choice between here and there.
type remoteConfig struct {
	remoteFlags
	callers bool // each caller brings a token
}

// openBackends opens where Python is to run, and what commands need of this
// machine. Where Python runs remotely, a machine without a wall is no fault:
// there are no commands then.
func (p program) openBackends(ctx context.Context, cfg localConfig, r remoteConfig) (*local, error) {
	if r.backend(r.callers, cfg.log) == sandbox.BackendLocal {
		if r.callers {
			return nil, errors.New("--workload-caller-token: Python runs locally: set " + endpointEnv + ", or leave it out")
		}
		return p.openLimited(ctx, cfg)
	}
	remote, err := r.open(cfg.limits(), cfg.log)
	if err != nil {
		return nil, err
	}
	if len(cfg.AllowDomain) > 0 {
		cfg.log.Warn("--allow-domain is for code on this machine: what remote containers reach, the cluster decides")
	}
	cfg.Warm = 0 // it would wait for calls that go elsewhere
	l, err := p.openLimited(ctx, cfg)
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), remote.close())
	case err != nil:
		cfg.log.Warn("execute_cli is not offered, since commands would run on this machine, where no wall can be raised", "err", err)
		return remote, nil
	}
	l.Sandbox = (&sandbox.Backends{Local: l.Sandbox, Remote: remote.Sandbox.(sandbox.Placer), Default: sandbox.BackendWorkload}).Sandbox()
	l.remote, l.backends = remote.remote, remote.backends
	if r.PythonBackend == auto { // nobody has decided for all
		l.backends = append(l.backends, sandbox.BackendLocal)
	}
	closeLocal := l.close
	l.close = func() error { return errors.Join(remote.close(), closeLocal()) }
	return l, nil
}

// open opens the remote sandbox alone.
func (r remoteConfig) open(limits sandbox.Limits, log *slog.Logger) (*local, error) {
	who := newInstance(log)
	w, err := workload.New(r.config(r.callers, limits, who, log))
	if err != nil {
		who.end(true)
		return nil, err
	}
	if r.WorkloadSecurityContext != string(workload.SecurityRequired) {
		log.Warn("remote containers may run without a security context", "by", "--workload-security-context="+r.WorkloadSecurityContext)
	}
	if r.WorkloadAllowHTTP {
		log.Warn("the DataRobot token may travel unencrypted", "by", "--workload-allow-http")
	}
	if r.WorkloadImage == "" {
		log.Info("remote containers run the published image, whose tag moves", "image", workload.DefaultImage, "remedy", "--workload-image with a digest")
	}
	return &local{
		Sandbox: w, backends: []string{sandbox.BackendWorkload}, remote: r.described(),
		close: func() error {
			err := w.Close()
			if err != nil {
				log.Warn("not all remote containers are deleted yet: the next server does it", "err", err)
			}
			who.end(err == nil)
			return nil
		},
	}, nil
}

// away reports whether nothing runs on this machine.
func (l *local) away() bool {
	_, remote := l.Sandbox.(*workload.Workload)
	return remote
}

// tell puts into the tools' descriptions where code runs.
func (l *local) tell(cfg *tools.Config) { cfg.Backends, cfg.Remote = l.backends, l.remote }
