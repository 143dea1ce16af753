package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/tools"
)

// What the README says of flags and arguments is what there is.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // the first cell's names -> the table's row
	for l := range strings.Lines(string(text)) {
		if cells := strings.Split(l, "|"); len(cells) > 2 {
			for _, name := range regexp.MustCompile("`(-*[a-z_-]+)[^`]*`").FindAllStringSubmatch(cells[1], -1) {
				rows[name[1]] += l
			}
		}
	}

	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, command := range parser.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, group := range command.AllFlags(true) {
			for _, f := range group {
				flags = append(flags, "--"+f.Name)
				switch row := rows["--"+f.Name]; {
				case f.Name == "help":
				case row == "":
					t.Errorf("the README's table lacks --%s", f.Name)
				case f.Default != "" && f.Default != "0" && !strings.Contains(row, "`"+f.Default+"`"):
					t.Errorf("--%s has the default %s; the README says: %s", f.Name, f.Default, row)
				}
			}
		}
	}
	if len(flags) < 15 {
		t.Errorf("serve has the flags %q alone: this test looks at the wrong command", flags)
	}
	for name := range rows {
		if strings.HasPrefix(name, "--") && !slices.Contains(flags, name) {
			t.Errorf("the README's table has %s, which is no flag of serve", name)
		}
	}

	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: &sandboxtest.Fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	list, err := allowlist.New(allowlist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kit, err := tools.New(tools.Config{Sessions: sessions, Caller: hostCaller("stdio"), Allow: list})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range kit.Server().ListTools() {
		_, section, found := strings.Cut(string(text), "### `"+tool.Tool.Name+"`\n")
		section, _, _ = strings.Cut(section, "\n##")
		if !found {
			t.Errorf("the README lacks %s", tool.Tool.Name)
		}
		var schema struct {
			Properties map[string]struct {
				Type    string `json:"type"`
				Default any    `json:"default"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(tool.Tool.RawInputSchema, &schema); err != nil || len(schema.Properties) == 0 {
			t.Fatalf("%s: %v", tool.Tool.Name, err)
		}
		for name, p := range schema.Properties {
			row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| " + p.Type + ".*$").FindString(section)
			if row == "" {
				t.Errorf("the README's table of %s lacks %s, which is a %s", tool.Tool.Name, name, p.Type)
			}
			said := fmt.Sprintf("default `%v`", p.Default)
			if name == "timeout_s" { // the operator's
				said = "default `--timeout`"
			}
			if p.Default != nil && !strings.Contains(row, said) {
				t.Errorf("%s of %s: the README lacks %q in: %s", name, tool.Tool.Name, said, row)
			}
		}
	}
}
