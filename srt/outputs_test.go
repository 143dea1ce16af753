package srt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func plenty(string) (int64, error) { return math.MaxInt64, nil }

func testOutputs(t *testing.T, quota int64) *outputs {
	t.Helper()
	return newOutputs(filepath.Join(t.TempDir(), outputsDir), "s", quota, plenty)
}

// spooled writes n bytes in pieces, and returns what Close said.
func spooled(o *outputs, n int) (string, int64) {
	w := o.spool("stdout.txt")
	for n > 0 {
		k := min(n, 1000)
		w.Write(bytes.Repeat([]byte("x"), k))
		n -= k
	}
	return w.Close()
}

func numbers(o *outputs) string {
	var all []string
	for _, k := range o.list() {
		all = append(all, fmt.Sprintf("%d:%d", k.N, k.Size))
	}
	return strings.Join(all, " ")
}

func count(t *testing.T, o *outputs) int {
	t.Helper()
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOldestOutputsGoFirst(t *testing.T) {
	o := testOutputs(t, 10_000)
	for i := 1; i <= 5; i++ {
		uri, size := spooled(o, 4000)
		if uri != fmt.Sprintf("sandbox://s/outputs/%d", i) || size != 4000 {
			t.Fatalf("%q, %d", uri, size)
		}
	}
	if got := numbers(o); got != "4:4000 5:4000" || count(t, o) != 2 || o.size != 8000 {
		t.Errorf("%s, %d files, %d bytes", got, count(t, o), o.size)
	}
	if _, _, err := o.find(1); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not there any longer") {
		t.Errorf("%v", err)
	}
	for _, n := range []int{0, -1, 6} {
		if _, _, err := o.find(n); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "has no output") {
			t.Errorf("%d: %v", n, err)
		}
	}
	// One that is larger than all the room keeps its beginning, alone.
	if uri, size := spooled(o, 25_500); uri == "" || size != 10_000 || numbers(o) != "6:10000" {
		t.Errorf("%q, %d; %s", uri, size, numbers(o))
	}
	f, _, err := o.find(6)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spooled(o, 10) // which pushes out what is being read
	if b, err := io.ReadAll(f); len(b) != 10_000 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Both streams of a call are written at once: neither pushes the other out.
func TestOutputsUnderWayStay(t *testing.T) {
	o := testOutputs(t, 10_000)
	a, b := o.spool("stdout.txt"), o.spool("stderr.txt")
	for range 8 {
		a.Write(make([]byte, 1000))
		b.Write(make([]byte, 1000))
	}
	_, n := a.Close()
	_, m := b.Close()
	if n+m != 10_000 || numbers(o) != fmt.Sprintf("1:%d 2:%d", n, m) {
		t.Errorf("%d, %d; %s", n, m, numbers(o))
	}
}

func TestOutputsOfAnEarlierServer(t *testing.T) {
	o := testOutputs(t, 10_000)
	for range 3 {
		spooled(o, 4000)
	}
	for _, other := range []string{"x", "0-y.txt", "7"} {
		if err := os.WriteFile(filepath.Join(o.dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(o.dir, "9-stdout.txt")); err != nil {
		t.Fatal(err)
	}
	later := newOutputs(o.dir, "s", 10_000, plenty)
	if got := numbers(later); got != "2:4000 3:4000" || later.size != 8000 {
		t.Errorf("%s, %d", got, later.size)
	}
	if uri, _ := spooled(later, 1); uri != "sandbox://s/outputs/4" {
		t.Error(uri)
	}
}

// A disk that is nearly full, or a session that has ended, costs what can't be kept and
// nothing else.
func TestOutputsWithoutRoom(t *testing.T) {
	o := testOutputs(t, 10_000)
	o.spare = func(string) (int64, error) { return spoolRound - 1, nil }
	if uri, size := spooled(o, 4000); uri != "" || size != 0 || count(t, o) != 0 {
		t.Errorf("%q, %d", uri, size)
	}
	gone := newOutputs(filepath.Join(t.TempDir(), "gone", outputsDir), "s", 10_000, plenty)
	if uri, size := spooled(gone, 4000); uri != "" || size != 0 || len(gone.list()) != 0 {
		t.Errorf("%q, %d", uri, size)
	}
	if _, err := os.Stat(filepath.Dir(gone.dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory of an ended session was made again")
	}
}

func TestOutputNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"figure.png": true, "a_b-C.2": true, "": false, "a/b": false, "..": true, // with its number it is a name like any other
		"a\n": false, "ä": false, strings.Repeat("x", 101): false,
	} {
		if isOutputName(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}
