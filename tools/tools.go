package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// Config says what the tools stand on, and what their descriptions promise.
type Config struct {
	Sessions   *sandbox.Sessions                    // runs the code; required
	Caller     func(context.Context) sandbox.Caller // who asks, by a request's context; required
	Turn       func(context.Context) error          // waits until calls that the same client sent before, for the same session, are over; nil = no order
	Timeout    time.Duration                        // of a call that names none; 0 = 30 s
	MaxTimeout time.Duration                        // the most a call may ask for; 0 = 600 s, or Timeout if that is longer
	Idle       time.Duration                        // when an unused session ends, for the description; 0 = 30 min
	MaxAge     time.Duration                        // when any session ends, for the description; 0 = 24 h
	Python     string                               // version, for the description; "" = not told
	Packages   []string                             // importable besides the standard library, for the description
	Preloaded  []string                             // of these and of the library, what is imported ahead, for the description
	Workspace  Workspace                            // what /workspace is, for the description
	HostPaths  bool                                 // code finds its workspace where the host has it, and not at /workspace: the description names no path
	Handles    bool                                 // some clients have no connection that a call could belong to: the description asks for ids
	Network    []string                             // hosts that local code may reach, for the description; nil = none
	Mounts     []string                             // other directories, as the description is to name them
	Allow      *allowlist.List                      // judges command lines; nil = execute_cli is not offered
	Commands   []string                             // those of Allow that can run, for the description; nil = all
	Backends   []string                             // where Python runs, the default first; two = execute_python takes the choice; nil = the local one
	Remote     Remote                               // what the workload backend is, for the description
	Externals  sandbox.Externals                    // tools that code may call; nil = none
	Learn      func(context.Context)                // begins to find out which they are, and waits for it until its context ends; nil = they are known
	Version    string                               // of the server, as it introduces itself; "" = "dev"
	Log        *slog.Logger                         // nil = none

	ExternalsLimits sandbox.ExternalsLimits // of one call

	Instruments *sandbox.Instruments // measure each call of code or commands; nil = nothing does
	Record      func(sandbox.Record) // is given each call that has ended, refused ones too; must not block; nil = nobody keeps any
}

// Workspace says what a guest finds at /workspace.
type Workspace int

// The kinds of workspaces.
const (
	Private Workspace = iota // a directory of the session's own, gone with it
	Shared                   // the operator's directory, writable
	Folder                   // the session's own folder in the operator's directory, which stays
)

func (c Config) resolve() (Config, error) {
	var errs []error
	if c.Sessions == nil {
		errs = append(errs, errors.New("no sessions"))
	}
	if c.Caller == nil {
		errs = append(errs, errors.New("no caller"))
	}
	if c.Turn == nil {
		c.Turn = func(context.Context) error { return nil }
	}
	if c.Timeout == 0 {
		c.Timeout = sandbox.DefaultTimeout
	}
	if c.MaxTimeout == 0 {
		c.MaxTimeout = max(10*time.Minute, c.Timeout)
	}
	if c.Timeout < 0 || c.Timeout > c.MaxTimeout {
		errs = append(errs, fmt.Errorf("timeout: %v is not above 0 and at most the maximum, %v", c.Timeout, c.MaxTimeout))
	}
	if c.Idle == 0 {
		c.Idle = 30 * time.Minute
	}
	if c.MaxAge == 0 {
		c.MaxAge = 24 * time.Hour
	}
	if err := c.checkCommands(); err != nil {
		errs = append(errs, err)
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Learn == nil {
		c.Learn = func(context.Context) {}
	}
	if c.Record == nil {
		c.Record = func(sandbox.Record) {}
	}
	return c, errors.Join(errs...)
}

// Tools are the tools over one set of sessions. They are safe for concurrent use.
type Tools struct {
	cfg   Config
	defs  []mcp.Tool
	reads chan struct{} // holds a token for each resource that is being read
}

// New checks cfg and fills its values into the tools' descriptions.
func New(cfg Config) (*Tools, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	defs, err := describe(cfg)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return &Tools{cfg: cfg, defs: defs, reads: make(chan struct{}, maxReads)}, nil
}

// Server is an MCP server that offers the tools, for any transport.
func (t *Tools) Server() *server.MCPServer {
	s := server.NewMCPServer("mcp-sandbox", t.cfg.Version,
		server.WithToolCapabilities(false),
		server.WithResourceCapabilities(false, false),
		server.WithHooks(t.hooks()),
		server.WithTitle("Python sandbox"),
		server.WithInstructions(t.instructions()),
	)
	for _, def := range t.defs {
		s.AddTool(def, func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return t.handle(ctx, def.Name, req), nil
		})
	}
	t.offerResources(s)
	return s
}

