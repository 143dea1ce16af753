//go:build !linux

package srt

import "errors"

// Control groups are Linux's: here there never is one.
type (
	cgroups struct{}
	cgroup  struct{}
)

func findCgroups(string) (*cgroups, string) { return nil, "memory: the watchdog" }

func (*cgroups) create(Policy) (*cgroup, error) { return nil, nil }

func (*cgroup) place(int) error         { return nil }
func (*cgroup) oomKills() (int64, bool) { return 0, false }
func (*cgroup) usage() (int64, error)   { return 0, errors.ErrUnsupported }
func (*cgroup) remove() error           { return nil }

func sweepCgroups() error { return nil }
