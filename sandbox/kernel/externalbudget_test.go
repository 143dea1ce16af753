package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

// Each external call has its time, and all of one call of the session have theirs together,
// which those side by side spend faster; when it is over, they end, and no other begins.
func TestExternalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tools := sandbox.Functions{"demo": {"wait": {Call: func(ctx context.Context, arguments json.RawMessage) (any, error) {
			var in struct{ Seconds int }
			if err := json.Unmarshal(arguments, &in); err != nil {
				return nil, err
			}
			select {
			case <-time.After(time.Duration(in.Seconds) * time.Second):
				return in.Seconds, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}}}
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			id := p.until("run")["id"]
			n, begun := 0, time.Now()
			ask := func(seconds int) {
				n++
				arguments := fmt.Sprintf(`{"seconds":%d}`, seconds)
				p.say(kindExternal, `{"op":"call","cell":1,"id":%d,"server":"demo","tool":"wait","size":%d}`+"\n%s", n, len(arguments), arguments)
			}
			answer := func(after int, part string) {
				t.Helper()
				_, payload, err := readFrame(p.in)
				if took := time.Since(begun).Round(time.Millisecond); err != nil || took != time.Duration(after)*time.Second || !strings.Contains(string(payload), part) {
					t.Errorf("after %v: %s, %v; want %s after %d s", took, payload, err, part, after)
				}
			}
			ask(4)
			answer(4, `"value":4`)
			ask(60)
			answer(11, `"fault":"late","text":"no answer within 7s"`)
			ask(1)
			ask(60)
			answer(12, `"value":1`) // together 13 seconds of the 18: the other one has five more
			answer(17, "have taken 18s together")
			ask(0)
			answer(17, `"fault":"denied"`)
			p.reply(id, `"status":"ok"`)
			p.next0()
		})
		res, err := client.Run(t.Context(), sandbox.Request{Code: "1", Externals: tools, ExternalsLimits: sandbox.ExternalsLimits{Time: 18 * time.Second, Timeout: 7 * time.Second}})
		if err != nil || !res.Success() || len(res.Calls) != 5 || !res.Calls[2].OK || res.Calls[1].OK || res.Calls[3].OK || res.Calls[4].OK {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// What a call announces beyond the budget is read, and not kept; nor are the arguments of
// calls that have ended.
func TestArgumentsAreNotHeapedUp(t *testing.T) {
	const size = 1 << 10
	sent := make(chan struct{}, 10)
	e := &externals{
		cell: 1, limits: sandbox.ExternalsLimits{Calls: 9, Bytes: 3 * size, Time: time.Minute, Timeout: time.Minute}, pending: map[uint64]*external{}, moved: make(chan struct{}),
		running: make(chan struct{}, 1), done: make(chan struct{}), broken: func(err error) { t.Error(err) },
		to:   sandbox.Functions{"demo": {"none": {Call: func(context.Context, json.RawMessage) (any, error) { return nil, nil }}}},
		send: func(byte, []byte) error { sent <- struct{}{}; return nil },
	}
	e.clock.limit = time.Minute
	e.ctx, e.cancel = context.WithCancelCause(t.Context())
	arguments := []byte(fmt.Sprintf("{%*s", size-1, "}"))
	for id := range uint64(5) {
		begin := externalHead{Op: "call", Cell: 1, ID: id + 1, Server: "demo", Tool: "none", Size: size}
		if err := e.take(begin, arguments[:size/2]); err != nil {
			t.Fatal(err)
		}
		if kept := len(e.pending[id+1].arguments); kept != size/2 && id < 2 || kept != 0 && id >= 2 {
			t.Errorf("call %d: %d bytes are kept", id+1, kept)
		}
		if err := e.take(externalHead{Op: "more", Cell: 1, ID: id + 1}, arguments[size/2:]); err != nil {
			t.Fatal(err)
		}
		<-sent
	}
	e.close()
	for i, x := range e.log {
		if x.arguments != nil || x.ok != (i < 2) { // whose answers are more than what is left
			t.Errorf("call %d: ok %v, %d bytes are kept", i+1, x.ok, len(x.arguments))
		}
	}
}