func (t *Tools) instructions() string {
	text := "Runs Python in a live, sandboxed interpreter: state survives between execute_python calls."
	if t.cfg.Allow != nil {
		text += " execute_cli reads the same files with the usual commands (ls, grep, awk, …)."
	}
	text += " Resources: sandbox://{session_id}/files/{path}, and …/outputs/{n} for output too long for a result."
	return text
}

// Call runs one tool as a client's request would, without a client. Besides the
// answer it returns the exit code within.
func (t *Tools) Call(ctx context.Context, name string, arguments json.RawMessage) (*mcp.CallToolResult, int) {
	var req mcp.CallToolRequest
	req.Params.Name = name
	req.Params.RawArguments = arguments
	res := t.handle(ctx, name, req)
	return res, res.StructuredContent.(report).ExitCode
}

// outcome is what a tool did: a result or an error, as sandbox.Sessions puts it.
type outcome struct {
	res     sandbox.Result
	session string // "" = none
	named   bool   // the caller goes by ids, so that the text must name the session
	err     error
	what    string // what was to run, for a sentence: code or command; "" = code
	source  string // that itself; "" = nothing was

	principal string // who asked
}

// of says what was to run.
func (o outcome) of(what, source string) outcome {
	o.what, o.source = what, source
	return o
}

// handle runs a tool and turns whatever happens into a result.
func (t *Tools) handle(ctx context.Context, name string, req mcp.CallToolRequest) *mcp.CallToolResult {
	start := time.Now()
	ctx, execution := t.begin(ctx, name, req)
	out := t.run(ctx, name, req)
	res := out.result()
	execution.End(out.principal, out.session, res)
	t.cfg.Record(sandbox.Record{
		Time: start, Took: time.Since(start), Principal: out.principal, Session: out.session,
		Tool: name, Source: out.source, Status: res.Status, ExitCode: res.ExitCode,
		Calls: res.Calls,
	})
	level := slog.LevelInfo
	if res.Status == sandbox.StatusInfra {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("tool", name), slog.String("session", out.session), slog.String("status", string(res.Status)),
		slog.Int("exit", res.ExitCode), slog.String("state", string(res.State)),
		slog.Duration("ran", res.Duration), slog.Duration("took", time.Since(start)),
	}
	if out.err != nil && res.Status == sandbox.StatusInfra {
		attrs = append(attrs, slog.Any("err", out.err))
	}
	t.cfg.Log.LogAttrs(ctx, level, "call", attrs...)
	answer := render(res, out.session, out.named)
	answer.Content = append(answer.Content, links(ctx, res, out.session)...)
	return answer
}

// begin measures a call of what runs something.
func (t *Tools) begin(ctx context.Context, name string, req mcp.CallToolRequest) (context.Context, *sandbox.Execution) {
	if name == resetSession {
		return ctx, nil
	}
	var caller map[string]string // its trace, where MCP has it: in _meta
	if m := req.Params.Meta; m != nil {
		for _, key := range []string{"traceparent", "tracestate"} {
			if v, ok := m.AdditionalFields[key].(string); ok {
				if caller == nil {
					caller = map[string]string{}
				}
				caller[key] = v
			}
		}
	}
	return t.cfg.Instruments.Begin(ctx, name, caller)
}

func (t *Tools) run(ctx context.Context, name string, req mcp.CallToolRequest) (out outcome) {
	var principal string
	defer func() {
		if p := recover(); p != nil {
			out = outcome{err: fmt.Errorf("panic: %v", p)}
			t.cfg.Log.Error("panic in a tool", "tool", name, "panic", p, "stack", string(debug.Stack()))
		}
		out.principal = principal
	}()
	principal = t.cfg.Caller(ctx).Principal
	raw, err := rawArguments(ctx, req)
	if err != nil {
		return outcome{err: sandbox.Invalid("the arguments are not JSON: %w", err)}
	}
	switch name {
	case executePython:
		return t.executePython(ctx, req, raw)
	case executeCLI:
		if t.cfg.Allow != nil {
			return t.executeCLI(ctx, req, raw)
		}
	case resetSession:
		return t.resetSession(ctx, raw)
	}
	return outcome{err: sandbox.Invalid("unknown tool %q", name)}
}

type argumentsKey struct{}

