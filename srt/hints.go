package srt

import (
	"fmt"
	"strings"
)

// pathHint explains a path that is not there, or can't be written.
func (p Policy) pathHint() string {
	places := []string{}
	for _, m := range p.withDefaults().shown() {
		how := "read-only"
		if m.Writable {
			how = "writable"
		}
		places = append(places, fmt.Sprintf("%s (%s)", m.Guest, how))
	}
	places = append(places, p.tmp()+" (writable)")
	return "Of this machine's files code sees " + strings.Join(places, ", ") +
		", besides Python and the system's libraries, read-only. The operator of this server adds a directory by --mount SRC:DST, writable by --mount SRC:DST:rw."
}
