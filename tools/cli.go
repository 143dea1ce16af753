package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

func (t *Tools) executeCLI(ctx context.Context, req mcp.CallToolRequest, raw json.RawMessage) outcome {
	a := newArguments(raw, "command", "timeout_s", "session_id")
	r := sandbox.CommandRequest{Command: a.command(), Timeout: a.timeout(t.cfg.Timeout, t.cfg.MaxTimeout)}
	id := a.sessionID()
	if err := a.err(); err != nil {
		return outcome{err: err}.of("command", r.Command)
	}
	pipeline, err := t.cfg.Allow.Parse(r.Command)
	if err != nil {
		return outcome{err: refused(err)}.of("command", r.Command)
	}
	r.Pipeline = pipeline
	out := t.inSession(ctx, req, id, func(ctx context.Context, who sandbox.Caller, p *progress) (sandbox.Result, string, error) {
		r.Progress = p.sink()
		return t.cfg.Sessions.RunCommand(ctx, who, id, r)
	}).of("command", r.Command)
	if hint := allowlist.Typographic(r.Command); hint != "" && out.res.Status == sandbox.StatusError {
		out.res.Notes = append(out.res.Notes, hint)
	}
	return out
}

// refused is the error of a command line that the allowlist does not let pass.
// One without a command, as of a comment alone, is not denied: it asks for nothing.
func refused(err error) error {
	status := sandbox.StatusDenied
	if e := (*allowlist.Error)(nil); errors.As(err, &e) && e.Rule == "empty" {
		status = sandbox.StatusInvalid
	}
	return &sandbox.Error{Status: status, ExitCode: status.ExitCode(), Err: err}
}

// refusal is an allowlist's sentence, which says where, and what would be
// allowed, with the rule.
func refusal(e *allowlist.Error) string {
	return fmt.Sprintf("%s (rule: %s)", e.Message, e.Rule)
}

func (a *arguments) command() string {
	raw, ok := a.field("command")
	if !ok {
		a.fault("`command` is required: give the command line, as a string")
		return ""
	}
	var command string
	switch {
	case json.Unmarshal(raw, &command) != nil:
		a.fault("`command` must be a string, one command line such as \"ls -l | head\"; got %s", show(raw))
	case halfCharacter(raw) != "":
		a.fault("`command` holds %s, half of a surrogate pair: send the whole character", halfCharacter(raw))
	case strings.TrimSpace(command) == "":
		a.fault("`command` is empty: give the command line")
	}
	return command
}

// checkCommands completes what the description tells of execute_cli.
func (c *Config) checkCommands() error {
	if c.Allow == nil {
		if len(c.Commands) > 0 {
			return errors.New("commands, but no allowlist for them")
		}
		return nil
	}
	if c.Commands == nil {
		c.Commands = c.Allow.Commands()
	}
	allowed := c.Allow.Commands()
	for _, name := range c.Commands {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("commands: %s is not on the allowlist", name)
		}
	}
	return nil
}

// quoting is what the description says of quoted operators.
func (c *Config) quoting() string {
	if c.Allow != nil && c.Allow.Options().Strict {
		return ", but ||, ;, `, $(, > and < are refused even when quoted"
	}
	return ": a quoted | or ; is text"
}

// readable names the other directories, of mounts as Config has them: here all
// are read-only.
func readable(mounts []string) string {
	if len(mounts) == 0 {
		return ""
	}
	var names []string
	for _, m := range mounts {
		name, _, _ := strings.Cut(m, " (")
		names = append(names, name)
	}
	return ", like " + strings.Join(names, ", ")
}
