package externals

import (
	"slices"
	"strings"
	"testing"
)

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"TOKEN": "t0k3n-t0k3n", "EMPTY": "", "HOME": "/home/u"}[name]
	return v, ok
}

func TestParse(t *testing.T) {
	t.Parallel()
	const text = `{
	"mcpServers": {
		"github": {"command": "npx", "args": ["-y", "server-github", "--key=abcdefgh", "${HOME}/notes", "${TOKEN}"], "env": {"GITHUB_TOKEN": "${TOKEN}", "LEVEL": "${LEVEL:-info}", "E": "x${EMPTY:-y}${EMPTY}z"},
			"tools": {"allow": ["get_*", "search_*"], "deny": ["search_code"]}, "description": "Issues\nand code"},
		"my-files": {"command": "./files", "cwd": "sub", "allowDestructive": true},
		"web": {"url": "https://u:hunter22@example.com/mcp?k=querykey", "headers": {"Authorization": "Bearer ${TOKEN}"}, "type": "sse"},
		"off": {"command": "x", "disabled": true}
	}}`
	all, err := Parse([]byte(text), "/etc/mcp", lookup)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 {
		t.Fatalf("%d servers: %+v", len(all), all)
	}
	g, f, w := all[0], all[1], all[2]
	if g.Env["GITHUB_TOKEN"] != "t0k3n-t0k3n" || g.Env["LEVEL"] != "info" || g.Env["E"] != "xyz" || g.Note != "Issues and code" || g.Dir != "/etc/mcp" || g.AllowDestructive {
		t.Errorf("github: %+v", g)
	}
	if f.Dir != "/etc/mcp/sub" || !f.AllowDestructive || f.Allow != nil {
		t.Errorf("my-files: %+v", f)
	}
	if !w.SSE || w.Transport() != "sse" || w.Headers["Authorization"] != "Bearer t0k3n-t0k3n" {
		t.Errorf("web: %+v", w)
	}
	for _, c := range []struct {
		server  Server
		secrets []string
	}{{g, []string{"t0k3n-t0k3n", "abcdefgh"}}, {w, []string{"hunter22", "querykey", "Bearer t0k3n-t0k3n"}}} {
		for _, s := range c.secrets {
			if !slices.Contains(c.server.secrets, s) {
				t.Errorf("%s is no secret of %s: %q", s, c.server.Name, c.server.secrets)
			}
		}
		for _, s := range c.server.secrets {
			if s == "info" || strings.Contains(s, "/home/u") {
				t.Errorf("%s is a secret of %s", s, c.server.Name)
			}
		}
	}
}

// Where else secrets stand in what people write.
func TestSecretsOfArguments(t *testing.T) {
	t.Parallel()
	const text = `{"mcpServers": {
		"a": {"command": "x", "args": ["postgresql://me:p%40ssw0rd@db:5432/d", "--api-key", "abcdefgh", "--verbose", "--header", "Authorization: Bearer zyxwvutsrqpo", "--auth-mode", "--port", "some-port", "redis://redis:redis@host"],
			"env": {"DB": "mysql://u:env-pass@h/d", "LOG": "https://example.com:8080/a@b"}},
		"b": {"url": "https://0123456789abcdefghij@example.com/s/k3y0k3y0k3y0k3y0k3y0/mcp-of-the-most-ordinary-kind"}
	}}`
	all, err := Parse([]byte(text), "/", lookup)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"p%40ssw0rd p@ssw0rd abcdefgh  Bearer zyxwvutsrqpo env-pass env-pass", "0123456789abcdefghij 0123456789abcdefghij k3y0k3y0k3y0k3y0k3y0"} {
		if got := strings.Join(all[i].secrets, " "); got != want {
			t.Errorf("%s: %q, want %q", all[i].Name, got, want)
		}
	}
}

