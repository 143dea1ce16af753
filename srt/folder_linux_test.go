package srt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcp-sandbox/sandbox"
)

// Each session has its own folder in the operator's directory, sees no other,
// and leaves what it wrote to the directory's owner.
func TestFolders(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir, err := os.MkdirTemp("", "folders-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		owner := uint32(os.Geteuid())
		if owner == 0 { // a server that is root serves somebody else's directory
			owner = 12345
			if err := os.Chown(dir, int(owner), int(owner)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "others"), []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		l := local(t, Config{Workspace: dir, WorkspaceApart: true})
		if s := l.String(); !strings.Contains(s, "a folder of each session's own in "+dir) {
			t.Error(s)
		}
		open := func(id string) sandbox.Session {
			s, err := l.Open(t.Context(), sandbox.Spec{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		a, b, empty := open("a"), open("b"), open("empty")
		for _, s := range []sandbox.Session{a, b} {
			res := do(t, s, "import os\nseen = os.listdir() + os.listdir('..')\n_ = open('f', 'w').write('x')\n('f' in seen, 'others' in seen, 'a' in seen, 'b' in seen)", sandbox.StatusOK, sandbox.StateNew)
			if string(res.Output) != "[false,false,false,false]" {
				t.Errorf("a session sees %s", res.Output)
			}
		}
		do(t, empty, "1", sandbox.StatusOK, sandbox.StateNew)
		if again, err := l.Open(t.Context(), sandbox.Spec{ID: "a"}); err == nil {
			again.Close()
			t.Error("two sessions have one folder")
		}
		for _, s := range []sandbox.Session{a, b, empty} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 3 {
			t.Errorf("%v, %v; want a, b and others: an empty folder is taken away", left, err)
		}
		for _, name := range []string{"a", "a/f"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if uid := info.Sys().(*syscall.Stat_t).Uid; uid != owner {
				t.Errorf("%s belongs to %d, not to the directory's owner", name, uid)
			}
		}

		if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir + ".old")
		if s, err := l.Open(t.Context(), sandbox.Spec{ID: "late"}); layerOf(err) != layerWorkspace || !errors.Is(err, errReplaced) {
			t.Errorf("the directory was replaced: %v", err)
			if err == nil {
				s.Close()
			}
		}
	})
}

func TestFoldersNeedADirectory(t *testing.T) {
	for _, c := range []Config{{WorkspaceApart: true}, {WorkspaceApart: true, WorkspaceReadOnly: true, Workspace: t.TempDir()}} {
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), "folders of their own") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A session that outlives the server finds its folder again, with what it wrote.
func TestFoldersOutliveTheServer(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		dir, err := os.MkdirTemp("", "folders-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if os.Geteuid() == 0 {
			if err := os.Chown(dir, 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}
		cfg := Config{Workspace: dir, WorkspaceApart: true, StateDir: filepath.Join(t.TempDir(), "state")}
		serve := func() *Local {
			cfg.Python, cfg.native = testPython, testNative()
			l, err := New(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first := serve()
		open := func(l *Local, id string) *session {
			s, err := l.Open(t.Context(), sandbox.Spec{ID: id, Principal: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			return s.(*session)
		}
		hibernated(t, open(first, "a"), "x = 1; open('f', 'w').write('kept')")
		hibernated(t, open(first, "shut"), "x = 2; __import__('os').mkdir('d')")
		hibernated(t, open(first, "moved"), "x = 3; open('f', 'w').write('kept')")
		hibernated(t, open(first, "empty"), "x = 4")
		hibernated(t, open(first, "gone"), "x = 5")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 5 {
			t.Errorf("%v, %v; want the folders of all, empty ones too", left, err)
		}
		if err := os.Chmod(filepath.Join(dir, "shut"), 0); err != nil { // as a guest may have
			t.Fatal(err)
		}
		moved := filepath.Join(dir, "moved")
		if err := errors.Join(os.Rename(moved, moved+".old"), os.Symlink(moved+".old", moved), os.Remove(filepath.Join(dir, "gone"))); err != nil {
			t.Fatal(err)
		}

		second := serve()
		defer second.Close()
		a := open(second, "a")
		if res := do(t, a, "x, open('f').read()", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != `[1,"kept"]` {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		if res := do(t, open(second, "shut"), "x, __import__('os').listdir()", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != `[2,["d"]]` {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		if res := do(t, open(second, "gone"), "x, open('f', 'w').write('1')", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != `[5,1]` {
			t.Errorf("%s, %q", res.Output, res.Notes)
		}
		if _, err := second.Open(t.Context(), sandbox.Spec{ID: "moved", Principal: "ann"}); layerOf(err) != layerWorkspace || !strings.Contains(err.Error(), "no longer the folder") {
			t.Errorf("a link to it: %v", err)
		}
		if err := errors.Join(a.Close(), second.Discard("empty")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "empty")); !os.IsNotExist(err) {
			t.Errorf("the empty folder of a session that was ended: %v", err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "a", "f")); err != nil || string(b) != "kept" {
			t.Errorf("what a session wrote that was ended: %q, %v", b, err)
		}
	})
}

func TestFoldersStartCold(t *testing.T) {
	if _, err := New(t.Context(), Config{WorkspaceApart: true, Workspace: t.TempDir(), Warm: 1}); err == nil || !strings.Contains(err.Error(), "kept ready") {
		t.Error(err)
	}
}
