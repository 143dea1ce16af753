package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

func TestCaptureKeepsHeadAndTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		half := 1 + rng.IntN(20)
		c := newCapture(2 * half)
		var all []byte
		for range rng.IntN(8) {
			p := []byte(strings.Repeat("abcdefghijklmnopqrstuvwxyz", 4)[:rng.IntN(60)])
			c.write(p)
			all = append(all, p...)
		}
		text, count := c.take()
		want := string(all)
		if len(all) > 2*half {
			want = fmt.Sprintf("%s\n… [%d bytes left out; not kept: write long output to a file] …\n%s", all[:half], len(all)-2*half, all[len(all)-half:])
		}
		if text != want || count.Produced != int64(len(all)) || count.Kept != int64(min(len(all), 2*half)) {
			t.Fatalf("limit %d, %d bytes produced: %q, %+v; want %q", 2*half, len(all), text, count, want)
		}
		if again, count := c.take(); again != "" || count.Produced != 0 {
			t.Fatalf("taken twice: %q", again)
		}
	}
}

func TestCaptureCutsBetweenRunes(t *testing.T) {
	for limit := 8; limit < 24; limit++ {
		c := newCapture(limit)
		c.write([]byte(strings.Repeat("é€𝄞", 20)))
		text, count := c.take()
		if strings.ContainsRune(text, utf8.RuneError) || !count.Cut() {
			t.Errorf("limit %d: %q", limit, text)
		}
	}
}

func TestInvalidBytesBecomeReplacementRunes(t *testing.T) {
	c := newCapture(100)
	c.write([]byte("a\xff\xfe\x80b\x00\x1b[31m"))
	if text, _ := c.take(); text != "a\uFFFD\uFFFD\uFFFDb\x00\x1b[31m" {
		t.Errorf("%q", text)
	}
}

// overflow is an Overflow that keeps the first room bytes.
type overflow struct {
	bytes.Buffer
	room   int
	closed int
}

func (o *overflow) Write(p []byte) { o.Buffer.Write(p[:min(len(p), o.room-o.Len())]) }

func (o *overflow) Close() (string, int64) {
	o.closed++
	if o.Len() == 0 {
		return "", 0
	}
	return "sandbox://s/outputs/1", int64(o.Len())
}

// What goes over holds every byte, the first ones too, however they came in pieces.
func TestOverflowIsWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		half := 1 + rng.IntN(20)
		c := newCapture(2 * half)
		var over *overflow
		room := []int{1 << 20, 1 << 20, 10, 0}[rng.IntN(4)]
		c.spill = func() Overflow { over = &overflow{room: room}; return over }
		for range 3 { // streams, one after the other
			over = nil
			var all []byte
			for range rng.IntN(8) {
				p := make([]byte, rng.IntN(60))
				for i := range p {
					p[i] = byte('a' + rng.IntN(26))
				}
				c.write(p)
				all = append(all, p...)
			}
			text, count := c.take()
			switch {
			case len(all) <= 2*half:
				if over != nil || count.Rest != "" || text != string(all) {
					t.Fatalf("%d of %d bytes went over: %q", len(all), 2*half, text)
				}
				continue
			case over == nil || over.closed != 1:
				t.Fatalf("%d of %d bytes: %+v", len(all), 2*half, over)
			case !bytes.Equal(over.Bytes(), all[:min(len(all), room)]):
				t.Fatalf("%q\nwant\n%q", over.Bytes(), all)
			}
			want := fmt.Sprintf("%d bytes left out; all %d are in the resource sandbox://s/outputs/1] …", len(all)-2*half, len(all))
			switch {
			case room == 0:
				want = fmt.Sprintf("%d bytes left out; they could not be kept] …", len(all)-2*half)
			case room < len(all):
				want = fmt.Sprintf("%d bytes left out; the first %d of %d are in the resource sandbox://s/outputs/1] …", len(all)-2*half, room, len(all))
			}
			if count.Held != int64(min(room, len(all))) {
				t.Fatalf("%+v of %d bytes, with room for %d", count, len(all), room)
			}
			if !strings.Contains(text, want) || (count.Rest == "") != (room == 0) {
				t.Fatalf("%q, %+v; want %q", text, count, want)
			}
		}
	}
}

