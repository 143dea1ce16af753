package workload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// tree lists a workspace: paths, with the contents of files.
func tree(t *testing.T, root *os.Root) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		found[path] = "/"
		if d.Type().IsRegular() {
			b, err := root.ReadFile(path)
			found[path] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func listed(files []sandbox.File) (all []string) {
	for _, f := range files {
		all = append(all, fmt.Sprintf("%s:%d", f.Path, f.Size))
	}
	return all
}

func TestMirror(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	root := s.Root()
	write := func(path, text string) {
		t.Helper()
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("given.txt", "one")
	write("deep/er/data.bin", strings.Repeat("0123456789", 350_000)) // in four parts
	write("empty", "")
	res := call1(t, s, `import os, shutil
given = open('given.txt').read(), os.path.getsize('deep/er/data.bin'), os.path.getsize('empty'), open('deep/er/data.bin').read() == '0123456789' * 350_000
os.makedirs('made/here')
open('made/here/a', 'w').write('a')
open('made/big', 'w').write('abcdefghij' * 300_000)
open('given.txt', 'a').write(' two')
os.remove('empty')
os.mkdir('hollow')
given`)
	if string(res.Output) != `["one",3500000,0,true]` {
		t.Errorf("there: %s %s", res.Output, res.Error)
	}
	if got := listed(res.Files); !slices.Equal(got, []string{"given.txt:7", "made/big:3000000", "made/here/a:1"}) {
		t.Errorf("changed: %q", got)
	}
	here := tree(t, root)
	if here["given.txt"] != "one two" || here["made/here/a"] != "a" || here["made/big"] != strings.Repeat("abcdefghij", 300_000) || here["hollow"] != "/" || len(here) != 9 {
		for p, c := range here {
			t.Logf("%s: %.20q", p, c)
		}
		t.Errorf("here: %d entries", len(here))
	}
	// What is removed and changed here is so there, and a file of the same size and age too.
	if err := root.RemoveAll("made"); err != nil {
		t.Fatal(err)
	}
	info, err := root.Stat("given.txt")
	if err != nil {
		t.Fatal(err)
	}
	write("given.txt", "ONE TWO")
	if err := root.Chtimes("given.txt", info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	res = call1(t, s, "[sorted(os.listdir()), open('given.txt').read()]")
	if string(res.Output) != `[["deep","given.txt","hollow"],"ONE TWO"]` || len(res.Files) != 0 {
		t.Errorf("there: %s; changed: %q", res.Output, listed(res.Files))
	}
	// A file that is made anew with the same content is none that changed.
	if res = call1(t, s, "open('given.txt', 'w').write('ONE TWO')"); len(res.Files) != 0 {
		t.Errorf("changed: %q", listed(res.Files))
	}
	if res = call1(t, s, "shutil.rmtree('deep')"); len(tree(t, root)) != 2 {
		t.Errorf("here: %q", tree(t, root))
	}
	// A fresh container gets all of it again.
	b.e.Kill(s.workloadID(), false)
	waitFor(t, "the loss to be noticed", func() bool { return s.live.client.Err() != nil })
	if res = call1(t, s, "import os\n[sorted(os.listdir()), open('given.txt').read()]"); string(res.Output) != `[["given.txt","hollow"],"ONE TWO"]` {
		t.Errorf("there: %s", res.Output)
	}
}

// Small files come many at a time, and still no more of them than there is room for.
func TestMirrorKeepsToTheDisk(t *testing.T) {
	b, _ := remembering(t, func(_ *workloadtest.Config, wc *Config) { wc.Limits.Disk = 2 << 20 })
	s := b.session()
	res := call1(t, s, "for n in range(80):\n    open('f%02d' % n, 'wb').write(b'x' * 35_000)")
	var size int
	for _, content := range tree(t, s.Root()) {
		size += len(content)
	}
	if size > 2<<20 || size < 2<<20-35_000 || !strings.Contains(strings.Join(res.Notes, "\n"), "beyond the disk limit of the workspace") {
		t.Errorf("%d bytes are here; %q", size, res.Notes)
	}
}

// What can't be the same on both sides is named, once, and harms neither.
func TestMirrorLeavesOut(t *testing.T) {
	b, _ := remembering(t, func(_ *workloadtest.Config, wc *Config) { wc.Limits.Disk = 2 << 20 })
	s := b.session()
	root := s.Root()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := root.Symlink(outside, "link"); err != nil {
		t.Fatal(err)
	}
	res := call1(t, s, `import os
found = os.path.lexists('link')
os.symlink('/etc/passwd', 'passwd')
os.mkfifo('pipe')
open('ok', 'w').write('ok')
open('big', 'wb').write(b'x' * 1_500_000)
open('bigger', 'wb').write(b'y' * 1_500_000)
open(b'\xff', 'w').close()
found`)
	if string(res.Output) != "false" {
		t.Errorf("%s %s", res.Output, res.Error)
	}
	if here := tree(t, root); len(here) != 3 || here["link"] != "/" || here["ok"] != "ok" {
		t.Errorf("here: %d entries", len(here))
	}
	said := strings.Join(res.Notes, "\n")
	for _, part := range []string{
		"not in the remote workspace (links, pipes and devices): link", "beyond the disk limit of the workspace): big",
		"links (1)", "sockets, pipes and devices (1)", "names that are not UTF-8 (1)",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not said: %q", part, res.Notes)
		}
	}
	if res := call1(t, s, "1"); len(res.Notes) != 0 {
		t.Errorf("said again: %q", res.Notes)
	}
	// Both sides changed the same file: the one here is kept.
	if err := root.WriteFile("ok", []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan sandbox.Result, 1)
	go func() {
		res, _ := s.Run(t.Context(), sandbox.Request{Code: "print(open('ok').read(), flush=True)\nimport time\ntime.sleep(1)\nopen('ok', 'w').write('there')"})
		done <- res
	}()
	time.Sleep(500 * time.Millisecond)
	if err := root.WriteFile("ok", []byte("here!"), 0o644); err != nil {
		t.Fatal(err)
	}
	res = <-done
	if b, _ := root.ReadFile("ok"); string(b) != "here!" || res.Stdout != "before\n" || !strings.Contains(strings.Join(res.Notes, "\n"), "changed on both sides; the one here is kept): ok") {
		t.Errorf("%q, %q, %q", b, res.Stdout, res.Notes)
	}
	if res = call1(t, s, "open('ok').read()"); string(res.Output) != `"here!"` {
		t.Errorf("there: %s", res.Output)
	}
}

// A file that the code changes keeps its rights here, whether its content was
// closed to others or it is a program; what the code made a program comes as one.
func TestMirrorKeepsRights(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	root := s.Root()
	for name, perm := range map[string]os.FileMode{"private": 0o600, "tool": 0o755, "plain": 0o640} {
		if err := root.WriteFile(name, []byte("before"), perm); err != nil {
			t.Fatal(err)
		}
		if err := root.Chmod(name, perm); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	res := call1(t, s, `import os
for name in 'private', 'tool', 'plain', 'made':
    open(name, 'w').write('after')
open('large', 'wb').write(b'x' * 3_000_000)
os.chmod('made', 0o755)
os.chmod('large', 0o700)`)
	if len(res.Files) != 5 || len(res.Notes) != 0 {
		t.Errorf("%+v", res)
	}
	for name, want := range map[string]os.FileMode{"private": 0o600, "tool": 0o755, "plain": 0o640, "made": 0o100, "large": 0o100} {
		info, err := root.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		got := info.Mode().Perm()
		if want == 0o100 {
			got &= 0o100
		}
		if got != want {
			t.Errorf("%s: %v, want %v", name, info.Mode().Perm(), want)
		}
	}
}

// Code that removes the workspace itself finds it again, and what it then puts there
// comes back; what is no folder in its place is told of, and not followed.
func TestMirrorOfARemovedWorkspace(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	root := s.Root()
	call1(t, s, "import os, shutil\nplace = os.getcwd()\nopen('a', 'w').write('a')")
	call1(t, s, "shutil.rmtree(place)")
	if here := tree(t, root); len(here) != 0 {
		t.Errorf("after it was removed: %v", here)
	}
	if err := root.WriteFile("given", []byte("given"), 0o644); err != nil {
		t.Fatal(err)
	}
	res := call1(t, s, "os.chdir(place)\nopen('b', 'w').write(open('given').read())")
	if here := tree(t, root); res.Status != sandbox.StatusOK || len(here) != 2 || here["b"] != "given" || len(res.Notes) != 0 {
		t.Errorf("%+v, %v", res, here)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	res = call1(t, s, "os.chdir('/')\nos.rename(place, place + 'x')\nos.symlink("+strconv.Quote(outside)+", place)")
	if here := tree(t, root); here["secret"] != "" || len(here) != 2 || !strings.Contains(strings.Join(res.Notes, " "), "in place of the workspace") {
		t.Errorf("%q, %v", res.Notes, here)
	}
	call1(t, s, "os.remove(place)\nshutil.rmtree(place + 'x')")
}

// Both sides have the same idea of what is too deep: it is told of once.
func TestMirrorOfADeepFolder(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	res := call1(t, s, "import os\nos.makedirs('/'.join('d' * 60))")
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "deeper than 40") {
		t.Errorf("%q", res.Notes)
	}
	if res := call1(t, s, "1"); len(res.Notes) != 0 {
		t.Errorf("then: %q", res.Notes)
	}
}

// Code may do to its folder what it likes while it is read: no link is followed.
func TestMirrorOfAHostileFolder(t *testing.T) {
	b, _ := remembering(t, nil)
	s := b.session()
	call1(t, s, "import os\nos.mkdir('d')\nopen('d/f', 'w').write('mine')")
	// Between the listing and the reading, a directory becomes a link.
	call1(t, s, "import shutil\nshutil.rmtree('d')\nos.symlink('/etc', 'd')")
	p := puller{m: s.mirror, r: s.remote, left: omissions{}, changed: map[string]int64{}, room: 1 << 20}
	for _, path := range []string{"d/hostname", "d/passwd"} {
		pieces, data, err := p.fetch(t.Context(), []getPiece{{Path: path, Size: 1000}})
		if err != nil || len(data) != 0 || pieces[0].Error == "" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for _, path := range []string{"../x", "/etc/passwd", "a/../../x", "."} {
		if pieces, data, err := p.fetch(t.Context(), []getPiece{{Path: path, Size: 1000}}); err == nil && (len(data) > 0 || pieces[0].Error == "") {
			t.Errorf("%s was read: %q", path, data)
		}
	}
	if res := call1(t, s, "os.listdir()"); string(res.Output) != `["d"]` {
		t.Errorf("%s", res.Output)
	}
}

func TestPlainPath(t *testing.T) {
	for path, want := range map[string]bool{
		"a": true, "a/b": true, "ä/ß": true, "a b": true, "..a": true,
		"": false, ".": false, "..": false, "a/..": false, "../a": false, "/a": false, "a//b": false, "a/": false, "./a": false,
		"a\x00b": false, "\xff": false, mirrorPrefix + "x": false, "a/" + mirrorPrefix: false, strings.Repeat("a", 1001): false,
	} {
		if plainPath(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
