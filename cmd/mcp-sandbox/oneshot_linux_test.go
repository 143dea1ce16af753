package main_test

import (
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
	"mcp-sandbox/workload"
)

// The one suite for all backends, on containers of which each runs one call.
func TestOneShotConformance(t *testing.T) {
	limits := sandbox.Limits{Disk: 64 << 20, Inodes: 5000, OpenFiles: 256}
	const memory = 384 << 20
	open := startCluster(t).remote(t, workload.Config{Mode: workload.ModeOneShot, Memory: memory, Limits: limits})
	has := limits
	has.Memory = memory
	sandboxtest.Run(t, open, sandboxtest.Abilities{Limits: has, Stateless: true, Lacks: map[sandboxtest.Ability]string{
		sandboxtest.Commands:    "commands run on this machine",
		sandboxtest.Hibernation: "there is nothing to keep",
		sandboxtest.Externals:   "nobody answers a container that runs one call",
		sandboxtest.Streaming:   "output comes with the result",
		sandboxtest.TaskLimit:   "the cluster limits tasks, and has no way to be asked for it",
	}})
}
