package srt

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Applet runs this binary as one of the commands that it is itself inside the
// wall for commands, if args[0] is the name of one: which and shasum, scripts on
// many systems, whose interpreters the wall does not show. ok is false for any
// other name.
func Applet(args, env []string, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch filepath.Base(args[0]) {
	case "which":
		return which(args, env, stdout), true
	case "shasum":
		s := shasum{stdin: stdin, stdout: stdout, stderr: stderr}
		return s.run(args[1:]), true
	}
	return 0, false
}

// which prints where programs are, as Debian's does: -a all places, -s nothing.
func which(args, env []string, stdout io.Writer) int {
	all, silent := false, false
	names := args[1:]
	for len(names) > 0 && len(names[0]) > 1 && names[0][0] == '-' {
		flags := names[0][1:]
		names = names[1:]
		if flags == "-" {
			break
		}
		for _, f := range flags {
			switch f {
			case 'a':
				all = true
			case 's':
				silent = true
			default:
				fmt.Fprintf(stdout, "Usage: %s [-as] args\n", args[0])
				return 2
			}
		}
	}
	code := 0
	if len(names) == 0 {
		code = 1
	}
	for _, name := range names {
		places := programPlaces(name, env)
		if len(places) == 0 {
			code = 1
		}
		for i, place := range places {
			if !silent && (all || i == 0) {
				fmt.Fprintln(stdout, place)
			}
		}
	}
	return code
}

// programPlaces are the places of PATH where a program called name lies.
func programPlaces(name string, env []string) []string {
	if strings.Contains(name, "/") {
		if !isProgram(name) {
			return nil
		}
		return []string{name}
	}
	var places []string
	for _, v := range env {
		path, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			if dir == "" {
				dir = "."
			}
			if place := dir + "/" + name; isProgram(place) {
				places = append(places, place)
			}
		}
	}
	return places
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil
}
