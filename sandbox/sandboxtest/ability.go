package sandboxtest

import (
	"os"
	"testing"

	"mcp-sandbox/sandbox"
)

// Ability is something that a backend may be unable to give by design.
type Ability string

// The abilities that programs of the suite need beyond running Python.
const (
	Processes   Ability = "processes"    // code may start processes
	Native      Ability = "native code"  // ctypes reaches libc
	MemoryLimit Ability = "memory limit" // Limits.Memory holds
	TaskLimit   Ability = "task limit"   // Limits.Tasks holds
	Streaming   Ability = "streaming"    // Progress shows output while code runs
	Commands    Ability = "commands"     // sessions are CommandRunners, offering at least coreutils, find, grep and tar
	Hibernation Ability = "hibernation"  // sessions are Hibernators
	Externals   Ability = "externals"    // code may call Request.Externals
	Semaphores  Ability = "semaphores"   // multiprocessing's locks, and with them its queues and pools
	Modes       Ability = "file modes"   // code may change the modes and times of its files
	Tracing     Ability = "tracing"      // /proc shows the session's processes from inside
)

// Abilities say what the sessions under test are.
type Abilities struct {
	// Limits are those that the sessions were opened with; zero values mean the
	// defaults. The programs that try the memory limit are run up to 1 GiB, those
	// that try the task limit up to 512 tasks.
	Limits sandbox.Limits

	// Lacks names what the backend can't do by design, each with the reason. The
	// programs that need it are skipped. What only this machine can't do does not
	// belong here: see Require.
	Lacks map[Ability]string

	// Stateless says that nothing is remembered between calls, by design: of each
	// program the calls that stand alone are run, and their state must be none.
	Stateless bool

	// Heavy adds programs that write a gigabyte, and the like.
	Heavy bool
}

// need skips a program that the backend can't run by design, and asks for
// limits that can be tried without harm.
func (a Abilities) need(t *testing.T, abilities []Ability) {
	t.Helper()
	for _, n := range abilities {
		if why, lacks := a.Lacks[n]; lacks {
			t.Skipf("this backend has no %s: %s", n, why)
		}
		switch n {
		case MemoryLimit:
			Require(t, a.Limits.Memory <= 1<<30, "a memory limit above 1 GiB is not tried: open the sessions with a smaller one")
		case TaskLimit:
			Require(t, a.Limits.Tasks <= 512, "a task limit above 512 is not tried: open the sessions with a smaller one")
		}
	}
}

// Require skips the test where a condition does not hold, with the reason. With
// MCP_SANDBOX_REQUIRE=1 in the environment, which `make test` sets, it fails
// instead, so that no ability goes missing in silence.
func Require(t testing.TB, ok bool, reason string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
		t.Fatalf("required: %s", reason)
	}
	t.Skip(reason)
}
