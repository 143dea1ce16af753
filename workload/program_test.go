package workload

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload/workloadtest"
)

// The program has all that it loads with it, and leaves room for what grows.
func TestOnceProgram(t *testing.T) {
	modules, err := onceModules()
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range modules {
		if source == "" {
			t.Errorf("%s is empty", name)
		}
		for _, found := range regexp.MustCompile(`load\("(\w+)"\)`).FindAllStringSubmatch(source, -1) {
			if _, ok := modules[found[1]]; !ok {
				t.Errorf("%s loads %s, which is not there", name, found[1])
			}
		}
	}
	program, err := onceProgram(settings{Nonce: newNonce(), Timeout: 600, Output: 20_000})
	if err != nil || len(program) > MaxEnv/2 {
		t.Errorf("%d bytes, %v", len(program), err)
	}
}

// What a session says of values and errors, a call in a container of its own says too.
func TestOneShotSaysTheSame(t *testing.T) {
	b := emulated(t, nil)
	for code, want := range map[string]string{
		"import no_such_module_xyz": "no_such_module_xyz",
		"input()":                   "There is nobody to answer input()",
		"raise SystemExit('bye')":   "bye",
		"raise MemoryError":         "The container's memory limit is 512 MiB.",
	} {
		if r := b.run(code); r.Status == sandbox.StatusOK || r.ExitCode == 0 || !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v", code, r)
		}
	}
}

// A table is text of its shape, types and rows there too.
func TestOneShotTable(t *testing.T) {
	python, set := os.LookupEnv("MCP_SANDBOX_TEST_ANALYST_PYTHON")
	sandboxtest.Require(t, set, "MCP_SANDBOX_TEST_ANALYST_PYTHON, which `make test` sets")
	b := emulated(t, func(e *workloadtest.Config, _ *Config) { e.Python = python })
	if r := b.run("import pandas\npandas.DataFrame({'a': [1, 2]})"); !strings.Contains(string(r.Output), "DataFrame, 2 rows x 1 column") || len(r.Notes) != 0 {
		t.Errorf("%s %q %s", r.Output, r.Notes, r.Error)
	}
}
