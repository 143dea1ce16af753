package srt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mcp-sandbox/sandbox/sandboxtest"
)

const (
	testSRT  = "MCP_SANDBOX_TEST_SRT"  // the srt command
	testNode = "MCP_SANDBOX_TEST_NODE" // the node that runs it
)

// users are how many ordinary users tests have been run as: each is another one, since the
// kernel counts processes by user, and a test may use them up.
var users atomic.Uint32

// asUser runs test as an ordinary user: in a test binary of its own, where we are root.
func asUser(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Run("user", test)
		return
	}
	t.Parallel() // this process only waits
	name, _, _ := strings.Cut(t.Name(), "/")
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+name+"$/^user$", "-test.v", "-test.count=1")
	id := 12345 + users.Add(1)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	for _, name := range []string{"MCP_SANDBOX_REQUIRE", testBin, testSRT, testNode, clientPython} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP: "+t.Name()+"/user ") {
		t.Skip(string(out))
	}
	t.Logf("%s", out)
}

// testSRTConfig is where the srt command for tests is.
func testSRTConfig(t testing.TB) srtConfig {
	t.Helper()
	srt, node := os.Getenv(testSRT), os.Getenv(testNode)
	required(t, srt != "" && node != "", testSRT+" and "+testNode+" don't say where srt and its Node are: test/install does")
	return srtConfig{Command: srt, Path: filepath.Dir(node) + ":/usr/bin:/bin"}
}

// srtLocal is local behind the wall srt.
func srtLocal(t testing.TB, cfg Config) *Local {
	t.Helper()
	cfg.Wall, cfg.srt = WallSRT, testSRTConfig(t)
	return local(t, cfg)
}

// srtExceptions are the probes that get another verdict behind the wall srt, with the
// reasons, which SECURITY.md gives too.
var srtExceptions = map[string]string{
	"ID-02": "srt's own first process keeps the capabilities of a user namespace that is the session's alone, whose bounding set " +
		"nobody without capabilities can empty; the guest has none, and no_new_privs lets it gain none",
}

func TestSRTEscape(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := srtLocal(t, Config{Limits: small, Warm: 1}) // each is as good as one that starts cold, and sooner there
		env := sandboxtest.Bait(t, small)
		env.Except, env.Watched = srtExceptions, map[string]string{"LM-06": "temporary files lie on the server's disk"}
		sandboxtest.Escape(t, opener(l), env)
	})
}

// srtLacks are the abilities that the wall srt can't give.
var srtLacks = map[sandboxtest.Ability]string{}

func TestSRTConformance(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := srtLocal(t, Config{Limits: small, Commands: wholeList(t), Warm: 2})
		sandboxtest.Run(t, opener(l), sandboxtest.Abilities{Limits: small, Lacks: srtLacks})
	})
}
