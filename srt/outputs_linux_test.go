package srt

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// output reads an output of a session whole.
func output(t *testing.T, s *session, uri string) []byte {
	t.Helper()
	for _, o := range s.Outputs() {
		if sandbox.OutputURI(s.id, o.N) == uri {
			f, _, err := s.OpenOutput(o.N)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("there is no %q among %+v", uri, s.Outputs())
	return nil
}

// What is too long for a result is kept byte for byte, of both streams, of children and of
// commands; it is out of the guest's reach, and survives what ends the interpreter.
func TestOutputIsKept(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		list, err := allowlist.New(allowlist.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := local(t, Config{Commands: list})
		s := opener(l)(t).(*session)
		const code = `
import os, random
random.seed(7)
blob = random.randbytes(10_000_000)
n = 0
while n < len(blob):
    n += os.write(1, blob[n:n+70_000])
os.write(2, b'e' * 30_000)
open('blob', 'wb').write(blob)
`
		res := do(t, s, code, sandbox.StatusOK, sandbox.StateNew)
		blob, err := os.ReadFile(filepath.Join(s.workspace, "blob"))
		if err != nil {
			t.Fatal(err)
		}
		out := res.Truncated.Stdout
		if out.Produced != 10_000_000 || out.Rest == "" || !bytes.Equal(output(t, s, out.Rest), blob) {
			t.Errorf("%+v", out)
		}
		if !strings.Contains(res.Stdout, "all 10000000 are in the resource "+out.Rest+"]") {
			t.Errorf("%.300q", res.Stdout[9_000:])
		}
		if got := output(t, s, res.Truncated.Stderr.Rest); string(got) != strings.Repeat("e", 30_000) {
			t.Errorf("%d bytes of stderr", len(got))
		}
		res = do(t, s, "print('short')", sandbox.StatusOK, sandbox.StateKept)
		if res.Truncated.Any() || res.Truncated.Stdout.Rest != "" || len(s.Outputs()) != 2 {
			t.Errorf("%+v, %+v", res.Truncated, s.Outputs())
		}
		pipeline, err := list.Parse("cat blob && cat blob")
		if err != nil {
			t.Fatal(err)
		}
		res, err = s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipeline})
		if err != nil || !bytes.Equal(output(t, s, res.Truncated.Stdout.Rest), append(blob, blob...)) {
			t.Errorf("%+v, %v", res.Truncated, err)
		}
		lost := do(t, s, "import os; os.write(1, b'z' * 50_000); os._exit(3)", sandbox.StatusCrash, sandbox.StateRestored)
		if got := output(t, s, lost.Truncated.Stdout.Rest); string(got) != strings.Repeat("z", 50_000) {
			t.Errorf("%d bytes before a crash", len(got))
		}
		found := do(t, s, `
import os
hits = []
for base in ('/workspace', '/workspace/..', '/tmp', '/run', '/dev/shm', '/'):
    for at, dirs, names in os.walk(base):
        dirs[:] = [d for d in dirs if d not in ('proc', 'sys', 'usr', 'lib', 'lib64')]
        hits += [os.path.join(at, n) for n in names + dirs if n == 'outputs' or n.endswith('-stdout.txt')]
hits`, sandbox.StatusOK, sandbox.StateKept)
		if string(found.Output) != "[]" {
			t.Errorf("the guest sees %s", found.Output)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", s.dir, err)
		}
	})
}

// A flood is drained, and neither the server's memory nor its disk grows beyond the bound.
func TestOutputFlood(t *testing.T) {
	l := local(t, Config{Limits: sandbox.Limits{Outputs: 4 * mib}})
	s := opener(l)(t).(*session)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := s.Run(t.Context(), sandbox.Request{Timeout: 3 * time.Second, Code: "import os\nb = b'y\\n' * 50_000\nwhile True: os.write(1, b)"})
	runtime.ReadMemStats(&after)
	if err != nil || res.Status != sandbox.StatusTimeout {
		t.Fatalf("%s, %v", res.Status, err)
	}
	out := res.Truncated.Stdout
	t.Logf("%d MB in %v", out.Produced/1e6, res.Duration)
	if got := output(t, s, out.Rest); len(got) != 4*mib || strings.Trim(string(got), "y\n") != "" {
		t.Errorf("%d bytes are kept", len(got))
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16*mib {
		t.Errorf("the server's memory has grown by %d", grown)
	}
}
