package srt

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The standby is a process of the session like any other, and what it does not share with
// the worker counts. Where memory is short it goes first, if that helps: it holds what the
// worker has overwritten since the checkpoint. Where it does not help, because the worker
// has simply grown, the worker is ended, and the standby takes over.

const (
	// workerOOM is what the supervisor gives to whatever it starts.
	workerOOM = 800
	// standbyOOM makes the kernel take the standby unless the worker is larger by more than
	// a tenth of the limit: what grew so fast that glance did not see it.
	standbyOOM = 900
)

// parked tells the kernel which of the two to take first. It is a preference: on a host
// that refuses it, the larger one goes.
func parked(k kin, pid int, yes bool) {
	score := workerOOM
	if yes {
		score = standbyOOM
	}
	f, err := os.OpenFile(behind(k, pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return // it has ended
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(score))
}

// behind is the directory of a process of k by the number that the guest knows.
func behind(k kin, pid int) string {
	if !k.namespace {
		return fmt.Sprintf("/proc/%d", pid)
	}
	return fmt.Sprintf("/proc/%d/root/proc/%d", k.first, pid)
}

// dying reports whether a process has been killed, though it may not have ended.
func dying(k kin, pid int) bool {
	b, err := os.ReadFile(behind(k, pid) + "/status")
	if err != nil {
		return true
	}
	hasMemory := false
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "VmRSS":
			hasMemory = true
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
			if err != nil || pending&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return !hasMemory
}

// ownMemory is what would be free if the process ended: pages that no other maps.
func ownMemory(k kin, pid int) (int64, error) {
	b, err := os.ReadFile(behind(k, pid) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	var total int64
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Private_")); ok {
			f := bytes.Fields(rest) // Dirty: 12 kB
			if len(f) != 3 {
				continue
			}
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err != nil {
				return 0, err
			}
			total += kb << 10
		}
	}
	return total, nil
}
