package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
)

const (
	startLimit = 30 * time.Second        // for finding Python and testing the wall
	endLimit   = 1800 * time.Millisecond // for closing the sessions: clients send SIGKILL two seconds after SIGTERM
	saveLimit  = 20 * time.Second        // for saving them, where they are kept, before that: what is saved by the time of a SIGKILL is saved

	// webEndLimit likewise, over HTTP: with the time to drain less than the half
	// minute that those who run containers give. Saving is part of it.
	webEndLimit  = 15 * time.Second
	webSaveLimit = 12 * time.Second
)

// serve runs the MCP server until its client is gone or a signal comes.
func (p program) serve(ctx context.Context, c cli) int {
	f := c.Serve
	log := p.logger(c.logFlags, slog.LevelInfo)
	allow := f.list()
	observers, err := f.observe(ctx, log)
	if err != nil {
		return p.fail(exitUsage, err)
	}
	defer observers.close() // when all calls have ended
	door, err := p.door(f, observers, log)
	if err != nil {
		return p.fail(exitUsage, err)
	}
	l, err := p.openBackends(ctx, localConfig{
		wallFlags: f.wallFlags, packageFlags: f.packageFlags, warmFlags: f.warm(), workspace: f.Workspace, apart: f.apart(),
		stateDir: f.StateDir, checkpoint: f.Checkpoint, allow: allow, log: log, told: log,
	}, remoteConfig{f.remoteFlags, f.WorkloadCallerToken})
	if err != nil {
		return p.fail(exitFailed, err)
	}
	f.warn(log, l)
	others, err := f.externalsFlags.open(f.remoteFlags, log)
	if err != nil {
		return p.fail(exitUsage, errors.Join(err, l.close()))
	}
	l.with(others)
	save, limit := f.limits()
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{
		Sandbox: l.Sandbox, Idle: f.SessionIdle, MaxAge: f.SessionMaxAge,
		MaxSessions: f.MaxSessions, MaxHibernated: f.MaxHibernated, MaxRunning: f.MaxRunning, Quotas: door.quotas(),
		Keep: f.keeps(l, log), SaveTime: save, Log: log,
	})
	if err != nil {
		return p.fail(exitFailed, errors.Join(err, l.close()))
	}
	kit := f.tools(l, allow, sessions, door, log)
	f.offer(others, &kit)
	err = observers.join(&kit, sessions)
	t, faulty := tools.New(kit)
	if err = errors.Join(err, faulty); err != nil {
		return p.fail(exitFailed, errors.Join(err, sessions.Close(), l.close()))
	}
	if p.stdout == os.Stdout { // whatever prints by mistake must not end up in the protocol
		os.Stdout = os.Stderr
	}
	s, at, err := door.open(t.Server(), sessions)
	if err != nil {
		return p.fail(exitFailed, errors.Join(err, sessions.Close(), l.close()))
	}
	log.Info("serving MCP", append(at, "version", buildVersion(), "python", l.python, "wall", strings.ReplaceAll(l.String(), "\n", "; "))...)
	reason := s.serve(ctx)
	if ctx.Err() != nil {
		reason = nil // we were told to end
	}
	return p.end(s, sessions, l, log, limit, reason)
}

// transport is how clients reach the tools.
type transport interface {
	// serve answers requests until its client is gone or ctx ends.
	serve(ctx context.Context) error
	// finish waits, once the sessions are closed, until what they answered is
	// written. It gives up when ctx ends.
	finish(ctx context.Context) error
}

// door is a transport before there is anything to serve.
type door interface {
	// open begins to serve, and says for the log where.
	open(*server.MCPServer, *sandbox.Sessions) (transport, []any, error)
	caller(context.Context) sandbox.Caller
	quotas() map[string]sandbox.Quota
}

func (p program) door(f serveFlags, o *observers, log *slog.Logger) (door, error) {
	if f.overHTTP() {
		return newHTTPDoor(f, o.metrics(), log)
	}
	return stdioDoor{p.stdin, p.stdout, log}, nil
}

