package tools

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/sandbox"
)

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := startProgress(func(elapsed float64, message string) {
			got = append(got, fmt.Sprintf("%.1f %q", elapsed, message))
		})
		say := p.sink()
		say(sandbox.Stdout, []byte("a"))
		say(sandbox.Stderr, []byte("b\nc"))
		time.Sleep(150 * time.Millisecond) // "c" has no end of line yet
		say(sandbox.Stdout, []byte("d\n"))
		time.Sleep(100 * time.Millisecond)
		say(sandbox.Stdout, []byte("50%\xc3")) // half a rune
		time.Sleep(100 * time.Millisecond)
		time.Sleep(11 * time.Second) // silence
		say(sandbox.Stdout, []byte("not told: it is in the result"))
		p.stop()
		want := []string{`0.1 "ab\n"`, `0.2 "cd\n"`, `0.3 "50%"`, `5.3 "5 s elapsed"`, `10.3 "10 s elapsed"`}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

func TestProgressIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := startProgress(func(_ float64, message string) { got = append(got, message) })
		for range 1000 {
			p.sink()(sandbox.Stdout, []byte(strings.Repeat("x", 5000)+"\n"))
		}
		time.Sleep(time.Second)
		p.stop()
		if len(got) != 1 || len(got[0]) > progressPiece+3 || !strings.HasPrefix(got[0], "…x") {
			t.Errorf("%d messages, the first of %d bytes", len(got), len(got[0]))
		}
	})
}

// TestProgressSettles: the last notification has a head start over the result,
// and a call without any loses no time.
func TestProgressSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProgress(func(float64, string) {})
		p.sink()(sandbox.Stdout, []byte("x\n"))
		time.Sleep(progressPace)
		synctest.Wait()
		start := time.Now()
		p.stop()
		if d := time.Since(start); d != progressSettle {
			t.Errorf("stop took %v", d)
		}
		p = startProgress(func(float64, string) { t.Error("a short call told something") })
		p.sink()(sandbox.Stdout, []byte("x\n"))
		start = time.Now()
		p.stop()
		if d := time.Since(start); d != 0 {
			t.Errorf("stop took %v", d)
		}
	})
}
