package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

// memory is a Sink.
type memory struct {
	bytes.Buffer
	fails error
}

func (m *memory) Write(p []byte) (int, error) {
	if m.fails != nil {
		return 0, m.fails
	}
	return m.Buffer.Write(p)
}

func (m *memory) Rewind(size int64) error {
	m.Truncate(int(size))
	return m.fails
}

var someLimits = SaveLimits{Bytes: 100, Time: time.Minute}

func (p *peer) rewind(size uint64) {
	p.say(kindRewind, "%s", binary.BigEndian.AppendUint64(nil, size))
}

func TestSave(t *testing.T) {
	var sink memory
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		m := p.until("save")
		p.say(kindData, "kept")
		p.say(kindData, "and not")
		p.rewind(4)
		p.say(kindData, ", too")
		p.reply(m["id"], `"status":"ok","output":{"parts":[]},"notes":["not kept: g"]`)
		p.reply(p.until("run")["id"], `"status":"ok"`)
		p.next()
	})
	s, err := client.Save(t.Context(), &sink, someLimits)
	if err != nil || sink.String() != "kept, too" || string(s.Table) != `{"parts":[]}` || len(s.Notes) != 1 {
		t.Errorf("%q, %+v, %v", sink.String(), s, err)
	}
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateNew {
		t.Errorf("the first call after a save: %s, %v", res.State, err)
	}
}

func TestSaveThatFails(t *testing.T) {
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		script func(p *peer, id any)
		sink   memory
		want   string
		died   bool
	}{
		"unfit": {func(p *peer, id any) { p.reply(id, `"status":"error","error":"too much"`) }, memory{}, "too much", false},
		"death": {func(p *peer, _ any) {
			p.say(kindSupervisor, `{"event":"died","signal":11,"asked":false}`)
			p.worker()
		}, memory{}, "signal 11", true},
		"too much":      {func(p *peer, _ any) { p.say(kindData, "%s", strings.Repeat("x", 101)) }, memory{}, "more than 100", true},
		"rewind beyond": {func(p *peer, _ any) { p.rewind(1) }, memory{}, "can't be cut", true},
		"a pull":        {func(p *peer, _ any) { p.say(kindPull, "") }, memory{}, "nobody asked", true},
		"the disk": {func(p *peer, id any) {
			p.say(kindData, "x")
			p.until("interrupt")
			p.reply(id, `"status":"interrupted","interrupted":true`)
			p.done("sweep", p.until("sweep")["seq"].(float64))
		}, memory{fails: full}, "disk full", false},
	} {
		t.Run(name, func(t *testing.T) {
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				c.script(p, p.until("save")["id"])
				p.next()
			})
			_, err := client.Save(t.Context(), &c.sink, someLimits)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrDied) != c.died {
				t.Errorf("%v", err)
			}
		})
	}
}

// A call that comes meanwhile ends a save, politely.
func TestSaveIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			id := p.until("save")["id"]
			cancel()
			p.until("interrupt")
			time.Sleep(5 * time.Second) // in C, where no interrupt is heard
			p.reply(id, `"status":"interrupted","interrupted":true`)
			p.done("sweep", p.until("sweep")["seq"].(float64))
			p.next()
		})
		if _, err := client.Save(ctx, &memory{}, someLimits); !errors.Is(err, context.Canceled) || errors.Is(err, ErrDied) {
			t.Errorf("%v", err)
		}
	})
}

// What a fresh interpreter holds must not pass for what the one before it held.
func TestSaveAfterADeathThatNobodyWasToldOf(t *testing.T) {
	for name, restored := range map[string]string{"lost": "null", "restored": "1"} {
		t.Run(name, func(t *testing.T) {
			dead := make(chan struct{})
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				p.reply(p.until("run")["id"], `"status":"ok"`)
				p.say(kindSupervisor, `{"event":"died","signal":9,"asked":false,"standby":%t,"requests":1}`, restored != "null")
				p.say(kindSupervisor, `{"event":"worker","pid":3,"restored":%s}`, restored)
				close(dead)
				p.reply(p.until("save")["id"], `"status":"ok","output":{}`)
				p.reply(p.until("run")["id"], `"status":"ok"`)
				p.next()
			})
			if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
				t.Fatal(err)
			}
			<-dead
			for worker, _ := client.Processes(); worker != 3; worker, _ = client.Processes() {
				time.Sleep(time.Millisecond)
			}
			s, err := client.Save(t.Context(), &memory{}, someLimits)
			if errors.Is(err, ErrDied) != (name == "lost") || err == nil && !strings.Contains(strings.Join(s.Notes, ";"), "ended between the calls") {
				t.Errorf("%q, %v", s.Notes, err)
			}
			if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || string(res.State) != name || len(res.Notes) == 0 {
				t.Errorf("%s, %q, %v", res.State, res.Notes, err)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	data := strings.Repeat("0123456789", 30_000)
	var got bytes.Buffer
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		m := p.until("restore")
		if table, _ := m["table"].(map[string]any); table["x"] != 1.0 {
			t.Errorf("%v", m)
		}
		for ended := false; !ended; {
			p.say(kindPull, "")
			for i := 0; i < pullBatch && !ended; i++ {
				kind, payload, err := readFrame(p.in)
				if err != nil || kind != kindData {
					t.Errorf("%c, %v", kind, err)
				}
				got.Write(payload)
				ended = len(payload) == 0
			}
		}
		p.reply(m["id"], `"status":"ok","output":{"back":2,"names":3},"notes":["not restored: x"]`)
		p.reply(p.until("run")["id"], `"status":"ok"`)
		p.next()
	})
	r, err := client.Restore(t.Context(), RestoreRequest{Table: []byte(`{"x":1}`), From: strings.NewReader(data), Limit: time.Minute})
	if err != nil || r.Back != 2 || r.Names != 3 || len(r.Notes) != 1 || got.String() != data {
		t.Errorf("%+v, %v, %d bytes", r, err, got.Len())
	}
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateKept {
		t.Errorf("the first call after a restore: %s, %v", res.State, err)
	}
}

