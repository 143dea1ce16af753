package main_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The official conformance suite asks every question that a revision of the
// protocol has for a server: the product, as far as it has what the suite asks
// about, and a fixture with all of it behind the product's own transport.

// revisions are those of which the suite holds requirements, and the scenarios of
// each that need nothing but a server. All others want tools, prompts or resources
// by certain names.
var revisions = map[string][]string{
	"2025-11-25": {"server-initialize", "server-session-lifecycle", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"},
	"2026-07-28": {"server-stateless", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection", "http-header-validation"},
}

func TestConformance(t *testing.T) {
	suite := newConformanceSuite(t)
	t.Run("product", func(t *testing.T) {
		w := serveWeb(t)
		for revision, scenarios := range revisions {
			suite.run(t, w.url, "product", revision, scenarios)
		}
		w.stop()
	})
	t.Run("fixture", func(t *testing.T) {
		url := startFixture(t)
		for revision := range revisions {
			suite.run(t, url, "fixture", revision, nil)
		}
	})
}

// startFixture starts the server that has all that the suite asks about, and
// gives its address.
func startFixture(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("conformance")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// conformanceSuite is the command of the suite.
type conformanceSuite []string

func newConformanceSuite(t *testing.T) conformanceSuite {
	t.Helper()
	modules := installed(t, "MCP_SANDBOX_TEST_NODE_MODULES")
	return conformanceSuite{installed(t, "MCP_SANDBOX_TEST_NODE"), filepath.Join(modules, "@modelcontextprotocol/conformance/dist/index.js"), "server"}
}

// run asks a server all that a revision requires and what the suite has besides,
// and holds what failed against the list of what is known to. With scenarios, only
// those are judged, and that whatever was sent is what the protocol's schema says.
// It counts the checks that passed, and those that were excused.
func (suite conformanceSuite) run(t *testing.T, url, target, revision string, scenarios []string) (passed, excused int) {
	t.Helper()
	dir := t.TempDir()
	baseline, err := filepath.Abs(filepath.Join("testdata/conformance", target+"-"+revision+".yml"))
	if err != nil {
		t.Fatal(err)
	}
	argv := append(slices.Clone(suite), "--url", url+"/mcp", "--requirements", revision, "--expected-failures", baseline, "-o", dir)
	begun := time.Now()
	out, stderr, err := try(t, dir, nil, argv...)
	known := readBaseline(t, baseline)
	if err != nil && scenarios == nil { // the suite's own judgment: it knows of a scenario that broke off before any check
		t.Errorf("%s, %s: %v\n%.3000s\n%.3000s", target, revision, err, out[max(0, strings.Index(out, "=== SUMMARY")):], stderr)
	}
	seen := map[string]bool{}
	for _, c := range readChecks(t, dir) {
		if scenarios != nil && c.ID != "wire-schema-valid" && !slices.Contains(scenarios, c.scenario) {
			continue
		}
		seen[c.scenario] = true
		switch name := c.scenario + ":" + c.ID; {
		case c.Status == "SUCCESS":
			passed++
		case c.Status != "FAILURE" && c.Status != "WARNING": // a warning is a failure here
		case known[name] != nil:
			*known[name] = true
			excused++
		case known[c.scenario] != nil:
			*known[c.scenario] = true
			excused++
		default:
			t.Errorf("%s, %s: %s: %s", target, revision, name, c.ErrorMessage)
		}
	}
	for line, failed := range known {
		if !*failed {
			t.Errorf("%s, %s: %s passes now: take it out of the list", target, revision, line)
		}
	}
	for _, s := range scenarios {
		if !seen[s] {
			t.Errorf("%s, %s: %s was not asked", target, revision, s)
		}
	}
	t.Logf("%s, %s: %d checks passed, %d were excused, in %v", target, revision, passed, excused, time.Since(begun).Round(time.Millisecond))
	if passed == 0 {
		t.Error("nothing was asked")
	}
	return passed, excused
}

// conformanceCheck is one of a scenario's.
type conformanceCheck struct {
	scenario     string
	ID           string
	Status       string
	ErrorMessage string
}

// readChecks reads what the suite has written.
func readChecks(t *testing.T, dir string) (all []conformanceCheck) {
	t.Helper()
	results, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)
	for _, path := range results {
		m := named.FindStringSubmatch(filepath.Base(filepath.Dir(path)))
		b, err := os.ReadFile(path)
		if err != nil || m == nil {
			t.Fatalf("%s: %v", path, err)
		}
		var checks []conformanceCheck
		if err := json.Unmarshal(b, &checks); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range checks {
			c.scenario = m[1]
			all = append(all, c)
		}
	}
	return all
}

// readBaseline reads what is known to fail: a scenario, or a check of one, each
// with its reason. The format is the suite's own for expected failures. The values
// are for who sees them fail.
func readBaseline(t *testing.T, path string) map[string]*bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`^  - ([a-z0-9-]+(?::[A-Za-z0-9$_-]+)?) # \S.+$`)
	known := map[string]*bool{}
	for n, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		m := entry.FindStringSubmatch(line)
		switch {
		case m != nil && known[m[1]] == nil:
			known[m[1]] = new(bool)
		case m == nil && (strings.HasPrefix(line, "#") || line == "server:" || line == "server: []"):
		default:
			t.Fatalf("%s:%d: expected '  - scenario # reason' or '  - scenario:check # reason', once, but got %q", path, n+1, line)
		}
	}
	return known
}
