package srt

import (
	"archive/tar"
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// commandWall is the policy of a session's commands, with further programs beside the list.
func commandWall(t testing.TB, workspace string, further ...string) Policy {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{Dangerously: further})
	if err != nil {
		t.Fatal(err)
	}
	found, err := findPrograms(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range further {
		if _, ok := found.paths[name]; !ok {
			t.Fatalf("%s: %v", name, found.missing())
		}
	}
	limits, err := sandbox.Limits{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	l := &Local{cfg: Config{Limits: limits}, programs: found, wall: &native{}}
	return l.commandPolicy(workspace, l.wall.places(workspace))
}

// commandTree is a workspace with something in it for every command.
func commandTree(t *testing.T, n *native) string {
	t.Helper()
	dir := workspace(t, n)
	files := map[string]string{
		"f.txt": "a b\nc d\n", "g.txt": "a b\nc e\n", "j.json": `{"a":[1,2]}`, "sub/deep.txt": "deep\n",
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writeArchives(t, dir)
	uid, gid := n.hostIDs()
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error { return errors.Join(err, os.Chown(name, uid, gid)) })
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeArchives(t *testing.T, dir string) {
	t.Helper()
	var z, a strings.Builder
	zipped := zip.NewWriter(&z)
	w, err := zipped.Create("inner.txt")
	if err == nil {
		_, err = w.Write([]byte("inner\n"))
	}
	if err == nil {
		err = zipped.Close()
	}
	tarred := tar.NewWriter(&a)
	if err == nil {
		err = tarred.WriteHeader(&tar.Header{Name: "inner.txt", Mode: 0o644, Size: 6})
	}
	if err == nil {
		_, err = tarred.Write([]byte("inner\n"))
	}
	if err == nil {
		err = tarred.Close()
	}
	for name, content := range map[string]string{"a.zip": z.String(), "a.tar": a.String()} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inCommandWall runs one program behind the wall for commands.
func inCommandWall(t *testing.T, n *native, p Policy, path string, args ...string) (string, error) {
	t.Helper()
	return tryPython(t, n, p, command{
		Path: path, Args: args, Dir: guestWorkspace,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"},
	})
}

// What can be executed behind the wall is the list and its libraries, to the file.
func TestCommandWallHolds(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		p := commandWall(t, commandTree(t, n))
		out, err := inCommandWall(t, n, p, "/usr/bin/find", "/", "-type", "f", "-perm", "/111")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var found []string
		for _, file := range strings.Fields(out) {
			if !slices.ContainsFunc(p.Programs, func(s Shown) bool { return s.Exec && s.Guest == file }) {
				t.Errorf("%s is there", file)
			}
			found = append(found, file)
		}
		for _, s := range p.Programs {
			if strings.HasPrefix(s.Guest, "/usr/bin/") && !slices.Contains(found, s.Guest) {
				t.Errorf("%s is not there", s.Guest)
			}
		}
		const writable = "/dev/full /dev/null /dev/random /dev/shm /dev/urandom /dev/zero /tmp"
		out, err = inCommandWall(t, n, p, "/usr/bin/find", "/", "-not", "-type", "l", "-writable")
		if got := slices.Sorted(strings.SplitSeq(strings.TrimSpace(out), "\n")); err != nil || strings.Join(got, " ") != writable {
			t.Errorf("writable: %s, %v", got, err)
		}
		out, err = inCommandWall(t, n, p, "/usr/bin/ls", "-1", "/", "/dev", "/etc", "/var")
		const view = `/:
bin
dev
etc
lib
lib64
run
sbin
tmp
usr
var
workspace

/dev:
full
null
random
shm
urandom
zero

/etc:
group
hostname
hosts
nsswitch.conf
passwd
`
		common := strings.Join(slices.DeleteFunc(strings.SplitAfter(out, "\n"), func(line string) bool {
			return slices.Contains([]string{"ld.so.cache\n", "localtime\n", "magic\n", "magic.mime\n", "os-release\n", "lib32\n", "libx32\n"}, line)
		}), "")
		if diff := cmp.Diff(view+"\n/var:\ntmp\n", common); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

// Every command of the list does its work behind the wall. The two that are this binary
// have tests of their own.
func TestCommandWallWorks(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"ls": {"-la f.txt", "sandbox"}, "dir": {"sub", "deep.txt"}, "pwd": {"", "/workspace"}, "tree": {"", "deep.txt"},
		"cat": {"f.txt", "c d"}, "head": {"-1 f.txt", "a b"}, "tail": {"-1 f.txt", "c d"}, "stat": {"-c %s f.txt", "8"},
		"file": {"f.txt a.zip", "Zip archive"}, "grep": {"-rP \\bde sub", "deep"}, "find": {". -name *.zip -user sandbox", "./a.zip"},
		"cut": {"-c1 f.txt", "c"}, "sort": {"-r --parallel=4 f.txt", "c d"}, "uniq": {"-c f.txt", "1 a b"}, "wc": {"-l f.txt", "2"},
		"awk": {"--sandbox {print($2)} f.txt", "d"}, "sed": {"--sandbox s/a/x/ f.txt", "x b"}, "strings": {"/usr/bin/ls", "GNU"},
		"diff": {"f.txt f.txt", ""}, "cmp": {"f.txt f.txt", ""}, "md5sum": {"f.txt", "f.txt"}, "sha256sum": {"f.txt", "f.txt"},
		"jq": {"-c .a j.json", "[1,2]"}, "xxd": {"f.txt", "6120 620a"}, "od": {"-c f.txt", "\\n"}, "echo": {"x", "x"},
		"printf": {"%05.1f 2.25", "002.2"}, "date": {"-d @0 +%Y", "1970"}, "uname": {"-n", "sandbox"}, "printenv": {"HOME", "/tmp"},
		"env": {"LC_ALL=C TZ=Asia/Tokyo date -d @0 +%H", "09"}, "unzip": {"-p a.zip", "inner"}, "tar": {"-xOf a.tar", "inner"},
		"zip": {"-sf a.zip", "inner.txt"}, "tr": {"--version", "coreutils"}, // it reads its standard input alone
	}
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		p := commandWall(t, commandTree(t, n))
		list, err := allowlist.New(allowlist.Options{})
		if err != nil {
			t.Fatal(err)
		}
		found, err := findPrograms(list)
		if err != nil {
			t.Fatal(err)
		}
		required(t, len(found.missing()) == 0, "all commands of the list: "+fmt.Sprint(found.missing()))
		for _, name := range list.Commands() {
			tt, ok := tests[name]
			if _, applet := applets[name]; applet {
				continue
			}
			if !ok {
				t.Errorf("%s has no case", name)
				continue
			}
			program := name
			if name == "awk" {
				program = "gawk"
			}
			at, ok := found.paths[program]
			if !ok {
				t.Errorf("%s: not found", name)
				continue
			}
			out, err := inCommandWall(t, n, p, at, strings.Fields(tt.args)...)
			if err != nil || !strings.Contains(out, tt.want) {
				t.Errorf("%s %s: %v\n%s", name, tt.args, err, out)
			}
		}
	})
}

func TestCommandWallEnvironment(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		t.Setenv("WALL_TEST_SECRET", "hunter2")
		n := nativeWall(t)
		p := commandWall(t, commandTree(t, n))
		for _, program := range []string{"/usr/bin/env", "/usr/bin/printenv"} {
			out, err := inCommandWall(t, n, p, program)
			if got := strings.Join(slices.Sorted(strings.Lines(out)), ""); err != nil || got != "HOME=/tmp\nLANG=C.UTF-8\nPATH=/usr/bin:/bin\n" {
				t.Errorf("%s: %v\n%s", program, err, out)
			}
		}
	})
}

