package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"

	"mcp-sandbox/srt"
	"mcp-sandbox/workload/workloadtest"
	"mcp-sandbox/workload/workloadtest/plain"
)

type emulatorFlags struct {
	Listen            string  `default:"127.0.0.1:0" env:"-" placeholder:"ADDR" help:"Loopback address and port; 0 = any free port (${default})."`
	Speed             float64 `default:"10" env:"-" help:"How many times faster than the platform states follow each other (${default})."`
	Python            string  `placeholder:"PATH" help:"Python interpreter of the containers; usually python3 of PATH."`
	DangerouslyNoWall bool    `env:"-" help:"Run containers as plain processes, which can do whatever you can: for machines where no wall can be raised."`
}

func (f emulatorFlags) check() error {
	var errs []error
	switch local, err := (httpFlags{Listen: f.Listen}).loopback(); {
	case err != nil:
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	case !local:
		errs = append(errs, fmt.Errorf("--listen: the emulator is for this machine alone; %s can be reached from others", f.Listen))
	}
	if f.Speed <= 0 {
		errs = append(errs, errors.New("--speed must be above 0"))
	}
	return errors.Join(errs...)
}

// emulate serves the emulator until ctx ends. Its one line on stdout is what a shell needs to
// point the product to it.
func (p program) emulate(ctx context.Context, c cli) int {
	f := c.WorkloadEmulator
	log := p.logger(c.logFlags, slog.LevelInfo)
	start, python, end, err := p.containers(ctx, f, log)
	if err != nil {
		return p.fail(exitFailed, err)
	}
	token := rand.Text()
	e, err := workloadtest.New(workloadtest.Config{Start: start, Python: python, Token: token, Speed: f.Speed, Log: log})
	if err != nil {
		return p.fail(exitFailed, errors.Join(err, end()))
	}
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return p.fail(exitFailed, errors.Join(fmt.Errorf("--listen: %w", err), end()))
	}
	fmt.Fprintf(p.stdout, "export DATAROBOT_ENDPOINT=http://%s/api/v2 DATAROBOT_API_TOKEN=%s\n", l.Addr(), token)
	log.Info("the Workload API is emulated", "listen", l.Addr().String(), "speed", f.Speed)
	err = serveEmulator(ctx, l, e, log)
	if err = errors.Join(err, end()); err != nil {
		return p.fail(exitFailed, err)
	}
	return exitOK
}

// containers says how the emulator's containers are started, with which interpreter, and what is
// to be done after the last of them has ended.
func (p program) containers(ctx context.Context, f emulatorFlags, log *slog.Logger) (start workloadtest.Starter, python string, end func() error, err error) {
	if f.DangerouslyNoWall {
		log.Warn("containers run without a wall, and can do whatever you can", "by", "--dangerously-no-wall")
		name := f.Python
		if name == "" {
			name = "python3"
		}
		python, err = exec.LookPath(name)
		return plain.Start, python, func() error { return nil }, err
	}
	l, err := p.open(ctx, localConfig{wallFlags: wallFlags{Python: f.Python}, log: log})
	if err != nil {
		return nil, "", nil, err
	}
	return l.startContainer, l.path, l.close, nil
}

// startContainer is a workloadtest.Starter: a container is a program behind the wall.
func (l *local) startContainer(ctx context.Context, p workloadtest.Process) (workloadtest.Running, error) {
	c, err := l.contain(ctx, srt.Program{Argv: p.Argv, Env: p.Env, Port: p.Port, Memory: p.Memory, Stdout: p.Stdout, Stderr: p.Stderr})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// serveEmulator serves until ctx ends, and then ends what is under way.
func serveEmulator(ctx context.Context, l net.Listener, e *workloadtest.Emulator, log *slog.Logger) error {
	server := &http.Server{
		Handler: e, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = server.Close()
		<-failed
	}
	e.Close()
	return err
}
