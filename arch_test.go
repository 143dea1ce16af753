package mcpsandbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "mcp-sandbox"

// rooms is the whole house: every folder with Go in it, what it is, and which
// rooms it may import, each with the reason. Test files may besides import any
// room's test suite.
var rooms = map[string]struct {
	what    string
	imports map[string]string
}{
	".": {"holds this test and no code", nil},
	"cmd/mcp-sandbox": {"wires and nothing else, so it may import every room", map[string]string{
		"tools":                       "serves the tools",
		"sandbox":                     "configures sessions",
		"srt/egress":                  "reads the rules of --allow-domain",
		"srt":                         "builds the local sandbox and runs its be-child verbs",
		"workload":                    "builds the remote sandbox",
		"workload/workloadtest":       "serves the emulator to those who have no cluster",
		"workload/workloadtest/plain": "starts its containers where no wall can be raised",
		"allowlist":                   "explains the allowlist to a person",
		"externals":                   "connects the user's other servers",
	}},
	"tools": {"knows MCP and no backend, so that every backend gets the same tools", map[string]string{
		"sandbox":   "the words that it turns into MCP",
		"allowlist": "refuses a command before a session is touched",
	}},
	"sandbox": {"is the vocabulary that all others share; what it imported, all would", map[string]string{
		"allowlist": "a CommandRunner takes an allowlist.Pipeline",
	}},
	"sandbox/kernel": {"is the talk with Python, the same for every backend", map[string]string{
		"sandbox": "decodes a reply into a Result",
	}},
	"sandbox/sandboxtest": {"is the contract of all backends, so it knows none of them", map[string]string{
		"sandbox":        "the contract's words",
		"sandbox/kernel": "probes forge the kernel's frames",
		"allowlist":      "runs pipelines against a CommandRunner",
	}},
	"srt": {"is one backend; it must work without MCP and without the other", map[string]string{
		"sandbox":        "implements it",
		"sandbox/kernel": "talks to the interpreter",
		"allowlist":      "runs its pipelines, and mounts its binaries alone",
		"srt/egress":     "serves a guest's network, by rules that are part of the policy",
	}},
	"srt/egress": {"is the proxy, which reads a hostile guest's bytes: it starts nothing, makes no system calls of its own, and knows no wall", nil},
	"workload": {"is one backend; it must work without MCP and without the other", map[string]string{
		"sandbox":        "implements it",
		"sandbox/kernel": "the remote agent is the same kernel",
	}},
	"workload/workloadtest": {"emulates the API from the outside; sharing code with the client would hide its faults", map[string]string{
		"runner": "what a container runs that has no entrypoint",
	}},
	"workload/workloadtest/plain": {"starts the emulator's containers without a wall, for tests and for cmd", map[string]string{
		"workload/workloadtest": "its Starter",
	}},
	"runner":    {"is what the image runs; Go has it embedded and nothing more", nil},
	"allowlist": {"is pure: no input, no output, nothing of ours", nil},
	"externals": {"is a client of other servers, not part of any backend", map[string]string{
		"sandbox": "implements Request's externals",
	}},
}

