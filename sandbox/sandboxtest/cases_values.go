package sandboxtest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

func jsonNumber(s string) json.Number { return json.Number(s) }

// valuePrograms: what a value is as JSON, and that no value breaks a Result.
func valuePrograms() []program {
	return []program{
		{name: "as JSON", alone: true, steps: []step{
			{code: "[1, -2, 2.5, True, None, 'é', [], {}]", output: `[1,-2,2.5,true,null,"é",[],{}]`},
			{code: "{'a': {'b': [1, (2, 3)]}}", output: `{"a":{"b":[1,[2,3]]}}`},
			{code: "0.1", output: "0.1"},
			{code: "1e300", output: anything, check: number(1e300)},
			{code: "-0.0", output: anything},
			{code: "''", output: `""`},
			{code: "False", output: "false"},
			{code: "'\\x00\\x1b[31m\\u2028\\U0001f600'", output: `"\u0000\u001b[31m\u2028😀"`},
		}},
		{name: "integers beyond 2^53 are strings", alone: true, steps: []step{
			{code: "2**53 - 1", output: "9007199254740991"},
			{code: "2**53 + 1", output: `"9007199254740993"`},
			{code: "-2**53 - 1", output: `"-9007199254740993"`},
			{code: "[10**30, {'a': 2**64}]", output: `["1000000000000000000000000000000",{"a":"18446744073709551616"}]`},
			{code: "10**4999 > 1", output: "true"},
			{code: "10**4999", any: true, check: hasOutput},
		}},
		{name: "not-a-number and infinities are strings", alone: true, steps: []step{
			{code: "float('nan')", output: anything, check: str("nan")},
			{code: "float('inf')", output: anything, check: str("inf")},
			{code: "[float('-inf')]", output: anything, check: part("-")},
			{code: "_return = {'x': float('nan')}", ret: anything, check: func(t *testing.T, r sandbox.Result) {
				var v map[string]string
				if err := json.Unmarshal(r.ReturnValue, &v); err != nil || !strings.EqualFold(v["x"], "nan") {
					t.Errorf("%s: %v", r.ReturnValue, err)
				}
			}},
		}},
		{name: "odd values", steps: []step{
			{code: "object()", output: anything, check: part("object")},
			{code: "{1: 2, (3, 4): 5}", output: anything, check: hasOutput},
			{code: "{1, 2}", output: anything, check: hasOutput},
			{code: "b'\\xff\\x00'", output: anything, check: part("xff")},
			{code: "1j", output: anything, check: part("1j")},
			{code: "...", output: anything, check: hasOutput},
			{code: "range(3)", output: anything, check: hasOutput},
			{code: "(i for i in [1])", output: anything, check: hasOutput},
			{code: "import datetime, decimal, uuid\n[datetime.date(2024, 1, 2), decimal.Decimal('1.5'), uuid.UUID(int=1)]", output: anything, check: part("2024")},
			{code: "type", output: anything, check: hasOutput},
			{code: "NotImplemented", output: anything, check: hasOutput},
			{code: "memoryview(b'ab')", output: anything, check: hasOutput},
			{code: "import enum\nclass E(enum.IntEnum):\n    A = 1\nE.A", output: anything, check: hasOutput},
			{code: "class S(str): pass\nS('s')", output: `"s"`},
			{code: "import collections\nP = collections.namedtuple('P', 'x y')\nP(1, 2)", output: "[1,2]"},
			{code: "collections.OrderedDict(a=1)", output: `{"a":1}`},
		}},
		{name: "values that fight back", steps: []step{
			{code: "l = []\nl.append(l)\nl", output: anything, check: hasOutput},
			{code: "d = {}\nd['d'] = d\nd", output: anything, check: hasOutput},
			{code: "x = []\nfor _ in range(100000):\n    x = [x]\nx", output: anything, check: hasOutput},
			{code: "class R:\n    def __repr__(self):\n        raise ValueError('no')\nR()", output: anything, check: hasOutput},
			{code: "[R(), 1]", output: anything, check: hasOutput},
			{code: "class R2:\n    def __repr__(self):\n        return 5\nR2()", output: anything, check: hasOutput},
			{code: "class R3:\n    def __getattribute__(self, n):\n        raise RuntimeError(n)\nR3()", output: anything, check: hasOutput},
			{code: "class R4:\n    def __repr__(self):\n        return '\\ud83d\\x00\\xff'\nR4()", output: anything, check: hasOutput},
			{code: "class R5(dict):\n    def items(self):\n        raise KeyError(1)\n    def __iter__(self):\n        raise KeyError(2)\nR5(a=1)", any: true},
			{code: "class R6(int):\n    def __repr__(self):\n        return '{broken'\n    __str__ = __repr__\nR6(4)", output: anything, check: hasOutput},
			{code: "class R7(float):\n    def __repr__(self):\n        return '}'\nR7(1.5)", output: anything, check: hasOutput},
			{code: "class R8:\n    def __repr__(self):\n        import sys\n        sys.exit(4)\nR8()", any: true},
			{code: "40 + 2", output: "42"},
		}},
		{name: "lone surrogates", alone: true, steps: []step{
			{code: "'\\ud83d'", output: anything, check: hasOutput},
			{code: "{'\\ud83d': '\\udc00'}", output: anything, check: hasOutput},
			{code: "_return = '\\udfff'", ret: anything},
			{code: "raise ValueError('\\ud83d')", status: sandbox.StatusError, errs: []string{"ValueError"}},
			{code: "print('\\ud83d|')", stdout: anything, check: func(t *testing.T, r sandbox.Result) {
				if !strings.HasSuffix(r.Stdout, "|\n") {
					t.Errorf("stdout is %q", r.Stdout)
				}
			}},
		}},
		{name: "huge values are bounded", alone: true, steps: []step{
			{code: "'x' * 10_000_000", output: anything, check: bounded},
			{code: "list(range(1_000_000))", output: anything, check: bounded},
			{code: "{str(i): i for i in range(300_000)}", output: anything, check: bounded},
			{code: "class H:\n    def __repr__(self):\n        return 'h' * 10_000_000\nH()", output: anything, check: bounded},
			{code: "_return = b'x' * 10_000_000", ret: anything, check: bounded},
			{code: "'é' * 3_000_000", output: anything, check: bounded},
		}},
	}
}

