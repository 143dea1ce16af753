package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// withCommands lets newTools offer execute_cli.
func withCommands(t *testing.T, o allowlist.Options) func(*Config) {
	t.Helper()
	list, err := allowlist.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Allow = list }
}

// commanded is a Fake whose commands end with what answer says.
func commanded(answer func(req sandbox.CommandRequest) (sandbox.Result, error)) *sandboxtest.Fake {
	return &sandboxtest.Fake{Commands: func(_ context.Context, _ string, _ int, req sandbox.CommandRequest) (sandbox.Result, error) {
		return answer(req)
	}}
}

func TestExecuteCLI(t *testing.T) {
	fake := commanded(func(sandbox.CommandRequest) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNone, Stdout: "2\n"}, nil
	})
	tools := newTools(t, fake, withCommands(t, allowlist.Options{}))
	first, text := call(t, tools, executeCLI, `{"command": "grep -c 'a|b' *.txt | sort && pwd", "timeout_s": 2.5}`)
	if !first.Success || first.State != sandbox.StateNone || first.SessionID == "" || text != "2" {
		t.Errorf("%+v\n%s", first, text)
	}
	python, _ := call(t, tools, executePython, `{"code": "1"}`)
	if python.SessionID != first.SessionID || python.State != sandbox.StateNew {
		t.Errorf("code after a command: %+v", python)
	}
	if other, text := call(t, tools, executeCLI, `{"command": "ls", "session_id": "new"}`); other.SessionID == first.SessionID || text != "2\nsession_id: "+other.SessionID {
		t.Errorf("%+v\n%s", other, text)
	}
	got := fake.Events(sandboxtest.EventCommand)
	want := &allowlist.Pipeline{Steps: []allowlist.Step{
		{Stages: []allowlist.Stage{
			{Name: "grep", Args: []allowlist.Arg{{Text: "-c"}, {Text: "a|b"}, {Text: "*.txt", Pattern: "*.txt"}}},
			{Name: "sort"},
		}},
		{Stages: []allowlist.Stage{{Name: "pwd"}}},
	}}
	if d := cmp.Diff(want, got[0].Command.Pipeline, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if r := got[0].Command; r.Timeout != 2500*time.Millisecond || r.Command != "grep -c 'a|b' *.txt | sort && pwd" || r.Progress != nil {
		t.Errorf("%+v", r)
	}
	if r := got[1].Command; r.Timeout != 30*time.Second {
		t.Errorf("%+v", r)
	}
}

// What the list refuses never reaches a session; what is said of it names the
// rule.
func TestCommandsRefused(t *testing.T) {
	fake := commanded(func(sandbox.CommandRequest) (sandbox.Result, error) { return sandbox.Result{}, errors.New("reached") })
	strict := newTools(t, fake, withCommands(t, allowlist.Options{Strict: true}))
	usual := newTools(t, fake, withCommands(t, allowlist.Options{}))
	for _, c := range []struct {
		tools *Tools
		line  string
		want  []string
	}{
		{usual, "cat a.txt > b.txt", []string{"`>` at column 11", "(rule: operator)"}},
		{usual, "ls; rm -rf .", []string{"`;` at column 3", "(rule: operator)"}},
		{usual, "curl x", []string{"`curl`", "(rule: command)"}},
		{usual, "find . -delete", []string{"find -delete", "column 8", "(rule: argument)"}},
		{usual, "echo $(id)", []string{"`$(` at column 6", "(rule: "}},
		{usual, "echo 'a", []string{"(rule: "}},
		{usual, "echo \x00", []string{"(rule: "}},
		{usual, "echo " + strings.Repeat("x", 8<<10), []string{"longer than 8 KiB", "(rule: limit)"}},
		{usual, "echo " + strings.Repeat("x", 1<<20), []string{"longer than 8 KiB", "(rule: limit)"}},
		{strict, "awk '$1 > 2' a.txt", []string{"`>`", "(rule: "}},
	} {
		args, err := json.Marshal(map[string]string{"command": c.line})
		if err != nil {
			t.Fatal(err)
		}
		res, text := call(t, c.tools, executeCLI, string(args))
		if res.Status != sandbox.StatusDenied || res.ExitCode != 126 || res.Success || res.State != sandbox.StateNone || res.SessionID != "" {
			t.Errorf("%q: %+v", c.line, res)
		}
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%q: %q lacks %q", c.line, text, w)
			}
		}
		if !strings.HasPrefix(text, "error (denied, exit code 126): ") || len(text) > 1000 {
			t.Errorf("%q: %s", c.line, text)
		}
	}
	if n := len(fake.Events()); n != 0 {
		t.Errorf("%d events for lines that were refused", n)
	}
}

