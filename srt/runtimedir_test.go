package srt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSweepTakesTheDeadAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	// A guest may have taken its permissions from the server.
	locked := filepath.Join(dead.path, "session", "workspace", "locked")
	if err := os.MkdirAll(filepath.Join(locked, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does when the server dies

	// What only has the name is left alone.
	base := os.Getenv("TMPDIR")
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link, file, bare := filepath.Join(base, "mcp-sandbox-link"), filepath.Join(base, "mcp-sandbox-file"), filepath.Join(base, "mcp-sandbox-bare")
	if err := os.Symlink(precious, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(bare, 0o700); err != nil {
		t.Fatal(err)
	}

	if n, err := sweepRuntimeDirs(); n != 1 || err != nil {
		t.Errorf("%d swept, %v; one is dead", n, err)
	}
	if _, err := os.Lstat(dead.path); !os.IsNotExist(err) {
		t.Errorf("a dead server's directory is left: %v", err)
	}
	for _, path := range []string{alive.path, filepath.Join(precious, "lock"), link, file, bare} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("swept what is not a dead server's: %v", err)
		}
	}
	if err := alive.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(alive.path); !os.IsNotExist(err) {
		t.Errorf("closed, but there: %v", err)
	}
}

func TestRuntimeDirIsPrivate(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	r, err := newRuntimeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	info, err := os.Stat(r.path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A server may have been killed before its directory had its name, or even its lock.
func TestSweepTakesTheUnfinished(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	unfinishedDir := func(name string, age time.Duration, lock bool) string {
		dir := filepath.Join(base, ".new-mcp-sandbox-"+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if lock {
			if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	gone := []string{unfinishedDir("bare", 2*time.Minute, false), unfinishedDir("dead", 2*time.Minute, true)}
	stay := []string{unfinishedDir("young", 0, false), unfinishedDir("young-lock", 0, true), unfinishedDir("alive", time.Hour, true)}
	lock, err := lockFile(filepath.Join(stay[2], "lock"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if n, err := sweepRuntimeDirs(); n != 2 || err != nil {
		t.Errorf("%d swept, %v; two are dead", n, err)
	}
	for _, dir := range gone {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	for _, dir := range stay {
		if _, err := os.Lstat(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestTempDir(t *testing.T) {
	base, err := resolved(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(base)
	if err := errors.Join(os.Mkdir("real", 0o700), os.Symlink("real", "link"), os.WriteFile("file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tmp := range []string{"real", "link", "./link/", filepath.Join(base, "link")} {
		t.Setenv("TMPDIR", tmp)
		r, err := newRuntimeDir()
		if err != nil {
			t.Errorf("%s: %v", tmp, err)
			continue
		}
		if filepath.Dir(r.path) != filepath.Join(base, "real") {
			t.Errorf("%s: made %s", tmp, r.path)
		}
		if n, err := sweepRuntimeDirs(); n != 0 || err != nil {
			t.Errorf("%s: %d swept, %v", tmp, n, err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
	for tmp, why := range map[string]string{"none": "no such file", "file": "not a directory", "/proc": ""} {
		t.Setenv("TMPDIR", tmp)
		_, err := newRuntimeDir()
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "can be made in /") ||
			!strings.HasSuffix(err.Error(), "set TMPDIR to a directory that this user can write to") || strings.Contains(err.Error(), ".new-") {
			t.Errorf("%s: %v", tmp, err)
		}
	}
}

// A guest can make a tree deeper than the server may open files, and take its
// own rights away at every level.
func TestRemoveAllOfADeepTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "session")
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := root.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		below, err := root.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		if err := below.Symlink(filepath.Dir(precious), "link"); err != nil {
			t.Fatal(err)
		}
		if i%500 == 499 {
			if err := below.Chmod(".", 0); err == nil {
				defer below.Close() // it can't be opened again, but is open
			}
		}
		root.Close()
		root = below
	}
	root.Close()
	if err := removeAll(top); err != nil {
		t.Errorf("%.300v", err)
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Error("the tree is there")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error("what a link points to is gone")
	}
}
