package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/srt"
	"mcp-sandbox/workload"
)

// TestMain lets the test binary be the product, and the product with a scripted
// sandbox in place of the wall.
func TestMain(m *testing.M) {
	if code, ok := within(os.Args, os.Stdin, os.Stdout, os.Stderr); ok { // a wall of ours
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){
		"mcp-sandbox": func() {
			os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
		},
		"bench-server": func() { os.Exit(benchServer()) },
		"bench-web":    func() { os.Exit(benchWeb()) },
		"conformance":  func() { os.Exit(serveFixture()) },
		"fake-sandbox": func() {
			ctx, stop := untilSignal(context.Background())
			defer stop()
			os.Exit(fakeProgram().run(ctx, os.Args[1:]))
		},
	})
}

func fakeProgram() program {
	return program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		facts: func() []srt.Fact {
			return []srt.Fact{
				{Name: "user namespace", State: srt.FactAvailable, Detail: "some"},
				{Name: "landlock", State: srt.FactAvailable, Detail: "ABI 7"},
				{Name: "seccomp", State: srt.FactAvailable, Detail: "filters"},
				{Name: "cgroup", State: srt.FactMissing, Detail: "not writable\nsince it is read-only", Remedy: "mount it"},
				{Name: "kernel", State: srt.FactInfo, Detail: "6.2"},
			}
		},
		environment: func(_ context.Context, cfg localConfig) (string, error) {
			cfg.told.Info("packages: Collecting " + cfg.Requirements)
			if strings.Contains(cfg.Requirements, "bad") {
				return "", &srt.LayerError{Layer: "packages", Err: errors.New("pip: exit status 1:\nno such package"), Remedy: "name another"}
			}
			return "/cache/bin/python", nil
		},
		reach: func(_ context.Context, cfg workload.Config) (workload.Account, error) {
			if cfg.Token == "wrong" {
				return workload.Account{}, &workload.APIError{Op: "GET account/info/", Status: 401, Detail: "no such token"}
			}
			return workload.Account{Host: "app.example.com", MaxWorkloads: 50}, nil
		},
		open: func(_ context.Context, cfg localConfig) (*local, error) {
			if cfg.Python == "none" {
				return nil, errors.New("no python3 on PATH: install it (apt install python3)")
			}
			if cfg.Python == "wall" {
				return nil, &sandbox.Error{Status: sandbox.StatusInfra, Layer: "userns", Err: fmt.Errorf("start: %w", &srt.LayerError{Layer: "userns", Err: errors.New("refused"), Remedy: "allow it"})}
			}
			wall := cfg.Wall
			switch wall {
			case srt.WallAuto:
				wall = srt.WallNative
			case srt.WallSRT:
				return nil, &srt.LayerError{Layer: "exec", Err: errors.New("srt is not on PATH"), Remedy: "npm install it"}
			}
			f := &fakePython{cfg: cfg}
			fake := &sandboxtest.Fake{Script: f.run}
			l := &local{
				Sandbox: fake, wall: wall, path: cmp.Or(cfg.Python, "/usr/bin/python3"), python: "3.12.1", packages: []string{"numpy 2.1.0"},
				prove: func(context.Context) ([]srt.Fact, error) {
					if cfg.Python == "unproven" {
						return nil, errors.New("the code that looks at the wall told nothing")
					}
					return []srt.Fact{
						{Name: "user namespace", State: srt.FactActive, Detail: "another"},
						{Name: "landlock", State: srt.FactActive, Detail: "refuses"},
						{Name: "no privileges", State: srt.FactActive, Detail: "none"},
						{Name: "watchdog", State: srt.FactActive, Detail: "looks"},
					}, nil
				},
				close: func() error {
					cfg.log.Info("fake: closed")
					return nil
				},
			}
			if cfg.allow != nil {
				fake.Commands = f.command
				l.commands, l.lacking, l.remedy = cfg.allow.Commands(), []string{"jq (not here)"}, "apt install jq"
			}
			return l, nil
		},
	}
}

// fakePython knows a few words: print TEXT, progress, sleep DURATION, hang, stubborn
// DURATION, value JSON, inputs, config, checkpoint, raise, crash, image, panic,
// exit N.
type fakePython struct{ cfg localConfig }

