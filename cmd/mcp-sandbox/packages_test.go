package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Packages of the registry, by their hashes, are made ready once, and work behind the wall.
func TestRequirements(t *testing.T) {
	t.Parallel()
	server, cache := binary(t), t.TempDir()
	file, err := filepath.Abs("../../test/packages/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{server, "exec", "--requirements", file, "--cache-dir", cache, "--timeout", "100s",
		"import orjson\norjson.dumps([1, None]).decode(), orjson.__version__"}
	for i, told := range []bool{true, false} {
		out, stderr, err := tryFor(t, 5*time.Minute, t.TempDir(), nil, args...)
		if err != nil || !strings.Contains(out, `["[1,null]","3.13.0"]`) {
			t.Fatalf("run %d: %v\n%s\n%s", i, err, out, stderr)
		}
		if strings.Contains(stderr, "packages: ") != told || told && !strings.Contains(stderr, "made "+cache) {
			t.Errorf("run %d says:\n%s", i, stderr)
		}
	}
}

// A package that comes as source runs its code where that is allowed by name, and there alone.
func TestBuildPackages(t *testing.T) {
	t.Parallel()
	server, dir := binary(t), t.TempDir()
	mark := filepath.Join(dir, "ran")
	for name, text := range map[string]string{
		"requirements.txt":    "demo @ file://" + dir + "/demo\n",
		"demo/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"b\"\nbackend-path = [\".\"]\n[project]\nname = \"demo\"\nversion = \"1.0\"\n",
		"demo/b.py":           fmt.Sprintf("open(%q, 'w')\ndef build_wheel(*a, **k): raise SystemExit('built')\n", mark),
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{server, "exec", "--requirements", filepath.Join(dir, "requirements.txt"), "--cache-dir", filepath.Join(dir, "cache"), "1"}
	for _, allowed := range []bool{false, true} {
		if allowed {
			args = append(args, "--dangerously-build-packages")
		}
		_, stderr, err := tryFor(t, 5*time.Minute, t.TempDir(), []string{"PIP_NO_INDEX=1", "UV_OFFLINE=1"}, args...)
		if err == nil || !strings.Contains(stderr, "--dangerously-build-packages") { // the one names the remedy, the other warns
			t.Errorf("allowed %v: %v\n%s", allowed, err, stderr)
		}
		if _, err := os.Stat(mark); (err == nil) != allowed {
			t.Fatalf("allowed %v: %v\n%s", allowed, err, stderr)
		}
	}
}

// The packages that people ask for first, in the newest versions.
func TestProvePackages(t *testing.T) {
	proving(t)
	server, cache := binary(t), t.TempDir()
	job, err := filepath.Abs("../../test/packages")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(installed(t, "MCP_SANDBOX_TEST_UV")) + ":" + os.Getenv("PATH")
	begun := time.Now()
	out, stderr, err := tryFor(t, 10*time.Minute, t.TempDir(), []string{"PATH=" + path}, server, "exec", "--requirements", filepath.Join(job, "all.txt"),
		"--cache-dir", cache, "--timeout", "300s", "-f", filepath.Join(job, "job.py"))
	if err != nil || !strings.Contains(out, `{"fit": [3.0, 1.0], "pyarrow": true, "polars": true, "seaborn": true, "plotly": true}`) {
		t.Fatalf("%v\n%s\n%s", err, out, stderr)
	}
	proof("polars, pyarrow, plotly, seaborn and scikit-learn of the registry: installed by uv, and a fit, two plots and a Parquet round trip behind the wall, in %v",
		time.Since(begun).Round(time.Second))
}
