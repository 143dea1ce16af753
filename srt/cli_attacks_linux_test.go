package srt

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
)

// corpusTree puts into dir what the corpus' commands ask for, so that those which do harm
// can: a pattern that matches, an entry that is newer, a script to be read.
func corpusTree(t testing.TB, dir string) {
	t.Helper()
	const runs = `BEGIN{system("id")}`
	files := map[string]string{
		"f": "x\na b\nid\nw a\n10 20 30\n", "a": "one\n", "b": "two\n", "h": "6869\n", "in": "in\n", "l": "line\n", "c": "c\n",
		"x": "#!/bin/sh\nid\n", "list": "f\n", "patterns": "a\n", "sums": "", "prog.awk": runs, "x.awk": runs, "prog.sed": "1e id\n", "prog.jq": ".\n",
		"j.json": `{"a":[1,2],"b":{"c":"x"}}`, "magic": "0 string x demo\n", "a.txt": "a\n", "b.txt": "b\n", "sub/g": "g\n", "src/a.go": "package a\n", "test/a_test.go": "package a\n", "d.d/x": "x\n", "A.md": "# a\n", "文件.txt": "文\n",
	}
	var tarred, zipped bytes.Buffer
	tw, zw := tar.NewWriter(&tarred), zip.NewWriter(&zipped)
	soon := time.Now().Add(48 * time.Hour) // newer than the file, for -u and -f
	for _, name := range []string{"f", "inner.txt"} {
		content := "packed " + name + "\n"
		w, err := zw.CreateHeader(&zip.FileHeader{Name: name, Modified: soon})
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err == nil {
			err = tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: soon})
		}
		if err == nil {
			_, err = tw.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	files["a.tar"], files["b.tar"], files["a.zip"] = tarred.String(), tarred.String(), zipped.String()
	writeTree(t, dir, files)
}

// deniedCases are those of the corpus that are to be refused and that a process can be given.
func deniedCases(t testing.TB) []corpusCase {
	t.Helper()
	var all []corpusCase
	for _, c := range corpus(t) {
		if c.Want == "deny" && !strings.ContainsRune(c.Command, 0) {
			all = append(all, c)
		}
	}
	if len(all) < 400 {
		t.Fatalf("only %d cases", len(all))
	}
	return all
}

// byBash is a script that gives a line to a shell, in a process of its own; under strace a
// fork of the one that is there costs half of what another one would.
func byBash(line string) string {
	return "( eval -- " + quote(line) + " ) </dev/null >/dev/null"
}

// With the validator switched off, and a shell put behind the wall, the wall alone stops all
// that the validator would refuse.
func TestWallStopsAttacks(t *testing.T) {
	canTrace(t)
	n, p := nativeWall(t), newPlanner(t)
	dir := workspace(t, n)
	corpusTree(t, dir)
	own(t, n, dir)
	cases := deniedCases(t)
	scripts := make([]string, len(cases))
	for i, c := range cases {
		scripts[i] = byBash(c.Command)
	}
	before := treeState(t, dir)
	tried := 0
	for i, events := range runTraced(t, n, commandWall(t, dir, "bash"), scripts) {
		for _, e := range events {
			if p.offence(e) == "" || e.path() == "/usr/bin/bash" {
				continue
			}
			tried++
			if e.worked() && !stays(e) {
				t.Errorf("%s, %q\n%s: %v", cases[i].Kind, cases[i].Command, p.offence(e), e)
			}
		}
	}
	if diff := cmp.Diff(before, treeState(t, dir)); diff != "" {
		t.Errorf("the workspace has changed:\n%s", diff)
	}
	if tried < 100 {
		t.Errorf("only %d calls would have done harm: were the attacks made at all?", tried)
	}
	t.Logf("%d commands, %d calls that failed or stayed in the wall's own /tmp", len(cases), tried)
}

// stays tells of changes that can't be seen outside and end with the wall, and harmless ones: a
// descriptor got there by being opened, which is judged by itself.
func stays(e event) bool {
	switch e.call {
	case "ftruncate", "fallocate", "fchmod", "fchown":
		return true
	}
	return within(e.path(), "/tmp", "/dev/shm") || slices.Contains([]string{"/dev/zero", "/dev/full"}, e.path())
}

