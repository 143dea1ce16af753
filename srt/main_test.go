package srt

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestMain makes the test binary its own be-child, as the real one is, unless the
// environment names the binary that is shipped: a race detector takes more memory than a
// session may have.
func TestMain(m *testing.M) {
	if code, ok := Applet(os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "be-child" {
		if filepath.Base(os.Args[0]) == offFirstThread {
			runtime.LockOSThread() // so that no other goroutine runs on this one
			go func() { os.Exit(BeChild(os.Args[2:])) }()
			select {}
		}
		os.Exit(BeChild(os.Args[2:]))
	}
	remove, err := shareBinary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // which is for tests that work; these wait
		_ = f.Value.Set("4")
	}
	code := m.Run()
	remove()
	os.Exit(code)
}

// offFirstThread is a name of the test binary by which be-child does not begin on the
// process's first thread, as may happen to any on a busy machine.
const offFirstThread = "off-first-thread"

const testBin = "MCP_SANDBOX_TEST_BIN"

// shareBinary copies the binary to where an ordinary user can start it too.
func shareBinary() (remove func(), err error) {
	path := os.Getenv(testBin)
	if path == "" || os.Geteuid() != 0 {
		return func() {}, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wall-bin-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "mcp-sandbox")
	if err := os.WriteFile(copied, content, 0o755); err != nil {
		return nil, err
	}
	return func() { os.RemoveAll(dir) }, os.Setenv(testBin, copied)
}

// testNative is what raises walls in tests.
func testNative() nativeConfig { return nativeConfig{Executable: os.Getenv(testBin)} }

// required skips for want of an ability of the host; MCP_SANDBOX_REQUIRE=1 makes that a failure.
func required(t testing.TB, ok bool, why string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("MCP_SANDBOX_REQUIRE") == "1":
		t.Fatalf("required: %s", why)
	default:
		t.Skip(why)
	}
}
