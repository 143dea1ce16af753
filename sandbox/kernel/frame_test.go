package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

func TestFrameRoundTrip(t *testing.T) {
	var b bytes.Buffer
	want := [][]byte{nil, []byte("{}"), bytes.Repeat([]byte("x"), 100_000)}
	for _, p := range want {
		if err := WriteFrame(&b, kindRequest, p); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(&b)
	for _, p := range want {
		kind, got, err := readFrame(r)
		if err != nil || kind != kindRequest || !bytes.Equal(got, p) {
			t.Fatalf("%q, %d bytes, %v; want %d bytes", kind, len(got), err, len(p))
		}
	}
	if _, _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestFrameRefusesWhatIsTooLarge(t *testing.T) {
	if err := WriteFrame(io.Discard, kindRequest, make([]byte, MaxFrame+1)); !errors.Is(err, errFrame) {
		t.Errorf("sending: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := readFrame(bufio.NewReader(bytes.NewReader([]byte{'W', 0x80, 0, 0, 0})))
	if !errors.Is(err, errFrame) {
		t.Errorf("2 GiB announced: %v", err)
	}
	// As much as is allowed, announced but not sent, must cost nothing.
	_, _, err = readFrame(bufio.NewReader(bytes.NewReader([]byte{'W', 0, 0x40, 0, 0})))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated for frames that never came", grown)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{'S', 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{'W', 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{'W', 0, 0, 0, 200, '{'})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for read := 0; ; {
			_, payload, err := readFrame(r)
			if err != nil {
				return
			}
			if read += 5 + len(payload); read > len(in) {
				t.Fatalf("read %d bytes of %d", read, len(in))
			}
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte(`{"event":"result","id":"1","status":"ok","output":[1,{"a":null}],"return_value":null,"error":"","exit_code":0,"notes":["n"]}`))
	f.Add([]byte(`{"event":"refused","error":"no"}`))
	f.Add([]byte(`{"event":"restored","notes":["not restored: 1 socket, at the end now"]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := decodeReply(in)
		if err != nil {
			return
		}
		if !utf8.Valid(r.Output) || sandbox.Depth(r.Output) > maxDepth || len(r.Notes) > maxNotes || len(r.Error) > 2*maxText {
			t.Fatalf("beyond its bounds: %+v", r)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(`{"event":"died","generation":1,"signal":9,"asked":false}`))
	f.Add([]byte(`{"event":"died","generation":1,"exit":3,"signal":null,"asked":false,"standby":true}`))
	f.Add([]byte(`{"event":"worker","generation":2,"pid":7,"python":"3.11.7","restored":4}`))
	f.Add([]byte(`{"event":"checkpoint","pid":7,"call":4}`))
	f.Add([]byte(`{"event":"discarded"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := decodeEvent(in)
		if err == nil && e.Event == "died" {
			describe(&e)
		}
	})
}

func TestDecodeReplyRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"rubbish":        `{{`,
		"another event":  `{"event":"hello"}`,
		"another status": `{"event":"result","status":"fine"}`,
		"a deep value":   `{"event":"result","status":"ok","output":` + string(bytes.Repeat([]byte("["), 200)) + string(bytes.Repeat([]byte("]"), 200)) + `}`,
		"not UTF-8":      "{\"event\":\"result\",\"status\":\"ok\",\"output\":\"\xff\"}",
		"a large value":  `{"event":"result","status":"ok","output":"` + strings.Repeat("x", 2<<20) + `"}`,
	} {
		if _, err := decodeReply([]byte(in)); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHalfSurrogatesBecomeReplacementRunes(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`:              `"plain"`,
		`"\ud83c\udf78"`:       `"\ud83c\udf78"`,
		`"\uD83C"`:             `"\ufffd"`,
		`"a\udf78b"`:           `"a\ufffdb"`,
		`"\ud83c\ud83c\udf78"`: `"\ufffd\ud83c\udf78"`,
		`"\\ud83c"`:            `"\\ud83c"`, // a backslash, and text
	} {
		if got := string(wholeSurrogates([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
