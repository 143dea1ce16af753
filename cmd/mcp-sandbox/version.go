package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// buildVersion is what the go command has stamped: a release's tag, or the
// commit's.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func (p program) version() int {
	_, err := fmt.Fprintf(p.stdout, "mcp-sandbox %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return p.fail(exitFailed, err)
	}
	return exitOK
}
