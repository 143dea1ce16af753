package sandbox

import (
	"context"
	"time"
)

// Hibernator is a power that a Session may have besides: to cost nothing but
// disk while nobody uses it.
type Hibernator interface {
	// Hibernate writes the variables to the server's disk and ends all
	// processes; the next Run brings them back, and its State is restored. It
	// takes a turn like a call, and gives up when ctx ends. After an error the
	// session is as it was, or its next Run says what was lost.
	Hibernate(ctx context.Context) error
	// Shed ends all processes without keeping the variables. The next Run says
	// that they are lost, and why: a sentence without its full stop.
	Shed(why string) error
	// Leave is Close, but for a Keeper's sessions: what they have on the
	// server's disk stays there for the next server.
	Leave() error
}

// Keeper is a power that a Sandbox may have besides: its sessions can outlive
// the server.
type Keeper interface {
	// Kept are the sessions that earlier servers left behind. Open with the ID
	// of one brings it back. nil = none are kept here.
	Kept() []Kept
	// Discard removes one that was not opened.
	Discard(id string) error
}

// Kept is a session on the server's disk.
type Kept struct {
	Spec
	Used time.Time // when it was last
}
