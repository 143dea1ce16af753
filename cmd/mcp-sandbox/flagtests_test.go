package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// flagTests names, for each flag of serve, exec and doctor, the tests of its effect: tests
// of Go by their names, scripts by the names of their files. The first is one that gives
// the flag, or its variable, to the program; others may prove further in what it then does.
// Parsing is no effect, and flags.txtar therefore no answer.
var flagTests = map[string]string{
	"help": "version.txtar",

	// wallFlags
	"wall":         "TestGuardianOutlivesServer doctor.txtar TestSRTKilled",
	"srt-settings": "wall.txtar",
	"allow-domain": "TestAllowDomain TestNetwork",
	"python":       "TestAnalyst",
	"mount":        "wall.txtar",
	"memory":       "TestPlotUnderEachCap effects.txtar",
	"max-tasks":    "TestPlotUnderEachCap effects.txtar",
	"max-disk":     "TestPlotUnderEachCap effects.txtar",
	"max-output":   "TestMaxOutput",
	"env":          "wall.txtar",

	// warmFlags
	"warm":    "effects.txtar TestWarm TestResetWarmsUp",
	"preload": "effects.txtar TestPreloadThatHarms TestPreloadThatFails",

	// packageFlags
	"requirements":               "TestRequirements doctor.txtar",
	"cache-dir":                  "TestRequirements",
	"dangerously-build-packages": "TestBuildPackages TestMakeEnvironmentRunsNoSource",

	// callFlags
	"timeout":     "effects.txtar wall.txtar",
	"max-timeout": "effects.txtar",

	// commandFlags
	"cli-operators":             "exec.txtar",
	"cli-allow":                 "commands.txtar",
	"dangerously-allow-command": "wall.txtar",

	// remoteFlags
	"python-backend":                "remote.txtar",
	"workload-mode":                 "TestWorkloadFlags",
	"workload-image":                "TestWorkloadFlags",
	"workload-api-base":             "TestWorkloadFlags",
	"workload-provisioning-timeout": "TestWorkloadProvisioningTimeout",
	"workload-security-context":     "TestWorkloadFlags",
	"workload-cpu":                  "TestWorkloadFlags",
	"workload-memory":               "TestWorkloadFlags",
	"workload-bare":                 "TestWorkloadFlags",
	"workload-allow-http":           "TestWorkloadAllowHTTP",
	"workload-caller-token":         "TestWorkloadCallerTokenFlag TestCallerToken",

	// httpFlags
	"listen":           "TestListen",
	"no-sse":           "TestNoSSE",
	"auth-token-file":  "TestTokens",
	"tls-cert":         "TestTLS",
	"tls-key":          "TestTLS",
	"allow-origin":     "TestWebPagesAreKeptOut",
	"allow-host":       "TestAllowHost",
	"shared-workspace": "TestSharedWorkspace",
	"drain-timeout":    "TestDrain",

	// observeFlags
	"audit-log":      "TestAuditLog",
	"audit-max-size": "TestAuditRotationFlags",
	"audit-keep":     "TestAuditRotationFlags",

	// serveFlags
	"transport":       "TestListen",
	"workspace":       "effects.txtar",
	"state-dir":       "TestKilledWhileHibernating",
	"session-idle":    "TestIdleEndsBackground",
	"session-max-age": "TestUnknownSessionIsOneError",
	"max-sessions":    "effects.txtar",
	"max-hibernated":  "TestMaxHibernated",
	"checkpoint":      "effects.txtar",
	"max-running":     "effects.txtar",

	// externalsFlags
	"externals":           "TestExternalsServed TestOfficialUpstreams",
	"externals-max-calls": "TestOfficialUpstreams TestExternalsBudgets",
	"externals-max-bytes": "TestExternalsBudgets TestExternalBytes",
	"externals-max-time":  "TestExternalsBudgets TestExternalTime",
	"externals-timeout":   "TestExternalsBudgets TestExternalTime",

	// execFlags and doctorFlags
	"cli":  "exec.txtar",
	"file": "exec.txtar",
	"out":  "TestGallery",
	"json": "doctor.txtar",

	// logFlags
	"log-level": "effects.txtar",
	"log-json":  "effects.txtar",
}

// Each flag has a test of its effect, which is there, and gives it.
func TestEveryFlagHasItsEffectTested(t *testing.T) {
	known := testSources(t)
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, command := range parser.Model.Children {
		if !slices.Contains([]string{"serve", "exec", "doctor"}, command.Name) {
			continue
		}
		for _, group := range command.AllFlags(true) {
			for _, f := range group {
				used[f.Name] = true
				names := strings.Fields(flagTests[f.Name])
				if len(names) == 0 {
					t.Errorf("--%s has no test of its effect: name one in flagTests", f.Name)
					continue
				}
				for _, name := range names {
					if known[name] == "" {
						t.Errorf("--%s: there is no test %s", f.Name, name)
					}
				}
				gives := slices.ContainsFunc([]string{"--" + f.Name, strings.ToUpper(envPrefix + strings.ReplaceAll(f.Name, "-", "_"))}, func(s string) bool {
					return strings.Contains(known[names[0]], s)
				}) || f.Short != 0 && strings.Contains(known[names[0]], " -"+string(f.Short)+" ")
				if !gives {
					t.Errorf("--%s: %s does not give it", f.Name, names[0])
				}
			}
		}
	}
	for name := range flagTests {
		if !used[name] {
			t.Errorf("flagTests has --%s, which is no flag", name)
		}
	}
}

// testSources are the texts of all tests: a function's, with those of the functions of its
// package that it calls, and a script's.
func testSources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range glob(t, "testdata/script/*.txtar") {
		if name := filepath.Base(file); name != "flags.txtar" {
			all[name] = string(source(t, file))
		}
	}
	for _, dir := range []string{".", "../../*", "../../*/*"} {
		packages := map[string]map[string]string{} // directory and package -> function -> text
		for _, file := range glob(t, dir+"/*_test.go") {
			addFunctions(t, file, packages)
		}
		for _, functions := range packages {
			for name, text := range functions {
				if strings.HasPrefix(name, "Test") {
					all[name] = text + called(text, functions)
				}
			}
		}
	}
	return all
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	return files
}

func source(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func addFunctions(t *testing.T, file string, packages map[string]map[string]string) {
	t.Helper()
	text, set := source(t, file), gotoken.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Dir(file) + " " + parsed.Name.Name
	if packages[key] == nil {
		packages[key] = map[string]string{}
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			packages[key][f.Name.Name] = string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
		}
	}
}

// called are the texts of the functions that one calls.
func called(text string, functions map[string]string) string {
	var all strings.Builder
	for _, found := range regexp.MustCompile(`\b(\w+)\(`).FindAllStringSubmatch(text, -1) {
		all.WriteString(functions[found[1]])
	}
	return all.String()
}