func hasOutput(t *testing.T, r sandbox.Result) {
	t.Helper()
	if r.Status == sandbox.StatusOK && r.Output == nil {
		t.Error("no output")
	}
}

func part(s string) func(*testing.T, sandbox.Result) {
	return func(t *testing.T, r sandbox.Result) {
		t.Helper()
		if !strings.Contains(string(r.Output), s) {
			t.Errorf("output %.300s lacks %q", r.Output, s)
		}
	}
}

// str wants a string that begins like s, whatever its case.
func str(s string) func(*testing.T, sandbox.Result) {
	return func(t *testing.T, r sandbox.Result) {
		t.Helper()
		var got string
		if err := json.Unmarshal(r.Output, &got); err != nil || !strings.HasPrefix(strings.ToLower(got), s) {
			t.Errorf("output %.300s, want a string of %s: %v", r.Output, s, err)
		}
	}
}

func number(want float64) func(*testing.T, sandbox.Result) {
	return func(t *testing.T, r sandbox.Result) {
		t.Helper()
		var got float64
		if err := json.Unmarshal(r.Output, &got); err != nil || got != want {
			t.Errorf("output %.300s, want %v: %v", r.Output, want, err)
		}
	}
}

// bounded wants a value cut down to what a Result may hold, and a note of it.
func bounded(t *testing.T, r sandbox.Result) {
	t.Helper()
	v := r.Output
	if v == nil {
		v = r.ReturnValue
	}
	if len(v) == 0 || len(v) > 2<<20 {
		t.Errorf("a value of %d bytes", len(v))
	}
	if len(r.Notes) == 0 {
		t.Error("no note says that it was cut")
	}
	var s string
	if json.Unmarshal(v, &s) == nil && !utf8.ValidString(s) {
		t.Error("cut within a character")
	}
}