func (f *fakePython) run(ctx context.Context, _ string, n int, req sandbox.Request) (sandbox.Result, error) {
	res := sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept, Backend: "local", Duration: time.Millisecond}
	if n == 1 {
		res.State = sandbox.StateNew
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(req.Code), " ")
	switch word {
	case "print":
		res.Stdout = rest + "\n"
	case "progress":
		for i := range 3 {
			req.Progress(sandbox.Stdout, fmt.Appendf(nil, "step %d\n", i))
			time.Sleep(150 * time.Millisecond)
		}
	case "hang", "sleep", "stubborn":
		if word == "hang" {
			req.Progress(sandbox.Stdout, []byte("hanging\n"))
			rest = "60s"
		}
		d, err := time.ParseDuration(rest)
		if err != nil {
			return res, err
		}
		if word == "stubborn" {
			req.Progress(sandbox.Stdout, []byte("stubborn\n"))
			time.Sleep(d)
			break
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			f.cfg.log.Info("fake: interrupted")
			res.Status, res.ExitCode = sandbox.StatusCancelled, sandbox.StatusCancelled.ExitCode()
			return res, ctx.Err()
		}
	case "value":
		res.Output = json.RawMessage(rest)
	case "inputs":
		res.Output, _ = json.Marshal(req.Inputs)
	case "timeout":
		res.Output, _ = json.Marshal(req.Timeout.String())
	case "config":
		c := f.cfg
		res.Stdout = fmt.Sprintf("python=%s mounts=%v memory=%d tasks=%d disk=%d env=%q workspace=%s readonly=%v outputs=%d apart=%v warm=%d preload=%v\n",
			c.Python, c.Mount, c.Memory, c.MaxTasks, c.MaxDisk, c.Env, c.workspace, c.readOnly, c.MaxOutput, c.apart, c.Warm, c.Preload)
	case "limits":
		res.Stdout = fmt.Sprintf("%+v\n", req.ExternalsLimits)
	case "external": // SERVER TOOL JSON
		words := strings.SplitN(rest, " ", 3)
		begin := time.Now()
		r, err := req.Externals.Call(ctx, words[0], words[1], json.RawMessage(words[2]))
		res.Calls = []sandbox.Call{{Name: words[0] + "." + words[1], Duration: time.Since(begin), OK: err == nil}}
		if err != nil {
			res.Status, res.ExitCode, res.Error = sandbox.StatusError, 1, err.Error()
			break
		}
		res.Output = r.Value
	case "checkpoint":
		res.Stdout = f.cfg.checkpoint + "\n"
	case "raise":
		res.Status, res.ExitCode, res.Error = sandbox.StatusError, 1, "Traceback (most recent call last):\nValueError: "+rest
	case "exit":
		res.Status = sandbox.StatusError
		_, _ = fmt.Sscan(rest, &res.ExitCode)
	case "crash":
		res.Status, res.ExitCode, res.State = sandbox.StatusCrash, 139, sandbox.StateLost
	case "image":
		res.Displays = []sandbox.Display{{MIME: "image/png", Data: []byte("PNG\n")}, {MIME: "image/../../x", Data: []byte("?")}}
	case "panic":
		panic("fake")
	default:
		return res, fmt.Errorf("fake: unknown word %q", word)
	}
	return res, nil
}

// command knows a few commands: echo prints, grep finds nothing, tail waits, jq
// is not there.
func (f *fakePython) command(ctx context.Context, _ string, _ int, req sandbox.CommandRequest) (sandbox.Result, error) {
	res := sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateNone, Backend: "local", Duration: time.Millisecond}
	stage := req.Pipeline.Steps[0].Stages[0]
	switch stage.Name {
	case "echo":
		for _, a := range stage.Args {
			res.Stdout += a.Text + "\n"
		}
	case "grep":
		res.Status, res.ExitCode, res.Error = sandbox.StatusError, 1, "grep exited with 1"
	case "tail":
		req.Progress(sandbox.Stdout, []byte("waiting\n"))
		<-ctx.Done()
		res.Status, res.ExitCode = sandbox.StatusCancelled, sandbox.StatusCancelled.ExitCode()
		return res, ctx.Err()
	case "jq":
		return sandbox.Result{}, sandbox.Invalid("jq is not on this machine")
	default:
		return res, fmt.Errorf("fake: unknown command %q", stage.Name)
	}
	return res, nil
}
