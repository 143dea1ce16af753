package srt

import (
	"testing"

	"mcp-sandbox/sandbox/sandboxtest"
)

// What the landlock wall lets through, or can't show, on purpose.
var landlockExceptions = map[string]string{
	"ID-02": "an ordinary user can't empty its bounding set; with no_new_privs it is of no use",
	"NT-10": "the name of a socket can be seen, as that of any file; connect is refused, and no socket can be made",
}

func TestEscapeLandlock(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := local(t, Config{Wall: WallLandlock, Limits: small})
		env := sandboxtest.Bait(t, small)
		env.Except = landlockExceptions
		sandboxtest.Escape(t, opener(l), env)
	})
}

func TestConformanceLandlock(t *testing.T) {
	asUser(t, func(t *testing.T) {
		l := local(t, Config{Wall: WallLandlock, Limits: small, Commands: wholeList(t)})
		sandboxtest.Run(t, opener(l), sandboxtest.Abilities{Limits: small})
	})
}
