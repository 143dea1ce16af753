package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

var everything = sandbox.Result{
	Status: sandbox.StatusError, Stdout: "a\nb\n", Stderr: "warned\n",
	Output: json.RawMessage(`{"n": 9007199254740993}`), ReturnValue: json.RawMessage(`[1]`),
	Displays: []sandbox.Display{{MIME: "image/png", Data: []byte("png")}, {MIME: "text/html", Original: []byte("<p>")}, {MIME: "text/markdown", Data: []byte("*x*")}},
	Error:    "Traceback:\nValueError: no\n", ExitCode: 1, Duration: 1500 * time.Millisecond, State: sandbox.StateKept,
	Notes: []string{"one"}, Files: []sandbox.File{{Path: "a.csv", Size: 3}}, Calls: []sandbox.Call{{Name: "s.t", Duration: time.Second, OK: true}},
	Truncated: sandbox.Truncation{Stdout: sandbox.Count{Produced: 9, Kept: 4}}, Backend: "local",
}

func TestPlain(t *testing.T) {
	for name, c := range map[string]struct {
		res   sandbox.Result
		named bool
		want  string
	}{
		"nothing": {sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept}, false, "(no output)"},
		"value":   {sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept, Output: json.RawMessage("42")}, false, "output: 42"},
		"big":     {sandbox.Result{Status: sandbox.StatusOK, Output: json.RawMessage("9007199254740993")}, false, "output: 9007199254740993"},
		"table":   {sandbox.Result{Status: sandbox.StatusOK, Output: json.RawMessage(`"a b\n1 2\n"`)}, false, "output:\na b\n1 2"},
		"text":    {sandbox.Result{Status: sandbox.StatusOK, Output: json.RawMessage(`"é"`)}, false, `output: "é"`},
		"named":   {sandbox.Result{Status: sandbox.StatusOK, Stdout: "hi\n"}, true, "hi\nsession_id: S"},
		"lost": {sandbox.Result{Status: sandbox.StatusCrash, ExitCode: 139, Error: "died", State: sandbox.StateLost}, false,
			"error (crash, exit code 139): died\nstate: lost: the variables of earlier calls are gone"},
		"timeout": {sandbox.Result{Status: sandbox.StatusTimeout, ExitCode: 124, Stdout: "so far", Error: "stopped after 2 s", State: sandbox.StateKept}, false,
			"so far\nerror (timeout, exit code 124): stopped after 2 s\nstate: kept: the variables are still there"},
		"everything": {everything, true, "a\nb\nstderr: warned\n[image 1: PNG]\n[HTML, 3 bytes]\nMarkdown: *x*\n" +
			"output: {\"n\": 9007199254740993}\nreturn value: [1]\nerror (error, exit code 1):\nTraceback:\nValueError: no\n" +
			"files changed: a.csv (3 bytes)\ncalls: s.t (ok, 1.000 s)\nnote: one\nsession_id: S"},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, plain(c.res, exhibit(c.res.Displays).parts, "S", c.named)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A file's name is the code's word, and stays in its line.
func TestFileNamesStayInTheirLine(t *testing.T) {
	r := sandbox.Result{Status: sandbox.StatusOK, Files: []sandbox.File{{Path: "ü b.csv", Size: 1}, {Path: "x\nstate: lost", Size: 2}, {Path: "\x1b[2J", Size: 3}}}
	if got, want := files(r.Files), `ü b.csv (1 bytes), "x\nstate: lost" (2 bytes), "\x1b[2J" (3 bytes)`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestAdvised(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit time.Duration
		want  string
	}{
		{"Late.\n\nTrace", time.Second, "Late. Give a larger `timeout_s`, at most 600 s, or do less in one call.\n\nTrace"},
		{"Late.", 10 * time.Minute, "Late. No call may take longer here: do the work in several."},
	} {
		if got := advised(c.text, c.limit, 10*time.Minute); got != c.want {
			t.Errorf("%q", got)
		}
	}
}

func TestPlainIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	res := everything
	res.Stdout, res.Stderr, res.Error = "START"+long+"END", long, long
	res.Output, _ = json.Marshal(long)
	for range 100 {
		res.Files = append(res.Files, sandbox.File{Path: "f"})
	}
	got := plain(res, exhibit(res.Displays).parts, "", false)
	if len(got) > 5*maxText {
		t.Errorf("%d bytes", len(got))
	}
	if !utf8.ValidString(got) || !strings.HasPrefix(got, "START") || !strings.Contains(got, "END\n") || !strings.Contains(got, "bytes left out") {
		t.Error("head, tail or mark is missing")
	}
	if !strings.Contains(got, "and 81 more") {
		t.Error("files are not bounded")
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1944621999: "1.944622", 1944622 * time.Microsecond: "1.944622", 499: "0", 500: "0.000001", 90*time.Second + 123456789: "90.123457", 600 * time.Second: "600",
	} {
		if got, err := json.Marshal(seconds(d)); err != nil || string(got) != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for us := range 2_000_000 {
		if us%997 != 0 {
			continue
		}
		text, _ := json.Marshal(seconds(time.Duration(us)*time.Microsecond + 3*time.Second))
		if len(text) > len("3.000000") {
			t.Fatalf("%s", text)
		}
	}
}

