package workloadtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A body is refused by a 4xx, or is a request whose one container can be run.
func FuzzCreate(f *testing.F) {
	files, err := filepath.Glob("testdata/exchanges/*create*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no exchanges", err)
	}
	for _, file := range files {
		var x struct {
			Request struct{ Body json.RawMessage }
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &x)
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(x.Request.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, refused := parseCreate(body)
		if (req == nil) == (refused == nil) {
			t.Fatal("neither a request nor a refusal, or both")
		}
		if refused != nil {
			if refused.status < 400 || refused.status > 499 {
				t.Errorf("refused by %d", refused.status)
			}
			if _, err := json.Marshal(refused.body); err != nil {
				t.Errorf("the refusal can't be sent: %v", err)
			}
			return
		}
		if req.Artifact == nil {
			return
		}
		var s spec
		if err := json.Unmarshal(req.Artifact.Spec, &s); err != nil {
			t.Fatalf("a spec of the right shape: %v", err)
		}
		primary, faults := s.primary()
		if faults = append(faults, req.Runtime.checkNames(s)...); faults != nil {
			return
		}
		if primary == nil || primary.Port < 1024 {
			t.Errorf("a container that can't be run: %+v", primary)
		}
		if m := req.Runtime.memory(primary.Name); m < 0 {
			t.Errorf("%d bytes", m)
		}
	})
}

// However output comes, its lines hold all of it, in order, and none is too long.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb"), 1, 3)
	f.Add([]byte("\n\n"), 2, 1)
	f.Add(bytes.Repeat([]byte("x"), 40), 7, 16)
	f.Fuzz(func(t *testing.T, output []byte, piece, limit int) {
		if piece < 1 || limit < 1 {
			t.Skip()
		}
		var got []byte
		l := &lines{limit: limit, emit: func(line []byte, ended bool) {
			if len(line) > limit {
				t.Errorf("a line of %d bytes, the limit is %d", len(line), limit)
			}
			got = append(got, line...)
			if ended {
				got = append(got, '\n')
			}
		}}
		for rest := output; len(rest) > 0; {
			n := min(piece, len(rest))
			if written, err := l.Write(rest[:n]); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		l.flush()
		if !bytes.Equal(got, output) {
			t.Errorf("got %q, want %q", got, output)
		}
	})
}