// This very binary is behind the wall wherever it lies, and whatever became of its file.
func TestCommandWallSelf(t *testing.T) {
	runs := func(t *testing.T, n *native) {
		t.Helper()
		p := commandWall(t, workspace(t, n))
		out, err := inCommandWall(t, n, p, guestWarden, "be-child", "nothing")
		if err == nil || out != "be-child is for mcp-sandbox itself\n" {
			t.Errorf("%v\n%s", err, out)
		}
	}
	asEachUser(t, func(t *testing.T) {
		t.Run("by its name", func(t *testing.T) { runs(t, nativeWall(t)) })
		t.Run("replaced", func(t *testing.T) {
			n := nativeWall(t)
			held, err := os.Open(copyOfSelf(t, n))
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := os.Remove(held.Name()); err != nil {
				t.Fatal(err)
			}
			// Above what a child is given: its descriptors are in place before it is executed.
			fd, err := unix.FcntlInt(held.Fd(), unix.F_DUPFD_CLOEXEC, 200)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			n.exe = fmt.Sprintf("/proc/self/fd/%d", fd)
			runs(t, n)
		})
		if os.Geteuid() != 0 {
			return
		}
		t.Run("where the guest's id can't go", func(t *testing.T) {
			n := nativeWall(t)
			n.exe = copyOfSelf(t, n)
			runs(t, n)
			n.detaches = false
			runs(t, n)
		})
		t.Run("not for everybody", func(t *testing.T) {
			n := nativeWall(t)
			n.exe = copyOfSelf(t, n)
			if err := os.Chmod(n.exe, 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := inCommandWall(t, n, commandWall(t, workspace(t, n)), guestWarden)
			if layerOf(err) != layerMounts || !strings.Contains(err.Error(), "chmod a+rx") {
				t.Error(err)
			}
		})
	})
}

// copyOfSelf copies the binary that raises walls to a private directory.
func copyOfSelf(t *testing.T, n *native) string {
	t.Helper()
	content, err := os.ReadFile(n.exe)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(privateDir(t), "binary")
	if err := os.WriteFile(name, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// The watchdog sees what runs behind a wall without /proc.
func TestCommandWallIsWatched(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		p := commandWall(t, commandTree(t, n), "bash")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c, err := n.start(t.Context(), p, command{
			Path: "/usr/bin/bash", Args: []string{"-c", "tail -f f.txt & tail -f g.txt & wait"}, Dir: guestWorkspace, Stdout: w,
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// Both tails have printed: they run.
		if _, err := io.ReadFull(r, make([]byte, len("a b\nc d\na b\nc e\n"))); err != nil {
			t.Fatal(err)
		}
		g, err := guestOf(c.kin)
		if err != nil || len(g.others) != 2 || len(g.first.threads) != 1 {
			t.Errorf("%+v, %v", g, err)
		}
		if bytes, err := memoryOf(c.kin, p.Memory, held{}); err != nil || bytes < 100<<10 || bytes > 100*mib {
			t.Errorf("memory of %d bytes, %v", bytes, err)
		}
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		if g, err := guestOf(c.kin); err == nil {
			t.Errorf("of a dead one: %+v", g)
		}
	})
}

// What would be hidden, or can't be had, is refused before anything is started.
func TestCommandWallFaults(t *testing.T) {
	p := Policy{Programs: []Shown{{selfExe, guestWarden, true}, {"/none", "/usr/bin/none", true}}}.withDefaults()
	for _, tt := range []struct {
		command command
		want    string
	}{
		{command{Path: guestWarden, Dir: "/", OOMFD: true}, "no /proc"},
		{command{Path: guestWarden, Dir: "/", Files: map[string][]byte{guestWarden: nil}}, "not a path of the root's own"},
	} {
		if err := tt.command.validate(p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v; want %q", err, tt.want)
		}
	}
	_, err := nativeWall(t).start(t.Context(), p, command{Path: guestWarden})
	if layerOf(err) != layerMounts || !strings.Contains(err.Error(), "/none: ") || !strings.Contains(err.Error(), "restart the server") {
		t.Error(err)
	}
}
