package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// Trap F: the end of input cancels nothing that is answered in time.
func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.send(call(1, "sleep 1s"))
		if _, err := io.WriteString(c.in, callNew(2, "print unterminated")); err != nil {
			t.Fatal(err)
		}
		c.in.Close()
		c.expect("2 unterminated", "1 (no output)")
		c.end()
	})
}

func TestEndOfInputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		start := time.Now()
		c.send(call(1, "sleep 60s"), call(2, "print never"))
		c.in.Close()
		for range 2 {
			if got := c.next(); !strings.Contains(got, "error (cancelled, exit code 130)") {
				t.Error(got)
			}
		}
		c.end()
		if d := time.Since(start); d != eofHold {
			t.Errorf("took %v", d)
		}
	})
}

// Trap G: progress comes before the result it belongs to, also the last of it,
// and keeps a silent call alive.
func TestProgressComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.send(hello)
		c.expect("0")
		c.send(call(1, "progress"), call(2, "sleep 11s"))
		c.expect("progress step 0", "progress step 1", "progress step 2", "1 (no output)",
			"progress 5 s elapsed", "progress 10 s elapsed", "2 (no output)")
		c.end()
	})
}

// Trap H: a call can be cancelled while it runs, while it waits for a place,
// while it waits for its session's turn, and right after it was sent. It gets
// no answer, and the others are not disturbed.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 1)
		c.send(call(1, "sleep 60s"))
		synctest.Wait()
		c.send(callNew(2, "print waits for a place"), call(3, "print waits for its turn"), call("four", "print last"))
		synctest.Wait()
		c.send(fmt.Sprintf(cancelled, 2), fmt.Sprintf(cancelled, 3), fmt.Sprintf(cancelled, 99), `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
		c.expect("5")
		c.send(fmt.Sprintf(cancelled, 1))
		c.expect(`"four" last`)
		c.send(callNew(6, "sleep 60s"), fmt.Sprintf(cancelled, 6), call(7, "print on"))
		c.expect("7 on")
		for _, run := range c.fake.Events(sandboxtest.EventRun) {
			if strings.Contains(run.Request.Code, "waits") {
				t.Errorf("ran: %s", run.Request.Code)
			}
		}
		c.end()
	})
}

// More calls than any pool has workers: all can be cancelled, and a ping is
// answered meanwhile.
func TestManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 2)
		for i := range 300 {
			c.send(call(i, "sleep 60s"))
		}
		c.send(`{"jsonrpc":"2.0","id":1000,"method":"ping"}`)
		c.expect("1000")
		for i := range 300 {
			c.send(fmt.Sprintf(cancelled, i))
		}
		c.send(call(1001, "print done"))
		c.expect("1001 done")
		c.end()
	})
}

// Calls that a client sends without waiting run in the order they were sent,
// also past one that was cancelled.
func TestOrder(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, 0)
			c.send(call(0, "sleep 1s"))
			var want []string
			for i := range 30 {
				c.send(call(i, fmt.Sprint("print ", i)))
				if i%3 == 1 {
					c.send(fmt.Sprintf(cancelled, i))
				} else {
					want = append(want, fmt.Sprint("print ", i))
				}
			}
			c.expect("0 (no output)")
			for range want {
				c.next()
			}
			var got []string
			for _, run := range c.fake.Events(sandboxtest.EventRun)[1:] {
				got = append(got, run.Request.Code)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			c.end()
			c.server.turns.mu.Lock()
			defer c.server.turns.mu.Unlock()
			if n := len(c.server.turns.last); n != 0 {
				t.Errorf("%d turns are left", n)
			}
		})
	}
}

// Calls for the connection's own session stand in one line, whether they name
// it or not.
func TestOrderByName(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, 0)
			own := func(code string) string {
				c.send(call(0, code))
				if !c.out.Scan() {
					t.Fatal("no answer")
				}
				_, after, _ := strings.Cut(c.out.Text(), `"session_id":"`)
				id, _, _ := strings.Cut(after, `"`)
				return id
			}
			id := own("print first")
			if again := own("print second"); again != id || id == "" {
				t.Fatalf("session %q, then %q", id, again)
			}
			var want []string
			pipelined := func(n int) {
				c.send(call(n, "sleep 1s"))
				for i := range 40 {
					next := call(n+1+i, fmt.Sprint("print ", i))
					if i%2 == 1 {
						next = strings.Replace(next, `"code"`, `"session_id":"`+id+`","code"`, 1)
					}
					c.send(next)
				}
				for range 41 {
					c.next()
				}
				want = append(want, "sleep 1s")
				for i := range 40 {
					want = append(want, fmt.Sprint("print ", i))
				}
			}
			before := len(c.fake.Events(sandboxtest.EventRun))
			pipelined(1)
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reset_session","arguments":{"close":true}}}`)
			c.next()
			old := id
			if id = own("print afresh"); id == old {
				t.Fatal("a closed session goes on")
			}
			var got []string
			for _, run := range c.fake.Events(sandboxtest.EventRun)[before:] {
				got = append(got, run.Request.Code)
			}
			if d := cmp.Diff(append(want, "print afresh"), got); d != "" {
				t.Fatal(d)
			}
			before, want = len(c.fake.Events(sandboxtest.EventRun)), nil
			pipelined(100)
			got = nil
			for _, run := range c.fake.Events(sandboxtest.EventRun)[before:] {
				got = append(got, run.Request.Code)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
			c.end()
		})
	}
}

