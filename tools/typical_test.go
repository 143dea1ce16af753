package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

// typical are results as models meet them.
func typical() []struct {
	name string
	outcome
} {
	const session = "0b9f1c9e-7d1c-4b57-9a50-3f1f6f1f3a11"
	ok := func(r sandbox.Result) outcome {
		if r.Status == "" {
			r.Status = sandbox.StatusOK
		}
		if r.State == "" {
			r.State = sandbox.StateKept
		}
		return outcome{res: r, session: session}
	}
	value := func(s string) json.RawMessage { return json.RawMessage(s) }
	kept := func(n int) string { return sandbox.OutputURI(session, n) }
	picture := sandbox.Display{MIME: "image/png", Data: []byte("p"), Width: 640, Height: 480}
	return []struct {
		name string
		outcome
	}{
		{"nothing", ok(sandbox.Result{})},
		{"print", ok(sandbox.Result{Stdout: "hello\n"})},
		{"a number", ok(sandbox.Result{Output: value("42")})},
		{"a text", ok(sandbox.Result{Output: value(`"naïve"`)})},
		{"an object", ok(sandbox.Result{Output: value(`{"rows":3,"ok":true,"mean":"NaN"}`)})},
		{"print, warning, value and _return", ok(sandbox.Result{Stdout: "fitting\n", Stderr: "<call 3>:2: FutureWarning: soon\n", Output: value("0.93"), ReturnValue: value(`{"n":200}`)})},
		{"a table", ok(sandbox.Result{
			Output:   value(`"DataFrame, 2 rows x 2 columns\ntypes: int64, str\n   a  b\n0  1  x\n1  2  y"`),
			Displays: []sandbox.Display{{MIME: "text/html", Original: []byte("<table>"), OriginalMIME: "text/html", URI: kept(1)}},
		})},
		{"two figures", ok(sandbox.Result{Stdout: "drawn\n", Displays: []sandbox.Display{picture, picture}})},
		{"a large figure", ok(sandbox.Result{Displays: []sandbox.Display{
			{MIME: "image/png", Data: []byte("p"), Width: 2000, Height: 1125, Original: []byte("original"), OriginalMIME: "image/png", URI: kept(2), About: "scaled down from 4800 x 2700"},
		}})},
		{"nine figures", ok(sandbox.Result{Displays: []sandbox.Display{
			picture, picture, picture, picture, picture, picture, picture, picture,
			{MIME: "image/png", Original: make([]byte, 20_000), OriginalMIME: "image/png", URI: kept(3), About: "not shown, since 8 images at most go with a result"},
		}})},
		{"Markdown, SVG and a chart", ok(sandbox.Result{Displays: []sandbox.Display{
			{MIME: "text/markdown", Data: []byte("## Findings\n\n* one\n* two\n")},
			{MIME: "image/svg+xml", Original: []byte("<svg/>"), OriginalMIME: "image/svg+xml", URI: kept(1)},
			{MIME: "application/vnd.plotly.v1+json", Original: []byte("{}"), OriginalMIME: "application/vnd.plotly.v1+json", URI: kept(2), About: "JSON for a browser to draw; for a picture, draw it with Matplotlib, or call fig.write_image() where kaleido is installed"},
		}})},
		{"an exception after a print and a figure", ok(sandbox.Result{
			Status: sandbox.StatusError, ExitCode: 1, Stdout: "loaded\n", Displays: []sandbox.Display{picture},
			Error: "Traceback (most recent call last):\n  File \"<call 4>\", line 7, in <module>\n--> frame[\"prise\"].mean()\n    ~~~~~^^^^^^^^^\n  ... 2 library frames, the last: pandas/core/indexes/base.py:3812 in get_loc\nKeyError: 'prise'",
		})},
		{"sys.exit(3)", ok(sandbox.Result{Status: sandbox.StatusError, ExitCode: 3, Error: "SystemExit: 3"})},
		{"a time-out, interrupted", ok(sandbox.Result{
			Status: sandbox.StatusTimeout, ExitCode: 124, Stdout: "epoch 1\nepoch 2\n",
			Error: advised("The time limit of 30s was reached. The code was interrupted; the variables are kept as they were at that moment.\n\nTraceback (most recent call last):\n  File \"<call 5>\", line 3, in <module>\n--> train(model)\nKeyboardInterrupt", 30*time.Second, 10*time.Minute),
		})},
		{"a time-out, killed", ok(sandbox.Result{
			Status: sandbox.StatusTimeout, ExitCode: 124, State: sandbox.StateRestored,
			Error: advised("The time limit of 10m0s was reached. The code did not stop when it was interrupted, so the interpreter was ended. What the call changed in variables is undone: they are restored from the last checkpoint. The files of the workspace are as the call left them.", 10*time.Minute, 10*time.Minute),
		})},
		{"out of memory", ok(sandbox.Result{Status: sandbox.StatusOOM, ExitCode: 137, State: sandbox.StateLost, Error: "The interpreter was ended: the session went beyond its memory limit of 2 GiB. All variables are lost; the files of the workspace are kept. The next call starts a fresh interpreter."})},
		{"a crash", ok(sandbox.Result{Status: sandbox.StatusCrash, ExitCode: 139, State: sandbox.StateRestored, Error: "The interpreter ended: killed by signal 11, segmentation fault. What the call changed in variables is undone: they are restored from the last checkpoint. The files of the workspace are as the call left them.", Notes: []string{"not restored: 1 socket, at the end now"}})},
		{"long output", ok(sandbox.Result{
			Stdout:    "line 1\n… [9980000 bytes left out; all 10000000 are in the resource " + kept(4) + "] …\nline 99999\n",
			Truncated: sandbox.Truncation{Stdout: sandbox.Count{Produced: 10_000_000, Kept: 20_000, Rest: kept(4), Held: 10_000_000}},
		})},
		{"files and calls", ok(sandbox.Result{
			Files: []sandbox.File{{Path: "report.csv", Size: 5120}, {Path: "out/plot.png", Size: 20480}},
			Calls: []sandbox.Call{{Name: "github.search_issues", Duration: 1200 * time.Millisecond, OK: true}, {Name: "github.get_file", Duration: 90 * time.Millisecond}},
		})},
		{"a restored session, named", func() outcome {
			o := ok(sandbox.Result{Output: value("3"), State: sandbox.StateRestored, Notes: []string{"not kept: db (sqlite3.Connection)"}})
			o.named = true
			return o
		}()},
		{"a command that finds nothing", outcome{session: session, what: "command", res: sandbox.Result{Status: sandbox.StatusError, ExitCode: 1, State: sandbox.StateNone}}},
		{"an unknown session", outcome{err: fmt.Errorf("%w: it has ended or never was; leave session_id out, or give \"new\" for a fresh one", sandbox.ErrUnknownSession)}},
		{"a broken sandbox", outcome{session: session, err: &sandbox.Error{Status: sandbox.StatusInfra, Layer: "cgroup", Err: errors.New("write /sys/fs/cgroup: read-only")}}},
	}
}

// TestTypicalResults is the golden copy of what a model reads. Run with -update after a
// change that is meant, and read it as a model would.
func TestTypicalResults(t *testing.T) {
	const golden = "testdata/results.txt"
	var got strings.Builder
	for _, c := range typical() {
		answer := render(c.result(), c.session, c.named)
		text := answer.Content[0].(mcp.TextContent).Text
		fmt.Fprintf(&got, "=== %s", c.name)
		if n := len(answer.Content) - 1; n > 0 {
			fmt.Fprintf(&got, " (and %d images)", n)
		}
		fmt.Fprintf(&got, "\n%s\n", text)
		if answer.IsError == c.result().Success() {
			t.Errorf("%s: isError is %v", c.name, answer.IsError)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
}
