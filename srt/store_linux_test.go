package srt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// nulls gives n bytes and never more, without holding them.
func nulls(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// tree is what lies in a workspace, without what the interpreter may have made.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func store(s *session, name, text string) error {
	_, err := s.StoreFile(context.Background(), name, int64(len(text)), strings.NewReader(text))
	return err
}

// A file from outside is the guest's own: code reads, changes and removes it.
func TestStoredFileIsTheGuests(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l := local(t, Config{})
		s := opener(l)(t).(*session)
		for _, name := range []string{"a.csv", "new/dirs/b ü.csv", "new/c"} {
			if err := store(s, name, "x,y\n1,2\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err := store(s, "a.csv", "x,y\n3,4\n"); err != nil { // in its place
			t.Fatal(err)
		}
		res := do(t, s, `
import os, shutil
text = open('a.csv').read()
for n in ('a.csv', 'new/dirs/b ü.csv', 'new/c'):
    open(n, 'a').write('z')
    assert os.stat(n).st_uid == os.getuid(), os.stat(n)
open('new/dirs/own', 'w').close()
shutil.rmtree('new')
text`, sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != `"x,y\n3,4\n"` {
			t.Errorf("%s", res.Output)
		}
		for clock := fileClock(); fileClock() == clock; {
		}
		if res := do(t, s, "pass", sandbox.StatusOK, sandbox.StateKept); len(res.Files) > 0 {
			t.Errorf("%q", paths(res))
		}
	})
}

func TestStoreRefused(t *testing.T) {
	outside := t.TempDir()
	l := local(t, Config{Limits: sandbox.Limits{Disk: 8 * mib, Inodes: 200}})
	s := opener(l)(t).(*session)
	do(t, s, "import os\nos.mkdir('dir'); open('dir/f', 'w').close(); open('file', 'w').write('mine'); os.mkfifo('fifo')", sandbox.StatusOK, sandbox.StateNew)
	for name, to := range map[string]string{"out": outside, "outfile": filepath.Join(outside, "f"), "up": "../..", "in": "dir"} {
		if err := os.Symlink(to, filepath.Join(s.workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, s.workspace)
	for name, test := range map[string]struct {
		path string
		size int64
		from io.Reader
		is   error
		text string
	}{
		"a directory":          {"dir", 1, nulls(1), fs.ErrExist, ""},
		"the workspace":        {"", 1, nulls(1), nil, "names no file"},
		"below a file":         {"file/x", 1, nulls(1), fs.ErrExist, ""},
		"below a pipe":         {"fifo/x", 1, nulls(1), fs.ErrExist, ""},
		"up":                   {"../x", 1, nulls(1), nil, "out of the workspace"},
		"absolute":             {"/tmp/x", 1, nulls(1), nil, "relative"},
		"through a link":       {"out/x", 1, nulls(1), nil, "a link on the way leads out"},
		"through one, deeper":  {"out/new/x", 1, nulls(1), nil, ""},
		"through one up":       {"up/x", 1, nulls(1), nil, ""},
		"a long name":          {strings.Repeat("n", 300), 1, nulls(1), nil, "can't be stored"},
		"too deep":             {strings.Repeat("d/", maxDepth) + "x", 1, nulls(1), nil, "256 directories"},
		"known to be too much": {"big", 9 * mib, nulls(9 * mib), sandbox.ErrQuota, "room for"},
		"found to be too much": {"new/big", -1, nulls(9 * mib), sandbox.ErrQuota, "room for"},
		"endless":              {"new/big", -1, zero{}, sandbox.ErrQuota, "room for"},
		"cut short":            {"new/short", 10, nulls(9), io.ErrUnexpectedEOF, ""},
		"broken":               {"new/er/x", 10, io.MultiReader(nulls(5), errorReader{}), errBroken, ""},
		"longer than told":     {"new/long", 10, nulls(11), io.ErrUnexpectedEOF, ""},
	} {
		_, err := s.StoreFile(t.Context(), test.path, test.size, test.from)
		if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), s.workspace) {
			t.Errorf("%s: %v", name, err)
		}
		if after := tree(t, s.workspace); after != before {
			t.Errorf("%s left %s, was %s", name, after, before)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.StoreFile(ended, "x", 1, nulls(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(store(s, "in/x", "1"), store(s, "outfile", "2")); err != nil { // a link's own name, and one within
		t.Error(err)
	}
	if info, err := os.Lstat(filepath.Join(s.workspace, "outfile")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	if got := tree(t, outside); got != "" {
		t.Errorf("outside lies %s", got)
	}
	if used := s.disk.uploading.Load(); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
	s.local.cfg.space = func(string) (int64, int64, error) { return 100 * mib, 10*mib + 5, nil }
	if err := store(s, "x", "123456"); !errors.Is(err, errDiskFull) {
		t.Errorf("%v", err)
	}
	s.local.cfg.space = nil
	for i := 0; ; i++ { // as many files as there may be
		if err := store(s, strings.Repeat("f", 1+i), ""); err != nil {
			if !errors.Is(err, sandbox.ErrQuota) || i < 150 {
				t.Errorf("after %d files: %v", i, err)
			}
			break
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := store(s, "x", "1"); err == nil {
		t.Error("stored in an ended session")
	}
}

// What lies as deep as may be leaves a workspace that can be measured.
func TestStoreDeep(t *testing.T) {
	s := opener(local(t, Config{}))(t).(*session)
	deep := strings.Repeat("d/", maxDepth-1)
	if err := errors.Join(store(s, deep+"x", "1"), store(s, deep+"y", "2")); err != nil {
		t.Error(err)
	}
	do(t, s, "x = open('"+deep+"y').read()", sandbox.StatusOK, sandbox.StateNew)
}

var errBroken = errors.New("the line is cut")

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errBroken }

// However many come at once, they stay within the limit together.
func TestUploadsShareTheLimit(t *testing.T) {
	l := local(t, Config{Limits: sandbox.Limits{Disk: 64 * mib}})
	s := opener(l)(t).(*session)
	do(t, s, "open('there', 'wb').write(b'x' * (20 << 20))", sandbox.StatusOK, sandbox.StateNew)
	var wg sync.WaitGroup
	var most int64
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if used, err := measure(s.workspace, usage{bytes: math.MaxInt64, inodes: math.MaxInt}, nil); err == nil {
				most = max(most, used.bytes)
			}
		}
	}()
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = s.StoreFile(context.Background(), "d"+string(rune('a'+i))+"/f", -1, nulls(10*mib))
		})
	}
	wg.Wait()
	close(stop)
	<-watched
	stored := 0
	for _, err := range errs {
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, sandbox.ErrQuota):
			t.Error(err)
		}
	}
	t.Logf("%d of %d stored, at most %d bytes of %d", stored, len(errs), most, 64*mib)
	if most > 64*mib+mib || stored > 4 {
		t.Errorf("%d stored, %d bytes", stored, most)
	}
	if got := strings.Count(tree(t, s.workspace), uploadPrefix); got > 0 {
		t.Errorf("%d parts are left", got)
	}
}

