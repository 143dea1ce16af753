package srt

import (
	"time"

	"golang.org/x/sys/unix"
)

// fileClock is the clock by which the kernel stamps files, in ns since 1970: it goes a
// tick behind the one that programs read.
func fileClock() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return time.Now().UnixNano()
	}
	return ts.Nano()
}
