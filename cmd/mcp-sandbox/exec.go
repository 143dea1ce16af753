package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt"
	"mcp-sandbox/tools"
)

// exec runs code once through execute_python, or a command line through
// execute_cli, and prints the text that a model would see. Its exit code is the
// result's.
func (p program) exec(ctx context.Context, c cli) int {
	f := c.Exec
	code, err := f.source(p.stdin)
	if err != nil {
		return p.fail(exitUsage, err)
	}
	here, err := os.Getwd()
	if err != nil {
		return p.fail(exitFailed, err)
	}
	log := p.logger(c.logFlags, slog.LevelWarn)
	local := localConfig{
		wallFlags: f.wallFlags, packageFlags: f.packageFlags, workspace: here, readOnly: true, allow: f.allow(),
		log: log, told: p.logger(c.logFlags, slog.LevelInfo),
	}
	if f.CLI { // commands import nothing
		local.packageFlags = packageFlags{}
	}
	l, err := f.open(ctx, p, local)
	if errors.Is(err, srt.ErrBroad) { // of a mount too, it will be said again
		fmt.Fprintf(p.stderr, "mcp-sandbox: the code does not see the current directory: %v\n", err)
		local.workspace, local.readOnly = "", false
		l, err = p.openLimited(ctx, local)
	}
	if err != nil {
		return p.fail(exitFailed, err)
	}
	f.warn(log, l)
	others, err := f.externalsFlags.open(f.remoteFlags, log)
	if err != nil {
		return p.fail(exitUsage, errors.Join(err, l.close()))
	}
	l.with(others)
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: l, Log: log})
	if err != nil {
		return p.fail(exitFailed, errors.Join(err, l.close()))
	}
	who := hostCaller("exec")
	kit := tools.Config{Sessions: sessions, Caller: who, Timeout: f.Timeout, MaxTimeout: f.MaxTimeout, Allow: local.allow, Log: log, HostPaths: l.places}
	f.offer(others, &kit)
	answer, exit, err := f.call(ctx, kit, code)
	if err == nil {
		err = p.show(answer, f.Out)
	}
	if id := tools.SessionOf(answer); err == nil && f.Out != "" && id != "" {
		err = saveOutputs(ctx, sessions, who(ctx), id, f.Out)
	}
	if err = errors.Join(err, sessions.Close(), l.close()); err != nil {
		p.fail(exitFailed, err)
		if exit == exitOK {
			exit = exitFailed
		}
	}
	return exit
}

// open opens where the code is to run, and no more than that.
func (f execFlags) open(ctx context.Context, p program, here localConfig) (*local, error) {
	if !f.CLI && f.backend(false, here.log) == sandbox.BackendWorkload {
		if len(f.AllowDomain) > 0 {
			here.log.Warn("--allow-domain is for code on this machine: what remote containers reach, the cluster decides")
		}
		f.without(here.log)
		return remoteConfig{f.remoteFlags, false}.open(here.limits(), here.log)
	}
	return p.openLimited(ctx, here)
}

// allow is nil for code, which needs no commands.
func (f execFlags) allow() *allowlist.List {
	if !f.CLI {
		return nil
	}
	return f.list()
}

func (f execFlags) call(ctx context.Context, cfg tools.Config, code string) (*mcp.CallToolResult, int, error) {
	t, err := tools.New(cfg)
	if err != nil {
		return nil, exitFailed, err
	}
	tool, argument := "execute_python", "code"
	if f.CLI {
		tool, argument = "execute_cli", "command"
	}
	arguments, err := json.Marshal(map[string]string{argument: code})
	if err != nil {
		return nil, exitFailed, err
	}
	answer, exit := t.Call(ctx, tool, arguments)
	if exit%256 == 0 && answer.IsError { // the system keeps eight bits
		exit = exitFailed
	}
	return answer, exit, nil
}

// source is the code to run.
func (f execFlags) source(stdin io.Reader) (string, error) {
	if f.File == "" && f.Code != "-" {
		return f.Code, nil
	}
	if f.File != "" && f.File != "-" {
		file, err := os.Open(f.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		stdin = file
	}
	// One byte beyond the limit is enough to be refused for its length.
	b, err := io.ReadAll(io.LimitReader(stdin, sandbox.MaxCode+1))
	if err == nil && !utf8.Valid(b) && len(b) <= sandbox.MaxCode {
		err = errors.New("the source is not UTF-8: convert it first, such as by iconv -f LATIN1 -t UTF-8")
	}
	return string(b), err
}

// show prints an answer's text, and saves its images in dir.
func (p program) show(answer *mcp.CallToolResult, dir string) error {
	images := 0
	for _, c := range answer.Content {
		switch c := c.(type) {
		case mcp.TextContent:
			if _, err := fmt.Fprintln(p.stdout, c.Text); err != nil {
				return err
			}
		case mcp.ImageContent:
			images++
			if dir == "" {
				continue
			}
			if err := save(dir, images, c); err != nil {
				return err
			}
		}
	}
	if images > 0 && dir == "" {
		fmt.Fprintf(p.stderr, "mcp-sandbox: %d image(s) not saved: give --out DIR\n", images)
	}
	return nil
}

// save writes the nth image as n.png, or what its type is.
func save(dir string, n int, image mcp.ImageContent) error {
	data, err := base64.StdEncoding.DecodeString(image.Data)
	if err != nil {
		return err
	}
	ending := ".bin" // the type is the guest's word: no path is made of it
	for _, known := range []string{"png", "jpeg", "gif", "webp", "svg+xml"} {
		if kind, _, err := mime.ParseMediaType(image.MIMEType); err == nil && kind == "image/"+known {
			ending = "." + strings.TrimSuffix(known, "+xml")
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d%s", n, ending)), data, 0o666)
}