// A guest swaps the directory for a link that leads out while files come: nothing is
// ever made, changed or given away outside.
func TestStoreRace(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := local(t, Config{})
	s := opener(l)(t).(*session)
	w := s.workspace
	if err := errors.Join(os.Mkdir(filepath.Join(w, "d"), 0o777), os.Symlink(outside, filepath.Join(w, "link"))); err != nil {
		t.Fatal(err)
	}
	var swaps atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				swaps.Add(1)
			}
			os.Rename(filepath.Join(w, "d"), filepath.Join(w, "aside"))
			os.Rename(filepath.Join(w, "link"), filepath.Join(w, "d"))
			os.Rename(filepath.Join(w, "d"), filepath.Join(w, "link"))
			os.Rename(filepath.Join(w, "aside"), filepath.Join(w, "d"))
		}
	}()
	stored, refused := 0, 0
	// On a busy machine the two may take turns for long, and then it is no race.
	for patience := time.Now().Add(time.Minute); swaps.Load() < 10_000 || stored+refused < 1000 || (stored == 0 || refused == 0) && time.Now().Before(patience); {
		for _, name := range []string{"d/f", "d/new/f"} {
			if store(s, name, "ours") == nil {
				stored++
			} else {
				refused++
			}
			_ = s.root.RemoveAll("d/new")
		}
	}
	close(stop)
	<-done
	t.Logf("%d swaps: stored %d times, refused %d", swaps.Load(), stored, refused)
	b, err := os.ReadFile(filepath.Join(outside, "f"))
	if err != nil || string(b) != "theirs" || tree(t, outside) != "f" {
		t.Errorf("outside: %q, %v, %s", b, err, tree(t, outside))
	}
	info, err := os.Stat(filepath.Join(outside, "f"))
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		t.Errorf("%+v, %v", info, err)
	}
	if stored == 0 || refused == 0 {
		t.Error("the race was not one")
	}
}

// A shared workspace is the operator's: what is stored there belongs to its owner.
func TestStoreInASharedWorkspace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	owner := os.Geteuid()
	if owner == 0 {
		owner = 1234
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	l := local(t, Config{Workspace: dir})
	s := opener(l)(t).(*session)
	if err := store(s, "new/f", "text"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "new/f"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != owner {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if res := do(t, s, "open('new/f', 'a').write('more'); open('new/f').read()", sandbox.StatusOK, sandbox.StateNew); string(res.Output) != `"textmore"` {
		t.Errorf("%s", res.Output)
	}
	ro := local(t, Config{Workspace: dir, WorkspaceReadOnly: true})
	if err := store(opener(ro)(t).(*session), "x", "1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("read-only: %v", err)
	}
}

func BenchmarkStore(b *testing.B) {
	dir := b.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	folder, err := root.Open(".")
	if err != nil {
		b.Fatal(err)
	}
	s := &session{local: &Local{}, root: root, folder: folder, workspace: dir, disk: newDisk(Policy{Workspace: Mount{Host: dir}, Disk: 1 << 30, Inodes: 1000}, before{})}
	data := bytes.Repeat([]byte("x"), 64<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.StoreFile(b.Context(), "f", int64(len(data)), bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}
