package tools

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// TestRefusals is the table of what is wrong with arguments, and what the model
// is told: the sentence must name the argument and what would be right.
func TestRefusals(t *testing.T) {
	const limit = "`timeout_s` must be a number of seconds above 0 and at most 600; got "
	for name, c := range map[string]struct {
		args string
		want []string
	}{
		"nothing":          {``, []string{"`code` is required"}},
		"no code":          {`{}`, []string{"`code` is required"}},
		"null code":        {`{"code": null}`, []string{"`code` is required"}},
		"empty code":       {`{"code": " \n"}`, []string{"`code` is empty"}},
		"code a number":    {`{"code": 5}`, []string{"`code` must be a string of Python source; got 5"}},
		"code a list":      {`{"code": ["x = 1",  "x"]}`, []string{"`code` must be a string of Python source; got [\"x = 1\",\"x\"]"}},
		"code too long":    {`{"code": "` + strings.Repeat("#", 1<<20+1) + `"}`, []string{"`code` is 1048577 bytes long; at most 1048576"}},
		"no object":        {`"print(1)"`, []string{"must be an object", "`code`", `got "print(1)"`}},
		"other case":       {`{"Code": "1"}`, []string{"unknown argument \"Code\" (did you mean `code`?)", "`code` is required"}},
		"unknown":          {`{"code": "1", "colour": "red"}`, []string{"unknown argument \"colour\": known are `code`, `inputs`, `timeout_s`, `session_id`"}},
		"near":             {`{"code": "1", "timeout": 5}`, []string{"unknown argument \"timeout\" (did you mean `timeout_s`?)"}},
		"near, typing":     {`{"code": "1", "sesion_id": "x"}`, []string{"(did you mean `session_id`?)"}},
		"alias":            {`{"script": "1"}`, []string{"unknown argument \"script\" (did you mean `code`?)", "`code` is required"}},
		"timeout 0":        {`{"code": "1", "timeout_s": 0}`, []string{limit + "0"}},
		"timeout -1":       {`{"code": "1", "timeout_s": -1}`, []string{limit + "-1"}},
		"timeout 1e9":      {`{"code": "1", "timeout_s": 1e9}`, []string{limit + "1e9"}},
		"timeout 1e999":    {`{"code": "1", "timeout_s": 1e999}`, []string{limit + "1e999"}},
		"timeout abc":      {`{"code": "1", "timeout_s": "abc"}`, []string{limit + `"abc"`}},
		"timeout NaN":      {`{"code": "1", "timeout_s": "NaN"}`, []string{limit + `"NaN"`}},
		"timeout bool":     {`{"code": "1", "timeout_s": true}`, []string{limit + "true"}},
		"timeout above":    {`{"code": "1", "timeout_s": 600.001}`, []string{limit + "600.001"}},
		"session a number": {`{"code": "1", "session_id": 7}`, []string{"`session_id` must be a string"}},
		"inputs a list":    {`{"code": "1", "inputs": [1]}`, []string{"`inputs` must be an object", "got [1]"}},
		"inputs a string":  {`{"code": "1", "inputs": "{}"}`, []string{"`inputs` must be an object", `got "{}"`}},
		"inputs too big":   {`{"code": "1", "inputs": {"x": "` + strings.Repeat("x", 8<<20) + `"}}`, []string{"`inputs` is 8388617 bytes of JSON; at most 8388608"}},
		"inputs too deep":  {`{"code": "1", "inputs": {"x": ` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}}`, []string{"nested more than 500"}},
		"all faults at once": {`{"timeout_s": 0, "inputs": 1, "session_id": [], "mode": "x"}`, []string{
			"unknown argument \"mode\"", "`code` is required", limit + "0", "`inputs` must be an object", "`session_id` must be a string"}},
		"a long name": {`{"code": "1", "` + strings.Repeat("n", 10000) + `": 1}`, []string{"unknown argument \"nnnn"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArguments(json.RawMessage(c.args), "code", "inputs", "timeout_s", "session_id")
			a.code()
			a.inputs()
			a.timeout(30*time.Second, 600*time.Second)
			a.sessionID()
			err := a.err()
			if err == nil {
				t.Fatal("accepted")
			}
			res := fault(err, "the code")
			if res.Status != sandbox.StatusInvalid || res.ExitCode != 2 {
				t.Errorf("status %s, exit code %d", res.Status, res.ExitCode)
			}
			for _, w := range c.want {
				if !strings.Contains(res.Error, w) {
					t.Errorf("%q\nlacks\n%q", res.Error, w)
				}
			}
			if len(res.Error) > 1000 {
				t.Errorf("%d bytes of refusal", len(res.Error))
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	a := newArguments(json.RawMessage(`{"code": "x\u0000", "inputs": {"n": 123456789012345678901234567890, "f": 0.1000, "s": "\ud800", "k": {"n": 1e400}},
		"timeout_s": 0.25, "session_id": null}`), "code", "inputs", "timeout_s", "session_id")
	code, inputs, timeout, id := a.code(), a.inputs(), a.timeout(30*time.Second, 600*time.Second), a.sessionID()
	if err := a.err(); err != nil {
		t.Fatal(err)
	}
	if code != "x\x00" || timeout != 250*time.Millisecond || id != "" {
		t.Errorf("%q, %v, %q", code, timeout, id)
	}
	b, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	// Digits, exponents and even a lone surrogate reach Python as they came.
	if want := `{"f":0.1000,"k":{"n":1e400},"n":123456789012345678901234567890,"s":"\ud800"}`; string(b) != want {
		t.Errorf("%s\nwant\n%s", b, want)
	}
}

func TestNullIsNotGiven(t *testing.T) {
	a := newArguments(json.RawMessage(`{"code": "1", "inputs": null, "timeout_s": null, "session_id": null}`), "code", "inputs", "timeout_s", "session_id")
	if a.inputs() != nil || a.timeout(time.Second, time.Minute) != time.Second || a.sessionID() != "" || a.err() != nil {
		t.Errorf("%v", a.err())
	}
}

func TestInputsInvalidUTF8(t *testing.T) {
	a := newArguments(json.RawMessage("{\"inputs\": {\"a\": \"\xff\"}}"), "inputs")
	b, err := json.Marshal(a.inputs())
	if want := "{\"a\":\"\uFFFD\"}"; err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"code": "1", "inputs": {"a": [1]}, "timeout_s": 3, "session_id": "x", "y": 1}`))
	f.Add([]byte(`{"code`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := newArguments(raw, "code", "inputs", "timeout_s", "session_id")
		a.code()
		a.timeout(time.Second, time.Minute)
		a.sessionID()
		if inputs := a.inputs(); a.err() == nil {
			if _, err := json.Marshal(inputs); err != nil {
				t.Error(err)
			}
		}
	})
}