// A refusal may come late, when patterns have become names.
func TestCommandRefusedInside(t *testing.T) {
	refusal := &allowlist.Error{Rule: "argument", Found: "-o", Offset: -1, Message: "`-o` of sort writes a file, which is never allowed"}
	for name, err := range map[string]error{
		"as the wall says it": &sandbox.Error{Status: sandbox.StatusDenied, ExitCode: 126, Err: refusal},
		"bare":                fmt.Errorf("srt: %w", refusal),
	} {
		tools := newTools(t, commanded(func(sandbox.CommandRequest) (sandbox.Result, error) { return sandbox.Result{}, err }), withCommands(t, allowlist.Options{}))
		res, text := call(t, tools, executeCLI, `{"command": "sort *"}`)
		if want := "error (denied, exit code 126): `-o` of sort writes a file, which is never allowed (rule: argument)"; res.Status != sandbox.StatusDenied || text != want {
			t.Errorf("%s: %s\n%s\nwant\n%s", name, res.Status, text, want)
		}
	}
}

func TestCommandArguments(t *testing.T) {
	tools := newTools(t, commanded(func(sandbox.CommandRequest) (sandbox.Result, error) { return sandbox.Result{}, errors.New("reached") }), withCommands(t, allowlist.Options{}))
	for args, want := range map[string][]string{
		`{}`:                              {"`command` is required"},
		`{"command": null}`:               {"`command` is required"},
		`{"command": " \n"}`:              {"`command` is empty"},
		`{"command": ["ls", "-l"]}`:       {"`command` must be a string, one command line", `got ["ls","-l"]`},
		`{"cmd": "ls"}`:                   {"unknown argument \"cmd\" (did you mean `command`?)", "`command` is required"},
		`{"code": "ls"}`:                  {"(did you mean `command`?)"},
		`{"args": "ls"}`:                  {"(did you mean `command`?)"},
		`{"cli": "ls"}`:                   {"(did you mean `command`?)"},
		`{"comand": "ls"}`:                {"(did you mean `command`?)"},
		`{"command": "ls", "inputs": {}}`: {"unknown argument \"inputs\": known are `command`, `timeout_s`, `session_id`"},
		`{"command": "ls", "timeout": 3}`: {"(did you mean `timeout_s`?)"},
		`{"command": "ls", "timeout_s": 601, "session_id": 1}`: {"`timeout_s` must be a number of seconds above 0 and at most 600", "`session_id` must be"},
	} {
		res, _ := call(t, tools, executeCLI, args)
		if res.Status != sandbox.StatusInvalid || res.ExitCode != 2 {
			t.Errorf("%.100s: %+v", args, res)
			continue
		}
		for _, w := range want {
			if !strings.Contains(*res.Error, w) {
				t.Errorf("%.100s: %q lacks %q", args, *res.Error, w)
			}
		}
	}
	// The same words of a model mean code where there is code.
	python, _ := call(t, tools, executePython, `{"command": "ls", "args": {}}`)
	for _, w := range []string{"\"command\" (did you mean `code`?)", "\"args\" (did you mean `inputs`?)"} {
		if !strings.Contains(*python.Error, w) {
			t.Errorf("%q lacks %q", *python.Error, w)
		}
	}
}

