package srt

import "testing"

// What the kernel can read again from a disk is nobody's memory; what was written to
// privately, lies in memory, or may, is.
func TestAddMappings(t *testing.T) {
	entry := func(line, pss, anonymous string) string {
		return line + "\nRss: 999 kB\nPss: " + pss + " kB\nPss_Dirty: 1 kB\nAnonymous: " + anonymous + " kB\nSwap: 5 kB\n"
	}
	for name, tt := range map[string]struct {
		smaps string
		want  int64 // in KiB
	}{
		"anonymous":               {entry("1000-2000 rw-p 00000000 00:00 0", "100", "100"), 100},
		"the heap":                {entry("1000-2000 rw-p 00000000 00:00 0 [heap]", "100", "100"), 100},
		"a file's cache":          {entry("1000-2000 r--s 00000000 fe:00 7 /workspace/f", "100", "0"), 0},
		"a file, written private": {entry("1000-2000 rw-p 00000000 fe:00 7 /lib/x", "100", "30"), 30},
		"the same, shared":        {entry("1000-2000 rw-p 00000000 fe:00 7 /lib/x", "20", "30"), 20},
		"shared anonymous":        {entry("1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)", "100", "0"), 100},
		"perhaps in memory":       {entry("1000-2000 r--s 00000000 00:2f 7 /workspace/f", "100", "0"), 100},
		"counted already":         {entry("1000-2000 rw-s 00000000 00:30 9 /memfd:m (deleted)", "100", "100"), 0},
		"several":                 {entry("1000-2000 rw-s 00000000 00:30 9 /m", "1", "1") + entry("3000-4000 rw-p 00000000 00:00 0", "2", "2") + entry("5000-6000 r--p 00000000 fe:00 7 /f", "4", "0"), 2},
	} {
		got, err := addMappings([]byte(tt.smaps), func(id fileID) bool { return id.ino == 9 })
		if err != nil || got != tt.want<<10 {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
