package srt

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// small keeps tests of limits light.
var small = sandbox.Limits{
	Memory: 320 << 20, Tasks: 100, Disk: 64 << 20, Inodes: 5000, Shm: 32 << 20, OpenFiles: 256,
}

// local returns a sandbox that ends with the test.
func local(t testing.TB, cfg Config) *Local {
	t.Helper()
	if cfg.Python == "" {
		cfg.Python = testPython
	}
	if cfg.native == (nativeConfig{}) {
		cfg.native = testNative()
	}
	l, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

var opened atomic.Int64

// opener opens sessions of l, each to be closed with its test.
func opener(l *Local) func(t *testing.T) sandbox.Session {
	return func(t *testing.T) sandbox.Session {
		t.Helper()
		s, err := l.Open(t.Context(), sandbox.Spec{ID: fmt.Sprintf("s%d", opened.Add(1))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

func TestEscape(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{Limits: small})
		sandboxtest.Escape(t, opener(l), sandboxtest.Bait(t, small))
	})
}

// The whole contract: root's sessions start cold, an ordinary user's were ready.
func TestConformance(t *testing.T) {
	sideBySide(t)
	asEachUser(t, func(t *testing.T) {
		cfg, open := Config{Limits: small, Commands: wholeList(t)}, opener
		if os.Geteuid() != 0 {
			cfg.Warm, cfg.Preload, open = 1, []string{"json"}, readyOpener
		}
		sandboxtest.Run(t, open(local(t, cfg)), sandboxtest.Abilities{Limits: small, Heavy: true})
	})
}