// outside are the imports from beyond the module, each with the
// rooms that may have it. A path stands for all below it. A package
// that is not named here may be imported nowhere.
var outside = []struct {
	path  string
	rooms []string
	why   string
}{
	{"github.com/mark3labs/mcp-go", []string{"tools", "externals", "cmd/mcp-sandbox"}, "MCP is known to tools, externals and cmd alone: a backend that knew it could not serve another protocol"},
	{"github.com/google/uuid", []string{"sandbox", "sandbox/kernel", "cmd/mcp-sandbox"}, "sandbox.Sessions mints the ids of sessions, the kernel's client those of its calls; others take them"},
	{"github.com/alecthomas/kong", []string{"cmd/mcp-sandbox"}, "flags and environment are read in cmd alone; rooms take plain structs"},
	{"github.com/dustin/go-humanize", []string{"cmd/mcp-sandbox"}, "sizes are read as people write them in cmd alone; rooms take bytes"},
	{"github.com/lmittmann/tint", []string{"cmd/mcp-sandbox"}, "rooms take a *slog.Logger; how it prints is cmd's choice"},
	{"github.com/elastic/go-seccomp-bpf", []string{"srt"}, "the wall is built in srt"},
	{"github.com/landlock-lsm/go-landlock", []string{"srt"}, "the wall is built in srt"},
	{"golang.org/x/net/idna", []string{"srt/egress"}, "names of hosts are written in Unicode and asked for in punycode"},
	{"golang.org/x/net/bpf", []string{"srt"}, "assembles the wall's seccomp filter"},
	{"golang.org/x/sys", []string{"srt", "cmd/mcp-sandbox"}, "system calls are made in srt, and in cmd to start processes, so that a reader of security reads one room"},
	{"mvdan.cc/sh/v3/syntax", []string{"allowlist"}, "only the allowlist reads shell; nothing of ours runs it"},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/mcp-sandbox"}, "rooms know the otel API; where figures go is cmd's choice"},
	{"go.opentelemetry.io/otel/exporters", nil, "they register protobuf and gRPC at each start, and this binary starts itself again for each wall"},
	{"go.opentelemetry.io/otel", []string{"sandbox", "cmd/mcp-sandbox"}, "sandbox.Instruments measure every backend"},
	{"github.com/google/jsonschema-go/jsonschema", nil, "for tests: what is published is checked as a client checks it"},
	{"github.com/google/go-cmp", nil, "for tests"},
	{"go.opentelemetry.io/proto/otlp", nil, "for tests: what is sent is read by the official decoder, whose start the product would pay at each wall"},
	{"google.golang.org/protobuf", nil, "for tests, likewise"},
	{"github.com/prometheus/common", nil, "for tests: what is shown is read by the official parser"},
	{"github.com/prometheus/client_model", nil, "for tests, likewise"},
	{"github.com/rogpeppe/go-internal", nil, "for tests"},
}

// narrow are the parts of the standard library that change what a room can do.
var narrow = []struct {
	path  string
	rooms []string
	why   string
}{
	{"os/exec", []string{"srt", "cmd/mcp-sandbox", "workload/workloadtest/plain"}, "processes are started in srt, and by cmd, which hands a starter to those that need one; the emulator's plain starter is a room of its own"},
	{"unsafe", []string{"srt", "cmd/mcp-sandbox"}, "memory is handled raw only at the system calls of the wall"},
	{"C", nil, "the product needs no cgo: one static binary"},
	{"flag", []string{"cmd/mcp-sandbox"}, "flags are read in cmd alone; rooms take plain structs"},
	{"log", nil, "logs go through an injected *slog.Logger"},
	{"plugin", nil, "one static binary"},
}

// process are the names of package os and fmt by which a room would reach past
// its caller to the process that it happens to live in.
var process = map[string]string{
	"os.Exit":      "only main ends the process; others return errors",
	"os.Getenv":    "the environment is read in cmd alone; rooms take plain structs",
	"os.LookupEnv": "the environment is read in cmd alone; rooms take plain structs",
	"os.Environ":   "the environment is read in cmd alone, and a child's is constructed",
	"os.ExpandEnv": "the environment is read in cmd alone; rooms take plain structs",
	"os.Setenv":    "the environment is the whole process's",
	"os.Args":      "arguments are read in cmd alone",
	"os.Stdout":    "stdout is the protocol's alone, and cmd's to hand out",
	"fmt.Print":    "stdout is the protocol's alone",
	"fmt.Printf":   "stdout is the protocol's alone",
	"fmt.Println":  "stdout is the protocol's alone",
}

// A file is one noun. Above goal it is said, above limit it fails.
const (
	goal  = 400 // lines
	limit = 450
)

var unfinished = regexp.MustCompile(`\b(` + "TO" + `DO|` + "FIX" + `ME)\b`)