// All faults of a file come together, each with its place and none with a value.
func TestParseFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"mcpServers": {`: {"not JSON", "line 1, column 16"},
		`[]`:               {"must be an object"},
		`{}`:               {`no "mcpServers"`},
		`{"mcpServers": {}, "globalShortcut": 1}`:                            {`unknown key "globalShortcut"`},
		`{"mcpServers": {"a-b": {"command": "x"}, "a_b": {"command": "x"}}}`: {`"a-b" and "a_b" would both be externals.a_b`},
		`{"mcpServers": {"search": {"command": "x"}}}`:                       {`"search" is a word of externals itself`},
		`{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}`:     {`mcpServers has "a" twice`},
		`{"mcpServers": {"a": {"comand": "x"}, "b": {}, "c": {"command": "x", "url": "http://x"},
			"d": {"command": "x", "headers": {"A": "b"}}, "e": {"url": "ftp://s3cret"}, "f": {"command": "${NOPE}", "args": [1], "env": {"A": "${TOKEN"}},
			"g": {"url": "http://x", "type": "stdio", "headers": {"A b": "c"}}, "h": {"url": "http://x", "type": "quic"}, "i": {"command": "x", "tools": {"only": []}, "allowDestructive": "yes"},
			"j\n": {"command": "x"}, "k": 1}}`: {
			"mcpServers.a.comand: unknown key", "mcpServers.a has neither", "mcpServers.b has neither", "mcpServers.c has both", "mcpServers.d.headers:",
			"mcpServers.e.url must be an http", "mcpServers.f.command: the variable NOPE is not set", "mcpServers.f.args must be a string", "mcpServers.f.env.A: what begins with ${",
			"mcpServers.g.type: stdio needs a command", `"A b" is no name of a header`, `mcpServers.h.type: "quic" is unknown`, "mcpServers.i.tools.only: unknown key",
			"mcpServers.i.allowDestructive must be true or false", `"j\n" is no name`, "mcpServers.k must be an object",
		},
	} {
		servers, err := Parse([]byte(text), "/", lookup)
		if err == nil || servers != nil {
			t.Errorf("%s: no fault", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s\nsays\n%v\nwithout %q", text, err, w)
			}
		}
		if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "t0k3n") {
			t.Errorf("the faults hold a value: %v", err)
		}
	}
}

func TestFlat(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"search-issues": "search_issues", "a.b/c d": "a_b_c_d", "2fa": "n2fa", "import": "import_", "ok": "ok", "é": "_", "": "n"} {
		if got := Flat(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"get_*", "get_x", true}, {"get_*", "xget_x", false}, {"*_x_*", "a_x_x_b", true},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"", "", true}, {"", "a", false}, {"a*b*c", "a1b2b3c", true}, {"a*b*c", "a1b2b3", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q for %q is %v", c.pattern, c.name, got)
		}
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	r := newRedactor([]string{"Basic dXNlcjpwYSQkdzByZA==", "short", `qu"oted\key`, "a b&c=dé/f"})
	for _, leak := range []string{"pa$$w0rd", "dXNlcjpwYSQkdzByZA==", `qu\"oted\\key`, `qu"oted\key`, "a+b%26c%3Dd%C3%A9%2Ff", "YSBiJmM9ZMOpL2Y="} {
		if got := r.text("x " + leak + " y"); got != "x [redacted] y" {
			t.Errorf("%q became %q", leak, got)
		}
	}
	if got := r.text("short"); got != "short" {
		t.Errorf("what is everywhere became %q", got)
	}
	if got, ok := newRedactor([]string{"dé+/f/g", "secret"}).json([]byte(`{"a\"":["d\u00e9+\/f\/g \" x","\\","se\u0063ret","\u00e9"]}`)); !ok || string(got) != `{"a\"":["[redacted] \" x","\\","[redacted]","\u00e9"]}` {
		t.Errorf("escaped otherwise: %s", got)
	}
	if _, ok := newRedactor([]string{"12,345,678"}).json([]byte("[12,345,678]")); ok {
		t.Error("JSON whose form was a secret is taken for JSON")
	}
}