// Bytes that are no text take more room as text: head, tail and mark together stay near
// the limit all the same.
func TestCaptureOfBytes(t *testing.T) {
	for name, piece := range map[string]string{"invalid": "\xff", "runes": "é€𝄞", "mixed": "a\xe2\x82€", "text": "a"} {
		c := newCapture(1000)
		c.write([]byte(strings.Repeat(piece, 10_000)))
		text, count := c.take()
		if len(text) > 1100 || len(text) < 900 || count.Kept > 1000 || !strings.Contains(text, fmt.Sprintf("… [%d bytes left out; not kept: write long output to a file] …", count.Produced-count.Kept)) {
			t.Errorf("%s: %d bytes of text, %+v", name, len(text), count)
		}
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("héllo\xff"), uint8(4), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, limit, piece uint8) {
		c := newCapture(int(limit))
		for p := range bytesChunks(in, int(piece)+1) {
			c.write(p)
		}
		text, count := c.take()
		if !utf8.ValidString(text) || count.Produced != int64(len(in)) || count.Kept > count.Produced {
			t.Fatalf("%q, %+v", text, count)
		}
	})
}

func bytesChunks(in []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(in) > 0 {
			n := min(size, len(in))
			if !yield(in[:n]) {
				return
			}
			in = in[n:]
		}
	}
}

// pipes makes an Output and the writing ends of its pipes.
func pipes(t *testing.T, limit int) (*Output, *os.File, *os.File) {
	t.Helper()
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := NewOutput(outR, errR, limit)
	t.Cleanup(func() {
		outW.Close()
		errW.Close()
		o.Close()
	})
	return o, outW, errW
}

func TestOutputHasAllThatWasWrittenBeforeItsEnd(t *testing.T) {
	o, stdout, stderr := pipes(t, 1<<20)
	for i := range 500 {
		o.Begin(nil)
		want := strings.Repeat("x", 1+i*100%60000)
		if _, err := stdout.WriteString(want); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(stderr, "err %d", i)
		var res sandbox.Result
		o.End(&res)
		if res.Stdout != want || res.Stderr != fmt.Sprintf("err %d", i) {
			t.Fatalf("round %d: %d bytes of %d, stderr %q", i, len(res.Stdout), len(want), res.Stderr)
		}
	}
}

func TestOutputEndsThoughABackgroundProcessWritesForever(t *testing.T) {
	o, stdout, _ := pipes(t, 1000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		block := bytes.Repeat([]byte("y"), 64<<10)
		for {
			select {
			case <-stop:
				return
			default:
				stdout.Write(block)
			}
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			o.Begin(nil)
			var res sandbox.Result
			o.End(&res)
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("a call never ended")
	}
	close(stop)
	wg.Wait()
}

func TestProgressShowsEveryPieceAndStops(t *testing.T) {
	o, stdout, _ := pipes(t, 1000)
	var seen strings.Builder
	o.Begin(func(s sandbox.Stream, p []byte) {
		if s == sandbox.Stdout {
			seen.Write(p)
		}
	})
	for i := range 100 {
		fmt.Fprintln(stdout, i)
	}
	var res sandbox.Result
	o.End(&res)
	if seen.String() != res.Stdout || !strings.HasSuffix(res.Stdout, "99\n") {
		t.Errorf("shown %q, kept %q", seen.String(), res.Stdout)
	}
	stdout.WriteString("later")
	if n := o.Begin(nil); n > 5 {
		t.Errorf("%d bytes before the call", n)
	}
	o.End(&res)
	if res.Stdout != "later" || strings.Contains(seen.String(), "later") {
		t.Errorf("%q, shown %q", res.Stdout, seen.String())
	}
}
