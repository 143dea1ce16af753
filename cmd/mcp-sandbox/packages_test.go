package main_test

import (
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
