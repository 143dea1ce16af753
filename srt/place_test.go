package srt

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// placesOf makes a home, a project in it and a TMPDIR, apart from each other.
func placesOf(t *testing.T) (base, home, project, tmp string) {
	t.Helper()
	base, err := resolved(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, tmp = filepath.Join(base, "people", "ann"), filepath.Join(base, "temporary", "tmp")
	project = filepath.Join(home, "project")
	for _, d := range []string{filepath.Join(project, "data"), filepath.Join(project, "database"), tmp, filepath.Join(base, "other")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("TMPDIR", tmp)
	return base, home, project, tmp
}

func TestPlacesTooBroad(t *testing.T) {
	base, home, project, tmp := placesOf(t)
	link := filepath.Join(base, "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/": "belongs to the system", "/etc": "belongs to the system", "/usr": "belongs to the system",
		"/var": "belongs to the system", "/tmp": "belongs to the system", "/home": "belongs to the system",
		"/proc": "belongs to the system", "/proc/sys": "belongs to the system", "/sys": "belongs to the system", "/run": "belongs to the system",
		"/root": "belongs to the system", "/dev": "belongs to the system", "/bin/..": "belongs to the system",
		link:                             "belongs to the system",
		home:                             "such as " + project,
		filepath.Dir(home):               "holds the home directory",
		filepath.Join(project, "..", ""): "holds the home directory",
		tmp:                              "set TMPDIR",
		filepath.Dir(tmp):                "set TMPDIR",
	} {
		for what, c := range map[string]Config{
			"workspace": {Workspace: path, WorkspaceReadOnly: true}, "mount": {Mounts: []Mount{{Host: path, Guest: "/m"}}},
		} {
			_, err := c.resolve()
			if errors.Is(err, os.ErrNotExist) {
				continue // not on this machine
			}
			if !errors.Is(err, ErrBroad) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), what+": ") {
				t.Errorf("%s %s: %v; want %q", what, path, err, want)
			}
		}
	}
	hosts := Mount{Host: "/etc/hosts", Guest: "/m"} // one file, named as such
	if _, err := (Config{Workspace: project, Mounts: []Mount{hosts}}).resolve(); err != nil {
		t.Error(err)
	}
}

func TestPlacesOfAnotherKind(t *testing.T) {
	base, _, project, _ := placesOf(t)
	fifo, socket := filepath.Join(base, "fifo"), filepath.Join(base, "s")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{
		fifo: "neither a directory nor a regular file", socket: "neither a directory nor a regular file",
		"/dev/null": "neither a directory nor a regular file", "/proc/version": "belongs to the system",
		filepath.Join(base, "none"): "no such file",
	} {
		_, err := (Config{Mounts: []Mount{{Host: path, Guest: "/m"}}}).resolve()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if _, err := (Config{Workspace: "/etc/hosts"}).resolve(); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("a workspace that is a file: %v", err)
	}
	t.Chdir(filepath.Dir(project))
	if err := os.Symlink("project", "also"); err != nil {
		t.Fatal(err)
	}
	c, err := (Config{Mounts: []Mount{{Host: "also/data", Guest: "/m"}}}).resolve()
	if err != nil || c.Mounts[0].Host != filepath.Join(project, "data") {
		t.Errorf("not resolved: %+v, %v", c.Mounts, err)
	}
}

// Nested places are for those that nobody inside can change.
func TestPlacesApart(t *testing.T) {
	base, _, project, _ := placesOf(t)
	data, other := filepath.Join(project, "data"), filepath.Join(base, "other")
	m := func(host string, writable bool) Mount { return Mount{Host: host, Guest: "/m", Writable: writable} }
	for name, tt := range map[string]struct {
		config Config
		ok     bool
	}{
		"in a writable workspace":            {Config{Workspace: project, Mounts: []Mount{m(data, false)}}, false},
		"round a writable workspace":         {Config{Workspace: data, Mounts: []Mount{m(project, false)}}, false},
		"the workspace":                      {Config{Workspace: data, Mounts: []Mount{m(data, false)}}, false},
		"writable in a read-only workspace":  {Config{Workspace: project, WorkspaceReadOnly: true, Mounts: []Mount{m(data, true)}}, false},
		"two mounts, one writable":           {Config{Mounts: []Mount{m(data, true), m(project, false)}}, false},
		"read-only in a read-only workspace": {Config{Workspace: project, WorkspaceReadOnly: true, Mounts: []Mount{m(data, false)}}, true},
		"beside it":                          {Config{Workspace: project, Mounts: []Mount{m(other, true)}}, true},
		"a name that begins like it":         {Config{Workspace: data, Mounts: []Mount{m(project+"/database", true)}}, true},
	} {
		_, err := tt.config.resolve()
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "give them places apart") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What code inside could have put there is not run outside.
func TestInterpreterInAWritablePlace(t *testing.T) {
	_, _, project, _ := placesOf(t)
	ran := filepath.Join(t.TempDir(), "ran")
	shim := filepath.Join(project, "python3")
	if err := os.WriteFile(shim, []byte("#!/bin/sh\necho > "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"by its path": {Python: shim, Workspace: project},
		"on PATH":     {Workspace: project},
		"in a mount":  {Python: shim, Mounts: []Mount{{Host: project, Guest: "/m", Writable: true}}},
	} {
		t.Setenv("PATH", project)
		_, err := New(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "where code inside can write") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("it was run")
	}
}