// With the wall off, the validator stops them: no line is accepted, and where it is the
// arguments that do the harm, they are refused a second time as they reach the program.
func TestValidatorStopsAttacks(t *testing.T) {
	cases := corpus(t)
	d, _ := newDiffer(t, byFunctions)
	var byArguments []string
	denied := 0
	for _, c := range cases {
		if c.Want != "deny" {
			continue
		}
		denied++
		if p, err := d.list.Parse(c.Command); err == nil {
			t.Errorf("%s, %q is accepted as %+v", c.Kind, c.Command, p)
		}
		if strings.HasPrefix(c.Kind, "arg-") {
			byArguments = append(byArguments, c.Command)
		}
	}
	for i, calls := range d.oracle.ask(t, byArguments...) {
		if len(calls) == 0 {
			t.Errorf("%q: bash would have run nothing", byArguments[i])
		}
		if !slices.ContainsFunc(calls, func(c bashCall) bool {
			_, err := d.list.Resolve(c.Name, c.Args)
			return err != nil
		}) {
			t.Errorf("%q: Resolve takes the arguments %q", byArguments[i], calls)
		}
	}
	t.Logf("%d commands refused by Parse, %d of them by Resolve too", denied, len(byArguments))
}

// The attacks are real: where neither the validator nor the wall for commands is, most of
// them do what they are there for.
func TestAttacksWouldWork(t *testing.T) {
	canTrace(t)
	n, p := nativeWall(t), newPlanner(t)
	dir := workspace(t, n)
	fixture := filepath.Join(dir, "fixture")
	if err := os.Mkdir(fixture, 0o755); err != nil {
		t.Fatal(err)
	}
	corpusTree(t, fixture)
	own(t, n, dir)
	cases := third(slices.DeleteFunc(deniedCases(t), func(c corpusCase) bool { return !strings.HasPrefix(c.Kind, "arg-") }))
	var scripts []string
	for i, c := range cases {
		scripts = append(scripts, fmt.Sprintf("cd /workspace/%d\n%s", i, byBash(c.Command)))
		if err := os.CopyFS(filepath.Join(dir, fmt.Sprint(i)), os.DirFS(fixture)); err != nil {
			t.Fatal(err)
		}
	}
	own(t, n, dir)
	var before []map[string]string
	for i := range cases {
		before = append(before, treeState(t, filepath.Join(dir, fmt.Sprint(i))))
	}
	worked := 0
	for i, events := range runTraced(t, n, Policy{Workspace: Mount{Host: dir, Writable: true}, AllowExec: true, Memory: 1 << 30}, scripts) {
		ran := slices.ContainsFunc(events, func(e event) bool {
			return strings.HasPrefix(e.call, "exec") && e.worked() && !p.listed(e.path()) && e.path() != "/usr/bin/bash"
		})
		if ran || !cmp.Equal(before[i], treeState(t, filepath.Join(dir, fmt.Sprint(i)))) {
			worked++
		} else {
			t.Logf("no effect in this tree: %q", cases[i].Command)
		}
	}
	if worked < len(cases)*6/10 {
		t.Errorf("only %d of %d attacks had an effect", worked, len(cases))
	}
	t.Logf("%d of %d attacks had an effect", worked, len(cases))
	if proving() && !t.Failed() {
		fmt.Printf("PROOF: commands, the corpus' attacks by their arguments, made by bash where nothing stops them: %d of %d have an effect\n", worked, len(cases))
	}
}

// All of the attacks, by `make prove`.
func TestProveAttacksWouldWork(t *testing.T) {
	if !proving() {
		t.Skip("runs by make prove")
	}
	TestAttacksWouldWork(t)
}

// What a file is decides which program tar starts, and no argument tells of it. Behind the
// wall there are those of the list alone.
func TestTarStartsNoOtherProgram(t *testing.T) {
	_, s := commandSession(t, Config{}, allowlist.Options{})
	files := map[string]string{}
	for name, magic := range map[string]string{"lzip": "LZIP\x01", "lzop": "\x89LZO\x00\r\n\x1a\n"} {
		files[name] = magic + strings.Repeat("\x00", 1024)
	}
	writeTree(t, s.workspace, files)
	own(t, s.local.wall, s.workspace)
	for name := range files {
		res, err := runLine(t, s, "tar -tf "+name)
		if err != nil || res.ExitCode == 0 || !strings.Contains(res.Stderr, name+": Cannot exec: No such file or directory") {
			t.Errorf("%s: %v, %d\n%s%s", name, err, res.ExitCode, res.Stdout, res.Stderr)
		}
	}
}
