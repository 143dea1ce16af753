package externals

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	long := `{"result":{"id":5,"a":"\"id\":6,}` + strings.Repeat("x", 200<<10) + `"},"id":7}`
	l := newLines(strings.NewReader("one\n\n  \r\ntwo\r\n"+long+"\nthree\ncut"), 100<<10)
	for _, want := range []string{"one", "two", "", "three"} {
		line, err := l.next()
		var large *tooLarge
		switch {
		case want == "":
			if !errors.As(err, &large) || large.id != "7" || large.size != int64(len(long))+1 {
				t.Errorf("the long line: %v, %+v", err, large)
			}
		case err != nil || string(line) != want:
			t.Errorf("%q, %v; want %q", line, err, want)
		}
	}
	if line, err := l.next(); err != io.EOF {
		t.Errorf("a line without its end: %q, %v", line, err)
	}
}

// Whatever comes, the id that is found in pieces is the one that a decoder finds.
func FuzzIDFinder(f *testing.F) {
	for _, s := range []string{`{"id":1}`, `{"result":{"id":2},"id":"a\"b"}`, `{"id":null,"x":[]}`, `{"i\u0064":3}`, `{}`, `{"id" : -4 ,"b":"id"}`, `{"a":{"b":[{"id":9}]},"id":12,"id":13}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var finder idFinder
		at = max(0, min(at, len(data)))
		finder.feed(data[:at])
		finder.feed(data[at:])
		found := finder.found()
		if len(finder.id) > longestID+1 || len(finder.key) > longestID {
			t.Fatalf("%d bytes of an id, %d of a key are kept", len(finder.id), len(finder.key))
		}
		if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || bytes.Contains(data, []byte(`\`)) || bytes.Count(data, []byte(`"id"`)) != 1 {
			return
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(data, &m) != nil {
			return
		}
		id := m["id"]
		if len(id) > 0 && id[0] != '{' && id[0] != '[' && len(id) <= longestID && !strings.ContainsAny(string(id), " \t") && found != string(id) {
			t.Errorf("%s: found %q, want %s", data, found, id)
		}
	})
}