// WithArguments derives the context of a request whose arguments a transport
// has kept from mcp-go, which would decode them and refuse what no float holds.
func WithArguments(ctx context.Context, raw json.RawMessage) context.Context {
	return context.WithValue(ctx, argumentsKey{}, raw)
}

// rawArguments are the arguments as they came; a client within the process
// may have sent them decoded.
func rawArguments(ctx context.Context, req mcp.CallToolRequest) (json.RawMessage, error) {
	if raw, kept := ctx.Value(argumentsKey{}).(json.RawMessage); kept {
		return raw, nil
	}
	if len(req.Params.RawArguments) > 0 || req.Params.Arguments == nil {
		return req.Params.RawArguments, nil
	}
	return json.Marshal(req.Params.Arguments)
}

func (t *Tools) executePython(ctx context.Context, req mcp.CallToolRequest, raw json.RawMessage) outcome {
	known := []string{"code", "inputs", "timeout_s", "session_id"}
	if len(t.cfg.Backends) > 1 {
		known = append(known, "backend")
	}
	a := newArguments(raw, known...)
	r := sandbox.Request{
		Code: a.code(), Inputs: a.inputs(), Timeout: a.timeout(t.cfg.Timeout, t.cfg.MaxTimeout), Backend: a.backend(t.cfg.Backends),
		Externals: t.cfg.Externals, ExternalsLimits: t.cfg.ExternalsLimits,
	}
	id := a.sessionID()
	backend := t.python(r.Backend)
	if err := a.err(); err != nil {
		return outcome{res: sandbox.Result{Backend: backend}, err: err, source: r.Code}
	}
	return t.inSession(ctx, req, id, func(ctx context.Context, who sandbox.Caller, p *progress) (sandbox.Result, string, error) {
		r.Progress = p.sink()
		res, session, err := t.cfg.Sessions.Run(ctx, who, id, r)
		if res.Status == sandbox.StatusTimeout {
			res.Error = advised(res.Error, r.Timeout, t.cfg.MaxTimeout)
		}
		if res.Backend == "" { // it did not get that far
			res.Backend = backend
		}
		return res, session, err
	}).of("code", r.Code)
}

// python is where Python would have run, had a call got as far: a fault of the
// remote sandbox must not look like one of the local one.
func (t *Tools) python(asked string) string {
	switch {
	case slices.Contains(t.cfg.Backends, asked):
		return asked
	case len(t.cfg.Backends) > 0:
		return t.cfg.Backends[0]
	}
	return sandbox.BackendLocal
}

// inSession makes a call in the session with this id, once calls that the same
// client sent before are over.
func (t *Tools) inSession(ctx context.Context, req mcp.CallToolRequest, id string, call func(context.Context, sandbox.Caller, *progress) (sandbox.Result, string, error)) outcome {
	p := newProgress(ctx, req)
	defer p.stop()
	who := t.cfg.Caller(ctx)
	if err := t.cfg.Turn(ctx); err != nil {
		return outcome{err: notRun(err)}
	}
	res, session, err := call(ctx, who, p)
	if errors.Is(err, sandbox.ErrClosed) && ctx.Err() != nil { // both came; the caller's going was first
		err = ctx.Err()
	}
	return outcome{res: res, session: session, named: id != "" || who.Connection == "", err: err}
}

func (t *Tools) resetSession(ctx context.Context, raw json.RawMessage) outcome {
	a := newArguments(raw, "session_id", "close")
	id, end := a.sessionID(), a.flag("close")
	if err := a.err(); err != nil {
		return outcome{err: err}
	}
	who := t.cfg.Caller(ctx)
	if id == "" && who.Connection == "" {
		return outcome{err: sandbox.Invalid("`session_id` is required here, since this connection has no session of its own: give the one that a result named")}
	}
	if !end { // what is to end need not end first
		if err := t.cfg.Turn(ctx); err != nil {
			return outcome{err: notRun(err)}
		}
	}
	session, err := t.cfg.Sessions.Reset(ctx, who, id, end)
	out := outcome{res: sandbox.Result{Backend: t.python("")}, session: session, named: id != "" || who.Connection == "", err: err}
	switch {
	case err != nil:
	case end:
		out.res = sandbox.Result{Backend: out.res.Backend, Status: sandbox.StatusOK, State: sandbox.StateNone, Notes: []string{"the session is closed"}}
	default:
		out.res = sandbox.Result{Backend: out.res.Backend, Status: sandbox.StatusOK, State: sandbox.StateNew, Notes: []string{"all variables are forgotten; the files in " + t.cfg.at() + " stay"}}
	}
	return out
}
