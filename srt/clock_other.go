//go:build !linux

package srt

import "time"

// fileClock is the clock by which the kernel stamps files, in ns since 1970.
func fileClock() int64 { return time.Now().UnixNano() }
