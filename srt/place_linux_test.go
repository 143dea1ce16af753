package srt

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// heldPolicy is a policy of places as New keeps them, without what it refuses.
func heldPolicy(t *testing.T, workspace string, mounts ...Mount) Policy {
	t.Helper()
	c := Config{Workspace: workspace, Mounts: mounts}
	held, err := c.hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(held) })
	return Policy{Workspace: Mount{Host: workspace, Writable: true, held: c.workspace}, Mounts: c.Mounts, AllowExec: true}
}

// One session puts something else where the next one's mount is taken.
func TestMountSwappedByGuest(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		for name, swap := range map[string]string{
			"link":      "os.rename('d', 'gone'); os.symlink('/etc', 'd')",
			"directory": "os.rename('d', 'gone'); os.mkdir('d')",
			"again":     "os.rmdir('d'); os.mkdir('d')",
			"nothing":   "os.rmdir('d')",
		} {
			n := nativeWall(t)
			dir := workspace(t, n)
			d := filepath.Join(dir, "d")
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
			uid, gid := n.hostIDs()
			if err := os.Chown(d, uid, gid); err != nil {
				t.Fatal(err)
			}
			// New refuses such a pair; a wall that was given it holds all the same.
			_, err := New(t.Context(), Config{Workspace: dir, Mounts: []Mount{{Host: d, Guest: "/d"}}, native: testNative()})
			if err == nil || !strings.Contains(err.Error(), "give them places apart") {
				t.Errorf("%s: New: %v", name, err)
			}
			p := heldPolicy(t, dir, Mount{Host: d, Guest: "/d"})
			out := python(t, n, p, "import os; print(os.listdir('/d')); os.chdir('/workspace'); "+swap)
			if out != "[]\n" {
				t.Errorf("%s: before: %s", name, out)
			}
			out, err = tryPython(t, n, p, command{Path: testPython, Args: []string{"-I", "-c", "import os; print(os.listdir('/d'))"}})
			if layerOf(err) != layerWorkspace {
				t.Errorf("%s: the next session saw %q, %v", name, out, err)
			}
			if name == "directory" && !errors.Is(err, errReplaced) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// An ordinary user's mounts are made by the child: it looks for itself.
func TestChildLooksForItself(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := holdPlace(filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	is, err := identityOf(f)
	if err != nil {
		t.Fatal(err)
	}
	s := source{Host: filepath.Join(dir, "other"), Layer: layerWorkspace, Is: is}
	if err := os.Mkdir(s.Host, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(); !errors.Is(err, errReplaced) {
		t.Errorf("another directory: %v", err)
	}
	s.Host = filepath.Join(dir, "link")
	if err := os.Symlink("d", s.Host); err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link to the right one: %v", err)
	}
}

// A workspace that the host replaces between sessions is not taken for the same.
func TestWorkspaceReplaced(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir, err := os.MkdirTemp("", "shared-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		defer os.RemoveAll(dir + ".old")
		l := local(t, Config{Workspace: dir})
		if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		s, err := l.Open(t.Context(), sandbox.Spec{ID: "late"})
		if err == nil {
			s.Close()
		}
		if layerOf(err) != layerWorkspace || !errors.Is(err, errReplaced) || strings.Count(err.Error(), "workspace: ") != 1 {
			t.Error(err)
		}
	})
}

// A server of the host that listens in a shared directory is not reached.
func TestSocketsCovered(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		dir, data := workspace(t, n), workspace(t, n)
		uid, gid := n.hostIDs()
		for _, path := range []string{filepath.Join(dir, "stream"), filepath.Join(data, "deep", "er", "a b")} {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := errors.Join(os.Chmod(path, 0o777), os.Chown(path, uid, gid)); err != nil {
				t.Fatal(err)
			}
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					io.WriteString(c, "from the host")
					c.Close()
				}
			}()
		}
		gram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "gram"), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer gram.Close()
		if err := os.Chmod(filepath.Join(dir, "gram"), 0o777); err != nil {
			t.Fatal(err)
		}
		p := testPolicy(dir)
		p.Mounts = []Mount{{Host: data, Guest: "/data"}}
		out := python(t, n, p, `
import os, socket
def reach(path, kind=socket.SOCK_STREAM):
    try:
        s = socket.socket(socket.AF_UNIX, kind)
        if kind == socket.SOCK_DGRAM: return s.sendto(b"x", path)
        s.connect(path)
        return s.recv(100)
    except OSError as e: return type(e).__name__
def moved(path):
    for f in os.unlink, lambda p: os.rename(p, p + "2"), lambda p: os.link(p, p + "3"):
        try: f(path); return True
        except OSError: pass
    return False
print(reach("/workspace/stream"), reach("/data/deep/er/a b"), reach("/workspace/gram", socket.SOCK_DGRAM))
print(moved("/workspace/stream"), reach("/workspace/stream"))
l = socket.socket(socket.AF_UNIX); l.bind("/workspace/own"); l.listen()
c = socket.socket(socket.AF_UNIX); c.connect("/workspace/own"); l.accept()[0].send(b"own"); print(c.recv(3))`)
		const no = "ConnectionRefusedError"
		if out != no+" "+no+" "+no+"\nFalse "+no+"\nb'own'\n" {
			t.Errorf("printed %s", out)
		}
	})
}

func TestBoundPaths(t *testing.T) {
	got := boundPaths(`Num       RefCount Protocol Flags    Type St Inode Path
00000000b31d6630: 00000003 00000000 00000000 0001 03  1159
00000000b31d6631: 00000002 00000000 00010000 0001 01  1160 /run/a b
00000000b31d6632: 00000002 00000000 00010000 0001 01  1161 @/abstract /x
00000000b31d6633: 00000003 00000000 00000000 0001 03  1162 /run/a b
00000000b31d6634: 00000002 00000000 00010000 0001 01  1163 relative
`)
	for _, want := range []string{"/run/a b"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if slices.Contains(got, "/abstract /x") || len(got) > 2 {
		t.Errorf("%q", got)
	}
}

// A wall through which the self-test's bait is seen is found out, also where the guest's
// user is another than the server's.
func TestSelfTestFindsHoles(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			weaken func(l *Local, b *bait)
			want   string
		}{
			"none": {func(*Local, *bait) {}, ""},
			"shown like a prefix": {func(l *Local, b *bait) {
				l.python.Prefixes = append(l.python.Prefixes, b.path)
			}, "read a file outside"},
			"mounted, writable": {func(l *Local, b *bait) {
				l.cfg.Mounts = append(l.cfg.Mounts, Mount{Host: b.open, Guest: b.open, Writable: true})
			}, "write outside the workspace"},
		} {
			l := local(t, Config{Limits: small})
			b, err := newBait()
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]os.FileMode{b.path: 0o755, b.canary: 0o644, b.open: 0o777} {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
					t.Errorf("%s is not for everybody: %v, %v", path, info.Mode(), err)
				}
			}
			tt.weaken(l, b)
			err = l.tryWall(t.Context(), b)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			if err := b.close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A mount may be one file, and stays that file.
func TestMountOfAFile(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir, err := os.MkdirTemp("", "shared-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		l := local(t, Config{Mounts: []Mount{{Host: file, Guest: "/data/file"}}})
		res := do(t, opener(l)(t), `
try: open("/data/file", "a"); print("written")
except OSError: pass
open("/data/file").read()`, sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != `"text"` || res.Stdout != "" {
			t.Errorf("%s%s", res.Output, res.Stdout)
		}
	})
}
