package srt

import (
	"fmt"
	"strings"
)

// networkHint explains a refused connection to who wrote the code.
func (at places) networkHint() string {
	return "The sandbox has no network, and no flag of this server gives it one: ask for the data as a file in " + at.Workspace + ", or as `inputs`."
}

// packageHint tells how a package comes here.
const packageHint = "Code can't install any; the operator of this server can, into the environment of the Python that --python names."

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