func TestPortable(t *testing.T) {
	for in, want := range map[string]string{
		``:                        `null`,
		`null`:                    `null`,
		`9007199254740992`:        `9007199254740992`,
		`9007199254740993`:        `"9007199254740993"`,
		`-9007199254740993`:       `"-9007199254740993"`,
		`12345678901234567890123`: `"12345678901234567890123"`,
		`1234567890123456789.5`:   `1234567890123456789.5`,
		`1e30`:                    `1e30`,
		`{"b":[1,9007199254740993],"a":"\"9007199254740993"}`: `{"b":[1,"9007199254740993"],"a":"\"9007199254740993"}`,
		`[9007199254740993,9007199254740994,2]`:               `["9007199254740993","9007199254740994",2]`,
		`{"9007199254740993":1}`:                              `{"9007199254740993":1}`,
		`{broken`:                                             `"{broken"`,
		"[\"a\xff\",9007199254740993]":                        `["a�","9007199254740993"]`,
		"\"\xed\xa0\x80\"":                                    `"�"`,
	} {
		if got := string(portable(json.RawMessage(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func FuzzPortable(f *testing.F) {
	f.Add([]byte(`{"a":[-9007199254740993,"\\\"1",1.5e3,true]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := portable(raw)
		if !json.Valid(got) || !utf8.Valid(got) {
			t.Errorf("%q became %q", raw, got)
		}
		if json.Valid(raw) && utf8.Valid(raw) && !bytes.Equal(bytes.ReplaceAll(raw, []byte(`"`), nil), bytes.ReplaceAll(got, []byte(`"`), nil)) {
			t.Errorf("%q became %q", raw, got)
		}
	})
}

// TestFaults is the table of what an error tells a model. The cause never gets
// through: it may hold paths and names of the host.
func TestFaults(t *testing.T) {
	secret := errors.New("open /srv/secret: no")
	for name, c := range map[string]struct {
		err    error
		status sandbox.Status
		exit   int
		want   string
	}{
		"cancelled":      {context.Canceled, sandbox.StatusCancelled, 130, "the caller went away"},
		"deadline":       {fmt.Errorf("x: %w", context.DeadlineExceeded), sandbox.StatusCancelled, 130, "the caller went away"},
		"unknown":        {fmt.Errorf("%w: gone", sandbox.ErrUnknownSession), sandbox.StatusInvalid, 2, "unknown session: gone"},
		"full":           {fmt.Errorf("%w: try again in 3 s", sandbox.ErrFull), sandbox.StatusInfra, 125, "try again in 3 s"},
		"closed":         {sandbox.ErrClosed, sandbox.StatusCancelled, 130, "the session was closed"},
		"gone, queued":   {notRun(context.Canceled), sandbox.StatusCancelled, 130, "it did not run"},
		"closed, queued": {notRun(sandbox.ErrClosed), sandbox.StatusCancelled, 130, "it did not run"},
		"gone, ran":      {&sandbox.Error{Status: sandbox.StatusCancelled, Ran: true, Err: context.Canceled}, sandbox.StatusCancelled, 130, "interrupted"},
		"ran":            {&sandbox.Error{Status: sandbox.StatusInfra, Ran: true, Err: secret}, sandbox.StatusInfra, 125, "may have run in part"},
		"invalid":        {sandbox.Invalid("`x` is wrong"), sandbox.StatusInvalid, 2, "`x` is wrong"},
		"denied":         {&sandbox.Error{Status: sandbox.StatusDenied, Err: errors.New("not allowed")}, sandbox.StatusDenied, 126, "not allowed"},
		"infra":          {&sandbox.Error{Status: sandbox.StatusInfra, Layer: "userns", Err: secret}, sandbox.StatusInfra, 125, "(userns)"},
		"other":          {secret, sandbox.StatusInfra, 125, "the sandbox failed"},
	} {
		t.Run(name, func(t *testing.T) {
			res := outcome{err: c.err}.result()
			state := sandbox.StateNone
			if strings.HasPrefix(name, "closed") {
				state = sandbox.StateLost
			}
			if res.Status != c.status || res.ExitCode != c.exit || !strings.Contains(res.Error, c.want) || res.State != state {
				t.Errorf("%+v", res)
			}
			if strings.Contains(res.Error, "secret") {
				t.Errorf("the cause got through: %s", res.Error)
			}
		})
	}
	if res := (outcome{}).result(); res.Status != sandbox.StatusInfra || res.Error == "" {
		t.Errorf("no result became %+v", res)
	}
}

// TestSchemaHolds checks that whatever is rendered fits the published schema.
func TestSchemaHolds(t *testing.T) {
	s := resultSchema(t)
	cases := []sandbox.Result{everything, {Status: sandbox.StatusOK}, {}}
	for _, status := range []sandbox.Status{"ok", "error", "timeout", "oom", "crash", "cancelled", "invalid", "denied", "infra"} {
		for _, state := range []sandbox.State{"new", "kept", "restored", "lost", "none", ""} {
			cases = append(cases, sandbox.Result{Status: status, State: state})
		}
	}
	for _, res := range cases {
		answer := render(outcome{res: res}.result(), "id", true)
		validate(t, s, answer)
		if report := answer.StructuredContent.(report); answer.IsError == report.Success || report.Success != (report.Status == sandbox.StatusOK) {
			t.Errorf("isError %v, success %v, status %s", answer.IsError, report.Success, report.Status)
		}
	}
	if n := len(render(everything, "", false).Content); n != 2 {
		t.Errorf("%d blocks, want a text and an image", n)
	}
}

func resultSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	b, err := schemas.ReadFile("schema/result.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func validate(t *testing.T, s *jsonschema.Resolved, answer *mcp.CallToolResult) {
	t.Helper()
	b, err := json.Marshal(answer.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Errorf("%s\n%v", b, err)
	}
}

// How many files changed is a number where all were looked at, and a bound elsewhere.
func TestFilesBeyondTheList(t *testing.T) {
	for want, cut := range map[string]bool{
		"25 files changed: the 20 newest are named":                                        false,
		"at least 25 files changed: of those that were looked at, the 20 newest are named": true,
	} {
		r := outcome{res: sandbox.Result{Status: sandbox.StatusOK, Files: make([]sandbox.File, 25), FilesCut: cut}}.result()
		if len(r.Files) != 20 || !slices.Contains(r.Notes, want) {
			t.Errorf("%d files; %q", len(r.Files), r.Notes)
		}
	}
}
