//go:build !linux

package srt

import "errors"

// cgroup is always nil here: control groups are Linux's.
type cgroup struct{}

func (*cgroup) oomKills() (int64, bool) { return 0, false }
func (*cgroup) usage() (int64, error)   { return 0, errors.ErrUnsupported }
func (*cgroup) remove() error           { return nil }

func sweepCgroups() error { return nil }
