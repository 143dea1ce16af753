package srt

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mcp-sandbox/sandbox"
)

const someID = "7b0e4a6e-1c1d-4a53-9d6e-0c6f2a1b3c4d"

// stateAt opens a state directory for the time of a test.
func stateAt(t *testing.T, dir string) *stateDir {
	t.Helper()
	d, err := openStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.close() })
	return d
}

func lay(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// What a start takes away is what a server was killed over, and nothing that it
// only can't read.
func TestSweepOfStates(t *testing.T) {
	d := stateAt(t, filepath.Join(t.TempDir(), "state"))
	for name, c := range map[string]struct {
		file, text string
		stays      bool
	}{
		"00000000-0000-4000-8000-000000000001": {workspaceDir + "/f", "", false}, // no record yet
		"00000000-0000-4000-8000-000000000002": {newFile, "half", false},
		"00000000-0000-4000-8000-000000000003": {recordFile, "", true}, // the power failed
		"00000000-0000-4000-8000-000000000004": {stateFile, "all", true},
		"00000000-0000-4000-8000-000000000005": {staleFile, "old", true},
		"00000000-0000-4000-8000-000000000006": {recordFile + "/x", "", true}, // can't be read
		"00000000-0000-4000-8000-000000000007": {recordFile, `{"id":"another","principal":"p"}`, true},
		"notes":                                {"mine", "", true},
		".git":                                 {"config", "", true},
		warmPrefix + "1":                       {recordFile, "", false},
		gonePrefix + "any":                     {recordFile, "", false},
	} {
		lay(t, c.text, d.sessions, name, c.file)
		var log bytes.Buffer
		kept, err := d.kept(slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || len(kept) != 0 {
			t.Errorf("%s: %v, %v", name, kept, err)
		}
		if _, err := os.Lstat(filepath.Join(d.sessions, name, c.file)); (err == nil) != c.stays {
			t.Errorf("%s with %s: stays %v: %v", name, c.file, err == nil, err)
		}
		if !strings.Contains(log.String(), name) {
			t.Errorf("%s: the log says %q", name, log.String())
		}
	}
}

// A session that can't be read now is neither a new one nor gone.
func TestUnreadableRecord(t *testing.T) {
	l := local(t, Config{StateDir: filepath.Join(t.TempDir(), "state")})
	dir := filepath.Join(l.state.sessions, someID)
	for _, c := range []struct{ file, text string }{{recordFile, ""}, {recordFile, `{"id":`}, {stateFile, "all"}} {
		lay(t, c.text, dir, c.file)
		s, err := l.Open(t.Context(), sandbox.Spec{ID: someID, Principal: "ann"})
		if !errors.Is(err, sandbox.ErrInfra) {
			t.Errorf("%s of %q: %v, %v", c.file, c.text, s, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(text) != c.text {
			t.Errorf("%s: now %q, %v", c.file, text, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// Another program's private directory is not ours to tidy up.
func TestForeignStateDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "sessions", someID, "mail")
	lay(t, "mine", foreign)
	d, err := openStateDir(dir)
	if err == nil {
		d.close()
	}
	if err == nil || !strings.Contains(err.Error(), "name a directory that is empty") {
		t.Errorf("a directory that holds something else: %v", err)
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lock was left: %v", err)
	}
	disk := t.TempDir()
	if err := errors.Join(os.Chmod(disk, 0o700), os.Mkdir(filepath.Join(disk, "lost+found"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // new, and its own
		d, err := openStateDir(disk)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A fault that may pass costs nobody variables.
func TestFaultWhileRestoring(t *testing.T) {
	l := local(t, Config{StateDir: filepath.Join(t.TempDir(), "state")})
	s := opener(l)(t).(*session)
	hibernated(t, s, "x = 1")
	path := filepath.Join(s.dir, stateFile)
	unopenable := func() error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) } // is there, and gives an error of the kernel's
	if err := errors.Join(os.Rename(path, path+".away"), unopenable()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := s.Run(t.Context(), sandbox.Request{Code: "1"})
		if !errors.Is(err, sandbox.ErrInfra) || !strings.Contains(err.Error(), "are still there") {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if res := do(t, s, "x", sandbox.StatusOK, sandbox.StateRestored); string(res.Output) != "1" {
		t.Errorf("%s, %q", res.Output, res.Notes)
	}
	hibernate(t, s)
	if err := errors.Join(os.Remove(path), unopenable()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrInfra) {
		t.Fatal(err)
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateNew)
}

// What would fill the server's disk is not saved.
func TestSavingLeavesRoom(t *testing.T) {
	if total, free, err := diskSpace(t.TempDir()); err != nil || free > total || free <= 0 {
		t.Errorf("%d of %d, %v", free, total, err)
	}
	var free atomic.Int64
	l := local(t, Config{space: func(string) (int64, int64, error) { return 100 << 20, free.Load(), nil }})
	s := opener(l)(t).(*session)
	do(t, s, "x = 'x' * (8 << 20)", sandbox.StatusOK, sandbox.StateNew)
	for _, mib := range []int64{0, 10, 15} { // with 15, 5 may be taken
		free.Store(mib << 20)
		if err := s.Hibernate(t.Context()); !errors.Is(err, errDiskFull) {
			t.Errorf("with %d MiB free: %v", mib, err)
		}
		do(t, s, "len(x)", sandbox.StatusOK, sandbox.StateKept)
	}
	free.Store(30 << 20)
	hibernate(t, s)
	do(t, s, "len(x)", sandbox.StatusOK, sandbox.StateRestored)
}

// The next server says lost of what was lost, and of nothing else.
func TestNothingToRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	next := func(id string, lazy bool, work func(s *session)) {
		t.Helper()
		l, err := New(t.Context(), Config{StateDir: dir, Python: testPython, native: testNative()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s, err := l.Open(t.Context(), sandbox.Spec{ID: id, Principal: "ann", Lazy: lazy})
		if err != nil {
			t.Fatal(err)
		}
		work(s.(*session))
	}
	next("idle", true, func(*session) {})
	next("idle", true, func(*session) {}) // and once more
	next("idle", false, func(s *session) { do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateNew) })
	next("idle", false, func(s *session) {
		do(t, s, "x = 1", sandbox.StatusOK, sandbox.StateLost)
		hibernate(t, s)
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	next("idle", false, func(s *session) {
		do(t, s, "x = 2", sandbox.StatusOK, sandbox.StateNew)
		hibernate(t, s)
	})
	next("idle", false, func(s *session) { do(t, s, "x", sandbox.StatusOK, sandbox.StateRestored) })
}