// A call that waited for its turn when its session was closed, or its client
// went, is told that it did not run.
func TestQueuedDidNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.send(call(1, "sleep 60s"), call(2, "print never"))
		c.in.Close()
		for range 2 {
			if !c.out.Scan() {
				t.Fatal("no answer")
			}
			got := c.out.Text()
			if second := strings.Contains(got, `"id":2`); second != strings.Contains(got, "it did not run") {
				t.Errorf("%s", got)
			}
		}
		c.end()
	})
}

// A call that hangs does not keep its session from being closed.
func TestCloseOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.send(call(1, "sleep 60s"))
		synctest.Wait()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reset_session","arguments":{"close":true}}}`)
		got := []string{c.next(), c.next()}
		if got[0] > got[1] {
			got[0], got[1] = got[1], got[0]
		}
		if !strings.HasPrefix(got[0], "1 error (cancelled") || got[1] != "2 note: the session is closed" {
			t.Errorf("%q", got)
		}
		c.send(call(3, "print fresh"))
		c.expect("3 fresh")
		c.end()
	})
}

// Trap I: two servers in one process do not share a client.
func TestTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newClient(t, 0), newClient(t, 0)
		a.send(hello)
		b.send(hello)
		a.expect("0")
		b.expect("0")
		a.send(call(1, "progress"))
		b.send(call(1, "sleep 1s"), fmt.Sprintf(cancelled, 2))
		a.expect("progress step 0", "progress step 1", "progress step 2", "1 (no output)")
		b.expect("1 (no output)")
		a.end()
		b.end()
	})
}

// What no client should send is answered, and the server goes on.
func TestBrokenLines(t *testing.T) {
	t.Parallel()
	c := newClient(t, 0)
	huge := strings.Repeat("x", maxLine)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"` + huge + `"}}}`)
	c.expect("1 error the message is longer than 16 MiB")
	c.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"execute_python","arguments":{"code":"` + huge + `"}},"id":"two"}`)
	c.expect(`"two" error the message is longer than 16 MiB`)
	c.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"id":3,"code":"` + huge + `"}}`)
	c.expect("null error the message is longer than 16 MiB")
	for extra := range 40 { // the id may lie across two of the pieces that are read
		c.send(`{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("x", maxLine+extra) + `","id":"twelve"}`)
		c.expect(`"twelve" error the message is longer than 16 MiB`)
	}
	c.send("", " \t\r") // not worth an answer
	for _, l := range []string{"not JSON", "\x00", "{\"jsonrpc\"", `"text"`, "\xff"} {
		c.send(l)
		if got := c.next(); !strings.HasPrefix(got, "null error ") {
			t.Error(got)
		}
	}
	c.send(strings.Repeat("[", 100_000))
	if got := c.next(); !strings.HasPrefix(got, "null error Parse error") {
		t.Error(got)
	}
	c.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}` + "\r")
	c.expect("4")
	c.end()
}

// The longest code that is allowed gets through.
func TestLongestCode(t *testing.T) {
	c := newClient(t, 0)
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"print x%s","inputs":{"x":"%s"}}}}`,
		strings.Repeat(`\n`, sandbox.MaxCode-7), strings.Repeat("i", 1<<20)))
	c.expect("1 x")
	c.end()
}

// A client that is gone, or that does not read, ends the server in order.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.server.out.(*io.PipeWriter).CloseWithError(io.ErrClosedPipe)
		c.send(call(1, "print x"))
		if err := <-c.served; err == nil || !strings.Contains(err.Error(), "the client can't be written to") {
			t.Error(err)
		}
		c.in.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, 0)
		c.send("broken", "broken", call(1, "print x"))
		synctest.Wait() // the server waits for the first answer to be read
		c.stop()
		synctest.Wait()
		c.out = bufio.NewScanner(strings.NewReader(""))
		c.server.out.(*io.PipeWriter).CloseWithError(io.ErrClosedPipe)
		if err := <-c.served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		c.in.Close()
	})
}
