//go:build !linux

package srt

// held is what a session holds beside its files and its processes' own memory.
type held struct {
	disk, memory int64
	flight       int
}

func activityOf(kin, int) (uint64, bool, error) { return 0, false, errNoNative }
func heldBy(kin, bool) (held, error)            { return held{}, nil }
func memoryOf(kin, int64, held) (int64, error)  { return 0, errNoNative }
func tasksOf(kin) (int, error)                  { return 0, errNoNative }
func canWatchMemory() error                     { return errNoNative }