// limits are how long saving the sessions may take at the end, and how long all may.
func (f serveFlags) limits() (save, end time.Duration) {
	switch {
	case f.overHTTP():
		return webSaveLimit, webEndLimit
	case f.StateDir != "":
		return saveLimit, saveLimit + endLimit
	default:
		return saveLimit, endLimit
	}
}

func (f serveFlags) overHTTP() bool { return f.Transport != "stdio" }

// apart reports whether each session has a folder of its own in the workspace:
// over HTTP they are of strangers.
func (f serveFlags) apart() bool { return f.Workspace != "" && f.overHTTP() && !f.SharedWorkspace }

// warm is what is kept ready. A session with a folder of its own starts when there
// is one to start in.
func (f serveFlags) warm() warmFlags {
	if f.apart() {
		return warmFlags{}
	}
	return f.warmFlags
}

func (f serveFlags) tools(l *local, allow *allowlist.List, sessions *sandbox.Sessions, door door, log *slog.Logger) tools.Config {
	cfg := tools.Config{
		Sessions: sessions, Caller: door.caller, Turn: waitTurn, Handles: f.overHTTP(),
		Timeout: f.Timeout, MaxTimeout: f.MaxTimeout, Idle: f.SessionIdle, MaxAge: f.SessionMaxAge,
		Python: l.python, Packages: l.packages, Preloaded: f.Preload, Mounts: f.mounts(),
		Version: buildVersion(), Log: log,
	}
	cfg.HostPaths = l.places
	switch {
	case f.apart():
		cfg.Workspace = tools.Folder
	case f.Workspace != "":
		cfg.Workspace = tools.Shared
	}
	if rules, err := f.network(); err == nil { // checked long before
		cfg.Network = rules.Allowed()
	}
	l.tell(&cfg)
	if len(l.commands) > 0 { // a tool that can do nothing only misleads
		cfg.Allow, cfg.Commands = allow, l.commands
	}
	return cfg
}

// keeps reports whether sessions outlive the server.
func (f serveFlags) keeps(l *local, log *slog.Logger) bool {
	if f.StateDir != "" && l.away() {
		log.Warn("--state-dir has no effect: all sessions are remote, and end with the server")
		return false
	}
	return f.StateDir != ""
}

// end closes what serve opened. The sessions come first: only then do calls
// that are still under way return, to be answered.
func (p program) end(s transport, sessions *sandbox.Sessions, l *local, log *slog.Logger, limit time.Duration, reason error) int {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errors.New("closing took too long"))
	defer cancel()
	closed := make(chan error, 1)
	others := make(chan error, 1)
	go func() { others <- closeExternals(l.others) }() // who waits for one of them is not waited for
	go func() { closed <- errors.Join(sessions.Close(), s.finish(ctx), l.close(), <-others) }()
	var err error
	select {
	case err = <-closed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err = errors.Join(reason, err); err != nil {
		log.Error("ended in disorder", "err", err)
		return exitFailed
	}
	log.Info("ended")
	return exitOK
}

// openLimited opens the local sandbox, once its packages are there: that may take as long
// as downloading does.
func (p program) openLimited(ctx context.Context, cfg localConfig) (*local, error) {
	if cfg.Requirements != "" {
		python, err := p.environment(ctx, cfg)
		if err != nil {
			return nil, err
		}
		cfg.Python = python
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the sandbox did not start within %v", startLimit))
	defer cancel()
	return p.open(ctx, cfg)
}

// hostUser is who started us.
func hostUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// hostCaller is the user who started us, over the one connection named.
func hostCaller(connection string) func(context.Context) sandbox.Caller {
	caller := sandbox.Caller{Principal: hostUser(), Connection: connection}
	return func(context.Context) sandbox.Caller { return caller }
}

func (f wallFlags) mounts() []string {
	var names []string
	for _, m := range f.Mount {
		names = append(names, m.String())
	}
	return names
}
