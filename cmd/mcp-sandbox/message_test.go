package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A number that no float holds is an argument like any other: exact where it
// may be anything, refused in a result where it can't be meant. What is refused
// as a message is not echoed at length.
func TestLargeNumbers(t *testing.T) {
	c := newClient(t, 0)
	digits := strings.Repeat("7", 5000)
	raw := func(params string) string {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
		if !c.out.Scan() {
			t.Fatal("no answer")
		}
		return c.out.Text()
	}
	for _, n := range []string{digits, "-" + digits, "1e400", "0." + digits, "1" + strings.Repeat("0", 400) + ".5"} {
		shown := n
		if !strings.ContainsAny(n, ".e") {
			shown = `"` + n + `"`
		}
		if got := raw(`{"name":"execute_python","arguments":{"code":"inputs","inputs":{"n":` + n + `}}}`); !strings.Contains(got, `"output":{"n":`+shown+`}`) {
			t.Errorf("%.20s…: %.300s", n, got)
		}
	}
	for _, n := range []string{"1e400", "-1e400", digits} {
		got := raw(`{"name":"execute_python","arguments":{"code":"timeout","timeout_s":` + n + `}}`)
		if !strings.Contains(got, `"status":"invalid"`) || !strings.Contains(got, "`timeout_s` must be a number of seconds above 0") || len(got) > 2000 {
			t.Errorf("%.20s…: %d bytes, %.500s", n, len(got), got)
		}
	}
	// The arguments are the right ones, whatever stands beside them.
	for params, want := range map[string]string{
		`{"Arguments":{"code":"print wrong"},"name":"execute_python","arguments":{"code":"print right"}}`: `"stdout":"right\n"`,
		`{"name":"execute_python","arguments":null}`:                                                      "`code` is required",
		`{"name":"execute_python"}`:                                                                       "`code` is required",
		`{"name":"execute_python","arguments":[` + digits + `]}`:                                          "the arguments must be an object",
		`{"name":"execute_python","arguments":{"code":"print x"},"_meta":{"other":1e400}}`:                `"code":-326`,
		`{"name":` + digits + `}`:                                                                         `"code":-326`,
		`{"name":"` + digits + `","arguments":{}}`:                                                        `"code":-32602`,
		`{"name":["` + digits + `"],"arguments":{}}`:                                                      `"code":-326`,
		`[` + digits + `]`: `"code":-326`,
		`"` + digits + `"`: `"code":-326`,
	} {
		if got := raw(params); !strings.Contains(got, want) || len(got) > 1500 {
			t.Errorf("%.100s: %d bytes, %.500s", params, len(got), got)
		}
	}
	for _, l := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"` + digits + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":` + digits + `}`,
		`{"jsonrpc":"2.0","id":1e400,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` + digits + `}}`,
	} {
		c.send(l)
		if !c.out.Scan() || len(c.out.Bytes()) > 500 || !strings.Contains(c.out.Text(), `"error"`) {
			t.Errorf("%.60s…: %d bytes, %.300s", l, len(c.out.Bytes()), c.out.Bytes())
		}
	}
	c.end()
}

func FuzzLineID(f *testing.F) {
	f.Add([]byte(`{"id": 1, "params"`), []byte(`,"id":"x"}`))
	f.Add([]byte(`{`), []byte(`,"id":00}`))
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		if id := (line{text: head, tail: tail}).id(); id != nil && !json.Valid(id) {
			t.Errorf("%q", id)
		}
	})
}

func FuzzArgumentsTakenOut(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","Arguments":1,"arguments":{"code":1e999,"session_id":"new"}}}`))
	f.Add([]byte(`{"params":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m message
		if json.Unmarshal(text, &m) != nil {
			return
		}
		bare := m.withoutArguments(text)
		sessionOf(bare.arguments)
		if !json.Valid(bare.text) || bare.arguments != nil && !json.Valid(bare.arguments) {
			t.Errorf("%q became %q and %q", text, bare.text, bare.arguments)
		}
	})
}
