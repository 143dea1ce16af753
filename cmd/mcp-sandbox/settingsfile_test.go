package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is named as a settings file can't take the server's memory or hold it up.
func TestSettingsFilesThatAreNone(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/zero":  "more than 1 MiB",
		fifo:         "no JSON",
		os.TempDir(): "is a directory",
		fifo + "x":   "no such file",
	} {
		_, err := wallFlags{SRTSettings: path}.settings()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
}
