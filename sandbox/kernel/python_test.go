package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pythons are the interpreters to try: python3, and those that `make test` has
// found on the machine.
func pythons(t *testing.T) []string {
	t.Helper()
	list, set := os.LookupEnv("MCP_SANDBOX_TEST_PYTHONS")
	if !set && os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
		t.Fatal("required: MCP_SANDBOX_TEST_PYTHONS, which `make test` sets")
	}
	found := filepath.SplitList(list)
	if path, err := exec.LookPath("python3"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		if os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
			t.Fatal("required: python3")
		}
		t.Skip("no python3")
	}
	return found
}

// The interpreter's side has tests in its own language, which talk to it as the
// server does. One of each version is enough, and they mostly wait.
func TestInterpretersSide(t *testing.T) {
	tried := map[string]bool{}
	for _, python := range pythons(t) {
		version, err := exec.Command(python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if err != nil {
			t.Errorf("%s: %v", python, err)
			continue
		}
		if tried[string(version)] {
			continue
		}
		tried[string(version)] = true
		t.Run(strings.TrimSpace(string(version)), func(t *testing.T) {
			t.Parallel()
			unittests(t, python, "test*.py")
		})
	}
}

// The same with the packages that people use, where an interpreter has them.
func TestInterpretersSideWithPackages(t *testing.T) {
	python := os.Getenv("MCP_SANDBOX_TEST_ANALYST_PYTHON")
	if python == "" && os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
		t.Fatal("required: MCP_SANDBOX_TEST_ANALYST_PYTHON, which `make test` sets")
	}
	if python == "" {
		t.Skip("no MCP_SANDBOX_TEST_ANALYST_PYTHON")
	}
	unittests(t, python, "packages*.py")
}

func unittests(t *testing.T, python, pattern string) {
	t.Helper()
	cmd := exec.Command(python, "-m", "unittest", "discover", "-s", "pytest", "-p", pattern)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", python, err, out)
	}
}