// Data comes in whatever order a worker likes: it is kept within its limit, or
// the interpreter is given up.
func FuzzTransfer(f *testing.F) {
	f.Add([]byte("D\x00\x00\x00\x03abcB\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01D\x00\x00\x00\x01x"))
	f.Add([]byte("P\x00\x00\x00\x00"))
	f.Add([]byte("N\x00\x00\x00\x05\x00\x00\x00\x01x"))
	f.Add([]byte("B\x00\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var sink memory
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			id := p.until("save")["id"]
			_, _ = p.out.Write(in)
			p.reply(id, `"status":"ok","output":{}`)
		})
		_, err := client.Save(context.Background(), &sink, someLimits)
		if sink.Len() > 100 {
			t.Fatalf("%d bytes, %v", sink.Len(), err)
		}
	})
}

// The two sides, without a wall.
func TestSnapshotOfRealInterpreters(t *testing.T) {
	for _, python := range pythons(t) {
		var sink memory
		first := pythonClient(t, python)
		runCode(t, first, "import random, math as m\nshared = [1]; a = {'s': shared}; b = (shared, m.pi); big = 'x' * 300_000\ngen = (i for i in a)")
		s, err := first.Save(t.Context(), &sink, SaveLimits{Bytes: 1 << 20, Time: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "gen") {
			t.Errorf("%q", s.Notes)
		}
		if res := runCode(t, first, "len(big)"); string(res.Output) != "300000" || res.State != sandbox.StateKept {
			t.Errorf("after a save: %s, %s", res.Output, res.State)
		}
		if _, err := first.Save(t.Context(), &memory{}, SaveLimits{Bytes: 1 << 10, Time: time.Minute}); err == nil || errors.Is(err, ErrDied) {
			t.Errorf("more than its limit was saved: %v", err)
		}
		second := pythonClient(t, python)
		r, err := second.Restore(t.Context(), RestoreRequest{Table: s.Table, From: &sink.Buffer, Limit: time.Minute})
		if err != nil || r.Back != r.Names {
			t.Fatalf("%+v, %v", r, err)
		}
		if res := runCode(t, second, "(a['s'] is b[0] is shared, len(big), m.pi == b[1], 'gen' in globals())"); string(res.Output) != "[true,300000,true,false]" || res.State != sandbox.StateKept {
			t.Errorf("after a restore: %s, %s, %s", res.Output, res.Error, res.State)
		}
		third := pythonClient(t, python)
		if r, err := third.Restore(t.Context(), RestoreRequest{Table: s.Table, From: strings.NewReader("not these"), Limit: time.Minute}); err == nil {
			t.Errorf("from nothing came %+v", r)
		}
		if _, err := third.Restore(t.Context(), RestoreRequest{Table: []byte(`[1]`), From: strings.NewReader(""), Limit: time.Minute}); err == nil {
			t.Error("a table that is none was read")
		}
	}
}

func runCode(t *testing.T, c *Client, code string) sandbox.Result {
	t.Helper()
	res, err := c.Run(t.Context(), sandbox.Request{Code: code})
	if err != nil || res.Status != sandbox.StatusOK {
		t.Fatalf("%s: %+v, %v", code, res, err)
	}
	return res
}

// pythonClient talks to an interpreter that is a plain child.
func pythonClient(t *testing.T, python string) *Client {
	t.Helper()
	guestIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, guestOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-I", "-S", "py/main.py", "--in", "3", "--out", "4")
	cmd.ExtraFiles = []*os.File{guestIn, guestOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guestIn.Close()
	guestOut.Close()
	c := NewClient(Config{In: in, Out: out})
	t.Cleanup(func() {
		c.Close()
		_ = cmd.Wait() // it ends with its channel
	})
	return c
}
