package srt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// honestLine is a command of testdata/cli/honest.txt.
type honestLine struct {
	command string
	except  string // why its output is not bash's; "" = it is
}

func honestLines(t testing.TB) []honestLine {
	t.Helper()
	text, err := os.ReadFile("testdata/cli/honest.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []honestLine
	except := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '@':
			except = line[1:]
		case line[0] == '\t':
			all[len(all)-1].command += "\n" + line[1:]
		default:
			all = append(all, honestLine{line, except})
			except = ""
		}
	}
	return all
}

// ended is what bash made of a command.
type ended struct {
	stdout []byte
	exit   int
}

// bashEnv is what commands are given, for bash too; only that bash has its own idea of _ and SHLVL.
var bashEnv = []string{"PATH=/usr/bin:/bin", "HOME=" + allowlist.Home, "PWD=" + allowlist.Dir, "USER=" + allowlist.User, "LANG=C.UTF-8"}

// inBash runs each command by a bash of its own, all in one wall of p, in the workspace.
func inBash(t testing.TB, n wall, p Policy, commands []string) []ended {
	t.Helper()
	mark := fmt.Sprintf("\x00mark %x:", rand.Uint64()) // which no command can know
	script := `
		while IFS= read -r -d '' -u 3 command; do
			bash -c "$command" 2>/dev/null 3<&- </dev/null
			printf '\0` + mark[1:] + `%d\0' $?
		done`
	out, err := feedBash(t, n, p, script, commands)
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	var all []ended
	for len(out) > 0 {
		stdout, rest, ok := bytes.Cut(out, []byte(mark))
		code, rest, _ := bytes.Cut(rest, []byte{0})
		exit, err := strconv.Atoi(string(code))
		if !ok || err != nil {
			t.Fatalf("after %d commands: %q", len(all), code)
		}
		all = append(all, ended{stdout, exit})
		out = rest
	}
	if len(all) != len(commands) {
		t.Fatalf("%d of %d commands ended", len(all), len(commands))
	}
	return all
}

// feedBash runs a script by bash behind the wall of p, with the commands on its descriptor
// 3, each ended by NUL, and returns what it wrote to standard output.
func feedBash(t testing.TB, n wall, p Policy, script string, commands []string) ([]byte, error) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{inR, inW})
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{outR, outW})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cage, err := n.start(ctx, p, command{
		Path: "/usr/bin/bash", Args: []string{"--norc", "--noprofile", "-c", script}, Dir: guestWorkspace,
		Env: bashEnv, Stdout: outW, Extra: []*os.File{inR},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cage.Close()
	inR.Close()
	outW.Close()
	stop := time.AfterFunc(2*patience, func() { cage.Kill() })
	defer stop.Stop()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(inW, strings.Join(commands, "\x00")+"\x00")
		inW.Close()
		sent <- err
	}()
	out, err := io.ReadAll(outR)
	if err != nil {
		t.Fatal(err)
	}
	if state := cage.Wait(); !state.Success() {
		return out, fmt.Errorf("bash ended: %v", state)
	}
	return out, <-sent
}

// commandSession is a session that has a list of commands, and its sandbox.
func commandSession(t *testing.T, cfg Config, o allowlist.Options) (*Local, *session) {
	t.Helper()
	list, err := allowlist.New(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Commands = list
	l := local(t, cfg)
	_, missing := l.Commands()
	required(t, len(missing) == 0, fmt.Sprint("all commands of the list: ", missing))
	return l, lazySession(t, l)
}

// lazySession is a session whose Python never starts.
func lazySession(t *testing.T, l *Local) *session {
	t.Helper()
	s, err := l.Open(t.Context(), sandbox.Spec{ID: fmt.Sprintf("s%d", opened.Add(1)), Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*session)
}

// runLine reads a command by the list and runs it in the session.
func runLine(t *testing.T, s *session, line string) (sandbox.Result, error) {
	t.Helper()
	pipeline, err := s.local.cfg.Commands.Parse(line)
	if err != nil {
		return sandbox.Result{}, err
	}
	return s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipeline, Command: line, Timeout: 20 * time.Second})
}

// timeOfRoot is when each of the two walls was raised, as ls -la tells it of "..".
var timeOfRoot = regexp.MustCompile(`(?m)^(d\S+ +\d+ \S+ +\S+ +\d+) .* \.\.$`)

// What people type gives what bash gives, byte for byte, and ends as it does.
func TestHonestCommands(t *testing.T) {
	sideBySide(t)
	asEachUser(t, func(t *testing.T) {
		l, s := commandSession(t, Config{Limits: sandbox.Limits{Output: 16 << 20}}, allowlist.Options{})
		dataTree(t, s.workspace)
		own(t, l.wall, s.workspace)
		lines := honestLines(t)
		if len(lines) < 150 {
			t.Errorf("only %d commands", len(lines))
		}
		if os.Geteuid() != 0 { // who runs it changes the wall, not the programs
			lines = third(lines)
		}
		commands := make([]string, len(lines))
		for i, line := range lines {
			commands[i] = line.command
		}
		p := l.policy(s.workspace, l.wall.places(s.workspace))
		p.Workspace.Writable = false
		want := inBash(t, l.wall, p, commands)
		exceptions := 0
		for i, line := range lines {
			res, err := runLine(t, s, line.command)
			if err != nil {
				t.Errorf("%s\n%v", line.command, err)
				continue
			}
			if res.ExitCode != want[i].exit {
				t.Errorf("%s\nexited with %d, by bash with %d: %s%s", line.command, res.ExitCode, want[i].exit, res.Stderr, res.Error)
			}
			if line.except != "" {
				exceptions++
				continue
			}
			// A result is text: bytes that are none become U+FFFD, one by one.
			by, ours := timeOfRoot.ReplaceAllString(sandbox.ValidUTF8(want[i].stdout), "$1"), timeOfRoot.ReplaceAllString(res.Stdout, "$1")
			if ours != by {
				t.Errorf("%s\n(-bash +ours)\n%s", line.command, cmp.Diff(by, ours))
			}
		}
		if exceptions > 10 {
			t.Errorf("%d commands are not compared", exceptions)
		}
		t.Logf("%d commands, %d of them not compared", len(lines), exceptions)
	})
}

// own gives a tree that the server's user made to the guest, as if it had made it.
func own(t testing.TB, n wall, dir string) {
	t.Helper()
	uid, gid := n.hostIDs()
	if uid == os.Geteuid() {
		return
	}
	names := slices.Sorted(walked(t, dir))
	for _, name := range names {
		if err := os.Lchown(name, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}