// How commands end, as a model reads it.
func TestCommandResults(t *testing.T) {
	for name, c := range map[string]struct {
		res  sandbox.Result
		err  error
		want string
	}{
		"no match": {sandbox.Result{Status: sandbox.StatusError, ExitCode: 1, Error: "grep: exit status 1", State: sandbox.StateNone}, nil,
			"exit code 1: grep: exit status 1"},
		"missing file": {sandbox.Result{Status: sandbox.StatusError, ExitCode: 2, Stderr: "ls: cannot access 'x'\n", Error: "ls: exit status 2", State: sandbox.StateNone}, nil,
			"stderr: ls: cannot access 'x'\nexit code 2: ls: exit status 2"},
		"time-out": {sandbox.Result{Status: sandbox.StatusTimeout, Stdout: "a\n", Error: "stopped after 1 s", State: sandbox.StateNone}, nil,
			"a\nerror (timeout, exit code 124): stopped after 1 s"},
		"notes": {sandbox.Result{Status: sandbox.StatusOK, Stdout: "a\n", Notes: []string{"cat: exit status 1"}, State: sandbox.StateNone}, nil,
			"a\nnote: cat: exit status 1"},
		"not here": {sandbox.Result{}, sandbox.Invalid("jq is not on this machine"),
			"error (invalid, exit code 2): jq is not on this machine"},
		"no commands": {sandbox.Result{}, fmt.Errorf("no commands: %w", errors.ErrUnsupported),
			"error (invalid, exit code 2): no commands: unsupported operation"},
		"gone": {sandbox.Result{}, &sandbox.Error{Status: sandbox.StatusCancelled, Err: context.Canceled},
			"error (cancelled, exit code 130): the caller went away before the command was started: it did not run"},
		"broken": {sandbox.Result{}, &sandbox.Error{Status: sandbox.StatusInfra, Layer: "warden", Err: errors.New("/srv/secret")},
			"error (infra, exit code 125): the sandbox failed (warden); the command did not run. The server's log has the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			tools := newTools(t, commanded(func(sandbox.CommandRequest) (sandbox.Result, error) { return c.res, c.err }), withCommands(t, allowlist.Options{}))
			if _, text := call(t, tools, executeCLI, `{"command": "ls"}`); text != c.want {
				t.Errorf("%s\nwant\n%s", text, c.want)
			}
		})
	}
}

func TestCLIIsOffered(t *testing.T) {
	names := func(tools *Tools) (names []string) {
		for _, def := range tools.defs {
			names = append(names, def.Name)
		}
		return names
	}
	none := newTools(t, &sandboxtest.Fake{}, nil)
	if got := names(none); slices.Contains(got, executeCLI) || strings.Contains(none.instructions(), executeCLI) {
		t.Errorf("without a list there are %q; %s", got, none.instructions())
	}
	if res, _ := call(t, none, executeCLI, `{"command": "ls"}`); res.Status != sandbox.StatusInvalid || !strings.Contains(*res.Error, "unknown tool") {
		t.Errorf("%+v", res)
	}
	some := newTools(t, &sandboxtest.Fake{}, func(c *Config) {
		withCommands(t, allowlist.Options{Strict: true})(c)
		c.Commands, c.Mounts = []string{"cat", "ls"}, []string{"/data (read-only)", "/out (writable)"}
	})
	def := some.defs[slices.Index(names(some), executeCLI)]
	for _, want := range []string{"Commands: cat ls.", "refused even when quoted", "read-only here, like /data, /out;", "Time limit: 30 s"} {
		if !strings.Contains(def.Description, want) {
			t.Errorf("%q lacks %q", def.Description, want)
		}
	}
	if !strings.Contains(some.instructions(), executeCLI) {
		t.Errorf("the instructions don't name it: %s", some.instructions())
	}
	list, err := allowlist.New(allowlist.Options{Only: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"no list":         {Commands: []string{"ls"}},
		"not on the list": {Allow: list, Commands: []string{"ls"}},
	} {
		if err := cfg.checkCommands(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