func TestArchitecture(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range sources(t) {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := unfinished.FindIndex(src); at != nil {
			t.Errorf("%s:%d: %s: finish it, or file it", name, 1+strings.Count(string(src[:at[0]]), "\n"), src[at[0]:at[1]])
		}
		if path.Ext(name) != ".go" {
			continue
		}
		dir := path.Dir(name)
		seen[dir] = true
		if _, ok := rooms[dir]; !ok {
			t.Errorf("%s: %s is not a room: a further one needs a reason in RATIONALE.md, and a line in this test", name, dir)
			continue
		}
		test := strings.HasSuffix(name, "_test.go")
		if lines := strings.Count(string(src), "\n"); !test && lines > limit {
			t.Errorf("%s has %d lines: a file is one noun, about %d lines at most", name, lines, goal)
		} else if !test && lines > goal {
			t.Logf("%s has %d lines: a file is one noun, about %d lines at most", name, lines, goal)
		}
		file := source{t, name, dir, test, token.NewFileSet(), nil}
		file.tree, err = parser.ParseFile(file.set, name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		file.checkImports()
		file.checkNames()
	}
	if !seen["sandbox"] {
		t.Error("found no Go file in sandbox: this test looks at the wrong folder")
	}
}

// sources lists the files that people write, by slashed paths from the root.
func sources(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch base := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && exists(filepath.Join(name, "go.mod")):
			return fs.SkipDir // another module, which stands in for a dependency
		case entry.IsDir() && (base == "testdata" || base == "node_modules" || base == "bin" || base != "." && base[0] == '.'):
			return fs.SkipDir
		case entry.Type().IsRegular() && (base == "Makefile" || slices.Contains([]string{".go", ".py", ".mjs", ".sh"}, filepath.Ext(base))):
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// source is one Go file of a room.
type source struct {
	t    *testing.T
	name string
	room string
	test bool // a test file, or one of a room that exists for tests
	set  *token.FileSet
	tree *ast.File
}

func (s *source) fail(at ast.Node, format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("%s: "+format, append([]any{s.set.Position(at.Pos())}, args...)...)
}

// suite says whether a room exists for tests. The emulator is a product besides.
func suite(room string) bool { return strings.HasSuffix(room, "test") && !emulator(room) }

// emulator says whether a room is of the emulator, which tests may import too.
func emulator(room string) bool {
	return room == "workload/workloadtest" || strings.HasPrefix(room, "workload/workloadtest/")
}

func (s *source) checkImports() {
	for _, spec := range s.tree.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		if room, ours := strings.CutPrefix(to, module+"/"); ours {
			s.checkRoom(spec, room)
			continue
		}
		if first, _, _ := strings.Cut(to, "/"); strings.Contains(first, ".") {
			s.checkOutside(spec, to)
			continue
		}
		for _, rule := range narrow {
			if to == rule.path && !s.test && !suite(s.room) && !slices.Contains(rule.rooms, s.room) {
				s.fail(spec, "%s imports %s: %s", s.room, to, rule.why)
			}
		}
	}
}

func (s *source) checkRoom(spec ast.Node, to string) {
	room := rooms[s.room]
	switch {
	case to == s.room && s.test: // an external test package
	case (suite(to) || emulator(to)) && s.test:
	case suite(to):
		s.fail(spec, "%s imports %s, which exists for tests", s.room, to)
	case room.imports[to] == "":
		s.fail(spec, "%s imports %s: %s %s", s.room, to, s.room, room.what)
	}
}

func (s *source) checkOutside(spec ast.Node, to string) {
	for _, rule := range outside {
		if to != rule.path && !strings.HasPrefix(to, rule.path+"/") {
			continue
		}
		exempt := (s.test || suite(s.room)) && !strings.HasPrefix(to, "github.com/mark3labs/")
		if !exempt && !slices.Contains(rule.rooms, s.room) {
			s.fail(spec, "%s imports %s: %s", s.room, to, rule.why)
		}
		return
	}
	s.fail(spec, "%s imports %s, a new dependency: name its rooms and its reason in this test", s.room, to)
}

func (s *source) checkNames() {
	if s.test || suite(s.room) {
		return
	}
	for _, decl := range s.tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			s.fail(f, "func init: what a package needs, its New makes")
		}
	}
	if s.room == "cmd/mcp-sandbox" {
		return
	}
	names := map[string]string{} // what the file calls a package -> its path
	for _, spec := range s.tree.Imports {
		to, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = to
	}
	ast.Inspect(s.tree, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if left, ok := selector.X.(*ast.Ident); ok {
				name := names[left.Name] + "." + selector.Sel.Name
				if why := process[name]; why != "" {
					s.fail(selector, "%s uses %s: %s", s.room, name, why)
				}
			}
		}
		return true
	})
}

// The table itself must not rot: every room it lets another import is a room.
func TestArchitectureTable(t *testing.T) {
	for from, room := range rooms {
		for to, why := range room.imports {
			if _, ok := rooms[to]; !ok || why == "" {
				t.Errorf("%s → %s: no such room, or no reason", from, to)
			}
		}
	}
}
