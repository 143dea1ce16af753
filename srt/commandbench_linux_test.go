package srt

import (
	"os"
	"os/exec"
	"testing"

	"mcp-sandbox/sandbox"
)

// benchLs is a session with a workspace of a few files, and the line that lists it.
func benchLs(b *testing.B) (func(), string) {
	dir := b.TempDir()
	for _, name := range []string{"a.csv", "b.csv", "c.txt", "d.py"} {
		if err := os.WriteFile(dir+"/"+name, []byte(name), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	l := withCommands(b, Config{Workspace: dir})
	s := lazily(b, l)
	p, err := l.cfg.Commands.Parse("ls")
	if err != nil {
		b.Fatal(err)
	}
	run := func() {
		res, err := s.RunCommand(b.Context(), sandbox.CommandRequest{Pipeline: p})
		if err != nil || !res.Success() || res.Stdout != "a.csv\nb.csv\nc.txt\nd.py\n" {
			b.Fatalf("%+v, %v", res, err)
		}
	}
	for range 20 {
		run()
	}
	return run, dir
}

// What a warm command costs, against the least that any ls does.
func BenchmarkCommand(b *testing.B) {
	run, dir := benchLs(b)
	compare(b, "fork+exec", run, func() {
		cmd := exec.Command("/usr/bin/ls")
		cmd.Dir, cmd.Env = dir, []string{"LANG=C.UTF-8"}
		if _, err := cmd.Output(); err != nil {
			b.Fatal(err)
		}
	})
}

// And against a wall that is raised for each command.
func BenchmarkCommandInBubblewrap(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("no bubblewrap to compare with")
	}
	run, dir := benchLs(b)
	compare(b, "bwrap", run, func() {
		cmd := exec.Command(bwrap, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", dir, "/workspace", "--chdir", "/workspace", "ls")
		if _, err := cmd.Output(); err != nil {
			b.Fatal(err)
		}
	})
}

// The first command of a session, its wall included.
func BenchmarkFirstCommand(b *testing.B) {
	l := withCommands(b, Config{})
	p, err := l.cfg.Commands.Parse("ls")
	if err != nil {
		b.Fatal(err)
	}
	compare(b, "python", func() {
		s := lazily(b, l)
		if res, err := s.RunCommand(b.Context(), sandbox.CommandRequest{Pipeline: p}); err != nil || !res.Success() {
			b.Fatalf("%+v, %v", res, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}, barePython(b))
}
