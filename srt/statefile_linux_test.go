package srt

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// Whatever lies in the place of a state file, the variables are lost with a reason, at
// once, and the session can be saved anew.
func TestReplacedState(t *testing.T) {
	l := local(t, Config{})
	for name, replace := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink("/etc/hostname", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"huge": func(path string) error {
			if err := os.WriteFile(path, []byte(stateMagic), 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40) // days, to make a sum of it
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := opener(l)(t).(*session)
			hibernated(t, s, "x = 1")
			path := filepath.Join(s.dir, stateFile)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			res, err := s.Run(t.Context(), sandbox.Request{Code: "'x' in globals()", Timeout: 20 * time.Second})
			if err != nil || res.Status != sandbox.StatusOK || res.State != sandbox.StateLost || string(res.Output) != "false" || !noted(res, "could not be restored") {
				t.Fatalf("%s, %s, %v after %v: %s%s%q", res.Status, res.State, err, time.Since(start), res.Output, res.Error, res.Notes)
			}
			do(t, s, "y = 2", sandbox.StatusOK, sandbox.StateKept)
			hibernate(t, s)
			do(t, s, "y", sandbox.StatusOK, sandbox.StateRestored)
		})
	}
}
