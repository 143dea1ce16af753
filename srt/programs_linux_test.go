package srt

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"mcp-sandbox/allowlist"
)

// The libraries found are those that the loader of this machine would load.
func TestProgramsAgainstLoader(t *testing.T) {
	ldd, err := exec.LookPath("ldd")
	required(t, err == nil, "ldd to compare with")
	found, err := findPrograms(wholeList(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFinder("")
	if err != nil {
		t.Fatal(err)
	}
	var libraries []string
	line := regexp.MustCompile(`(?m)(?:=> )?(/\S+) \(0x`)
	for program, guest := range found.paths {
		if guest == applets[program] {
			continue
		}
		out, err := exec.Command(ldd, guest).CombinedOutput()
		if err != nil {
			t.Logf("%s: %v: %s", guest, err, out) // a static program
			continue
		}
		for _, m := range line.FindAllStringSubmatch(string(out), -1) {
			libraries = append(libraries, f.place(m[1]))
		}
	}
	if len(libraries) == 0 {
		t.Fatal("ldd told of no library")
	}
	for _, l := range libraries {
		if !slices.Contains(found.shown, Shown{Host: l, Guest: l, Exec: true}) {
			t.Errorf("%s is not shown", l)
		}
	}
	extra := 0
	for _, s := range found.shown {
		if s.Exec && !slices.Contains(libraries, s.Guest) && !slices.Contains(slices.Collect(maps.Values(found.paths)), s.Guest) && s.Guest != guestWarden {
			extra++
			t.Logf("besides: %s", s.Guest) // for newer processors, and the loader by its other name
		}
	}
	if extra > 5 {
		t.Errorf("%d files more than the programs need", extra)
	}
}

// What is looked for is what will be executed, and somebody knows its package.
func TestExecutables(t *testing.T) {
	list := wholeList(t)
	for _, command := range list.Commands() {
		args := []string{"f"}
		switch command {
		case "tar":
			args = []string{"-tf", "f"}
		case "zip":
			args = []string{"-sf", "f"}
		case "unzip":
			args = []string{"-l", "f"}
		case "date", "env", "printenv", "pwd", "uname":
			args = nil
		}
		e, err := list.Resolve(command, args)
		if err != nil {
			t.Errorf("%s %v: %v", command, args, err)
			continue
		}
		want := list.Program(command)
		if e.Program != want {
			t.Errorf("%s is executed as %s, and looked for as %s", command, e.Program, want)
		}
		if _, applet := applets[want]; !applet && packageOf(want) == "" {
			t.Errorf("nobody knows what package %s is in", want)
		}
	}
	for _, helper := range list.Helpers() {
		if packageOf(helper) == "" {
			t.Errorf("nobody knows what package %s is in", helper)
		}
	}
}

func TestMissingCommands(t *testing.T) {
	list, err := allowlist.New(allowlist.Options{Only: []string{"ls", "which"}, Dangerously: []string{"no-such-program"}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := findPrograms(list)
	if err != nil {
		t.Fatal(err)
	}
	if missing := found.missing(); len(missing) != 1 || missing[0] != (Missing{Command: "no-such-program", Program: "no-such-program", Reason: "not installed"}) {
		t.Errorf("%+v", missing)
	}
}
