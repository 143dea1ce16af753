package sandbox_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

const secret = "outside: not for guests"

// house is a workspace, and a directory beside it that holds a secret.
func house(t *testing.T) (root *os.Root, in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{in, out, filepath.Join(in, "d")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		filepath.Join(out, "f"): secret, filepath.Join(in, "f"): "inside", filepath.Join(in, "d", "f"): "inside",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, in, out
}

func TestOpenFile(t *testing.T) {
	root, in, out := house(t)
	for name, to := range map[string]string{
		"inner": "d/f", "innerdir": "d", "absolute": filepath.Join(out, "f"), "up": "../out/f", "dir": "../out", "self": "self",
		"etc": "/etc/passwd", "proc": "/proc/self/environ", "backin": "../in/f", "absin": filepath.Join(in, "f"),
	} {
		if err := os.Symlink(to, filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(in, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(in, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]string{
		"f": "inside", "d/f": "inside", "inner": "inside", "innerdir/f": "inside",
		"absolute": "", "up": "", "dir/f": "", "self": "", "etc": "", "proc": "", "backin": "", "absin": "",
		"fifo": "", "socket": "", "nothing": "", "f/f": "", "../out/f": "", "d/../../out/f": "",
	} {
		begun := time.Now()
		f, info, err := sandbox.OpenFile(root, name)
		switch {
		case err == nil && want == "":
			t.Errorf("%s was opened: %v", name, info)
		case err != nil && want != "":
			t.Errorf("%s: %v", name, err)
		case err != nil && strings.Contains(err.Error(), filepath.Dir(in)):
			t.Errorf("%s: the error tells of the server's directories: %v", name, err)
		case err == nil:
			if b, err := io.ReadAll(f); string(b) != want || err != nil {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		if f != nil {
			f.Close()
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if _, _, err := sandbox.OpenFile(root, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	dir, info, err := sandbox.OpenFile(root, ".")
	if err != nil || !info.IsDir() {
		t.Fatalf("%v, %v", info, err)
	}
	defer dir.Close()
	entries, more, err := sandbox.Entries(root, dir, ".")
	if err != nil || more || len(entries) != 14 {
		t.Errorf("%+v, %v, %v", entries, more, err)
	}
	kinds := map[string]string{}
	for _, e := range entries {
		kinds[e.Name] = e.Kind
		if e.Kind == "link" && e.Size != 0 {
			t.Errorf("%+v: the size of what a link leads to is not the link's", e)
		}
	}
	for name, kind := range map[string]string{"f": "file", "d": "directory", "etc": "link", "fifo": "other", "socket": "other"} {
		if kinds[name] != kind {
			t.Errorf("%s is a %s", name, kinds[name])
		}
	}
}

// A guest swaps a directory for a link that leads out, again and again, while it is read.
func TestSwappedForALink(t *testing.T) {
	root, in, out := house(t)
	d, aside, link := filepath.Join(in, "d"), filepath.Join(in, "aside"), filepath.Join(in, "link")
	if err := os.Symlink(out, link); err != nil {
		t.Fatal(err)
	}
	const swaps = 10_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range swaps {
			os.Rename(d, aside)
			os.Rename(link, d)
			os.Rename(d, link)
			os.Rename(aside, d)
		}
	}()
	read, refused, listed := 0, 0, 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		f, _, err := sandbox.OpenFile(root, "d/f")
		if err != nil {
			refused++
			continue
		}
		b, err := io.ReadAll(f)
		f.Close()
		if string(b) != "inside" || err != nil {
			t.Fatalf("read %q, %v", b, err)
		}
		read++
		dir, info, err := sandbox.OpenFile(root, "d")
		if err != nil {
			continue
		}
		if info.IsDir() {
			entries, _, err := sandbox.Entries(root, dir, "d")
			for _, e := range entries {
				if e.Size != int64(len("inside")) {
					t.Fatalf("%+v, %v", e, err)
				}
				listed++
			}
		}
		dir.Close()
	}
	t.Logf("%d swaps: read %d times, listed %d, refused %d", swaps, read, listed, refused)
	if read == 0 || refused == 0 || listed == 0 {
		t.Error("the race was not one")
	}
}

func TestFilePath(t *testing.T) {
	for given, want := range map[string]string{
		"": ".", ".": ".", "a": "a", "a/": "a", "a//b/./c": "a/b/c", "a/../b": "b", "ä b": "ä b", "..a": "..a",
		"/": "", "/etc/passwd": "", "..": "", "../x": "", "a/../../x": "", "a\x00b": "", strings.Repeat("x", 5000): "",
	} {
		got, err := sandbox.FilePath(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
}

func TestManyEntries(t *testing.T) {
	root, in, _ := house(t)
	for i := range 1200 {
		if err := os.WriteFile(filepath.Join(in, "d", strings.Repeat("n", i%50)+string(rune('a'+i%26))+time.Duration(i).String()), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir, _, err := sandbox.OpenFile(root, "d")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if all, more, err := sandbox.Entries(root, dir, "d"); len(all) != 1000 || !more || err != nil {
		t.Errorf("%d, %v, %v", len(all), more, err)
	}
}
