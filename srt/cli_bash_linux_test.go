package srt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bashCall is one command that bash would have run.
type bashCall struct {
	Name string
	Env  [3]string // LC_ALL, TZ and LANG, as the command would have seen them
	Args []string
}

// lineEnd stands for a newline in what the oracle tells: bash flushes its output at each,
// and what processes tell at the same time would mix. No accepted line can hold it.
const lineEnd = "\x02"

// maxCall is how long a call can be and still reach the pipe in one write, which those of
// other processes can't tear.
const maxCall = 3000

// bashOracle tells what bash makes of command lines, of which it runs nothing: in the place
// of programs and builtins alike stands what tells its arguments. It lives behind a wall all
// the same, in a workspace that it could write to, so that a redirection which only bash sees
// leaves a trace.
type bashOracle struct {
	cage *cage
	in   *os.File
	out  *bufio.Reader
}

// byFunctions is the fast oracle: a function for each name, and a shell forked for each line.
const byFunctions = `
PATH=/nonexistent
tell() {
	told=(C "$1" "$LC_ALL" "$TZ" "$LANG" $(($# - 1)) "${@:2}")
	builtin printf '%s\0' "${told[@]//$'\n'/$'\x02'}" >&4
}
command_not_found_handle() { tell "$@"; }
names="$(compgen -b) $COMMANDS"
unset COMMANDS
for b in $names; do
	case $b in
	builtin) ;; # of all names the only one that can't be seen being called
	printf | read | eval | enable) ;;
	*) builtin enable -n $b 2>/dev/null; case $b in [a-z]*) builtin eval "$b() { tell $b \"\$@\"; }" ;; esac ;;
	esac
done
printf() { tell printf "$@"; }
read() { tell read "$@"; }
eval() { tell eval "$@"; }
enable() { tell enable "$@"; }
while IFS= builtin read -r -d '' -u 3 line; do
	( builtin eval -- "$line" ) 3<&- </dev/null >/dev/null 2>&1
	builtin printf 'E\0' >&4
done`

// byPrograms is the slow one, to hold the other against: bash -c as it is, and a program for
// each name, found by PATH. Builtins are switched off by the start-up file.
const byPrograms = `
while IFS= read -r -d '' -u 3 line; do
	PATH=/shims BASH_ENV=/shims/.start /bin/bash -c "$line" 3<&- </dev/null >/dev/null 2>&1
	printf 'E\0' >&4
done`

// shims are the programs of byPrograms.
func shims(t testing.TB, commands []string) Mount {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli-shims-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const shim = `#!/bin/bash
set -- C "${0##*/}" "$LC_ALL" "$TZ" "$LANG" $# "$@"
printf '%s\0' "${@//$'\n'/$'\x02'}" >&4
`
	files := map[string]string{".start": "unset BASH_ENV\nenable -n $(compgen -b)\n"}
	for _, name := range append(commands, "id", "sh") {
		files[name] = shim
	}
	writeTree(t, dir, files)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return Mount{Host: dir, Guest: "/shims"}
}

// newBashOracle starts bash in dir, which it sees as its workspace. commands are the names
// that are expected.
func newBashOracle(t testing.TB, n *native, dir, script string, commands []string) *bashOracle {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Workspace: Mount{Host: dir, Writable: true}}
	if script == byPrograms {
		p.Mounts, p.AllowExec = []Mount{shims(t, commands)}, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := n.start(ctx, p, command{
		Path: "/usr/bin/bash", Args: []string{"--norc", "--noprofile", "-c", script}, Dir: guestWorkspace,
		Env: append([]string{"COMMANDS=" + strings.Join(commands, " ")}, bashEnv...), Extra: []*os.File{inR, outW},
	})
	closeAll([]*os.File{inR, outW})
	if err != nil {
		t.Fatal(err)
	}
	o := &bashOracle{cage: c, in: inW, out: bufio.NewReader(outR)}
	t.Cleanup(func() {
		inW.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		outR.Close()
	})
	return o
}

// ask tells for each line what bash would have run; in a pipeline the order is chance.
func (o *bashOracle) ask(t testing.TB, lines ...string) [][]bashCall {
	t.Helper()
	if len(lines) == 0 {
		return nil
	}
	late := time.AfterFunc(patience, func() { o.cage.Kill() }) // the pipe ends then
	defer late.Stop()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(o.in, strings.Join(lines, "\x00")+"\x00")
		sent <- err
	}()
	all := make([][]bashCall, len(lines))
	for i := range all {
		calls, err := o.calls()
		if err != nil {
			t.Fatalf("%q: %v", lines[i], err)
		}
		all[i] = calls
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return all
}

func (o *bashOracle) calls() (all []bashCall, err error) {
	text := func() string {
		s, e := o.out.ReadString(0)
		err = errors.Join(err, e)
		return strings.ReplaceAll(strings.TrimSuffix(s, "\x00"), lineEnd, "\n")
	}
	for {
		switch kind := text(); {
		case err != nil:
			return nil, err
		case kind == "E":
			return all, nil
		case kind != "C":
			return nil, fmt.Errorf("%q in the place of a call", kind)
		}
		call := bashCall{Name: text(), Env: [3]string{text(), text(), text()}}
		count, e := strconv.Atoi(text())
		if err = errors.Join(err, e); err != nil {
			return nil, err
		}
		for range count {
			call.Args = append(call.Args, text())
		}
		all = append(all, call)
	}
}
