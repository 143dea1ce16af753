package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

// What the guest's side never sends ends the interpreter; the tools hear nothing of it.
func TestForgedExternalFrames(t *testing.T) {
	const call = `{"op":"call","cell":1,"id":1,"taken":0,"server":"demo","tool":"echo","size":2}` + "\n{}"
	for name, frames := range map[string][]string{
		"no head":                          {"{}"},
		"rubbish":                          {"}{\n"},
		"another op":                       {`{"op":"run","cell":1,"id":1}` + "\n"},
		"another cell":                     {strings.Replace(call, `"cell":1`, `"cell":2`, 1)},
		"no server":                        {strings.Replace(call, `"demo"`, `""`, 1)},
		"a long name":                      {strings.Replace(call, `echo`, strings.Repeat("x", 201), 1)},
		"a negative size":                  {strings.Replace(call, `"size":2`, `"size":-1`, 1)},
		"100 MB announced":                 {strings.Replace(call, `"size":2`, `"size":100000000`, 1)},
		"more than announced":              {call + "{}"},
		"arguments of no call":             {`{"op":"more","cell":1,"id":9}` + "\n{}"},
		"arguments after arguments":        {call, `{"op":"more","cell":1,"id":1}` + "\n{}"},
		"no object":                        {strings.Replace(call, "{}", "[]", 1)},
		"no JSON":                          {strings.Replace(call, "\n{}", "\n{]", 1)},
		"not UTF-8":                        {strings.Replace(strings.Replace(call, `"size":2`, `"size":8`, 1), "\n{}", "\n{\"\xff\": 1}", 1)},
		"an id twice":                      {call, call},
		"answers taken that nobody sent":   {`{"op":"taken","cell":1,"id":0,"taken":5}` + "\n"},
		"a negative count":                 {`{"op":"taken","cell":1,"id":0,"taken":-5}` + "\n"},
		"more calls than are allowed":      {call, strings.Replace(call, `"id":1`, `"id":2`, 1), strings.Replace(call, `"id":1`, `"id":3`, 1)},
		"a flood that calls nothing":       slices.Repeat([]string{`{"op":"cancel","cell":1,"id":7}` + "\n"}, 400),
		"a frame longer than a pipe takes": {call + strings.Repeat(" ", 4096)},
	} {
		t.Run(name, func(t *testing.T) {
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				p.until("run")
				for _, f := range frames {
					p.say(kindExternal, "%s", f)
				}
				for p.next0() {
				}
			})
			tools := demo(nil)
			res, err := client.Run(t.Context(), sandbox.Request{Code: "1", Timeout: time.Minute, Externals: tools, ExternalsLimits: sandbox.ExternalsLimits{Calls: 2}})
			if err != nil || res.Status != sandbox.StatusCrash || !errors.Is(client.Err(), errFrame) {
				t.Errorf("%s %q, %v; the client: %v", res.Status, res.Error, err, client.Err())
			}
		})
	}
}

// next0 passes over any frame; false at the end.
func (p *peer) next0() bool {
	_, _, err := readFrame(p.in)
	return err == nil
}

func TestExternalsNobodyAllows(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		p.until("run")
		p.say(kindExternal, "%s", `{"op":"list","cell":1,"id":1,"server":"demo"}`+"\n")
		p.next0()
	})
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.Status != sandbox.StatusCrash || !strings.Contains(res.Error, "that nobody allows") {
		t.Errorf("%+v, %v", res, err)
	}
}

// Limits that make no sense are the caller's fault, before anything runs.
func TestExternalsLimits(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) { p.worker(); p.next0() })
	_, err := client.Run(t.Context(), sandbox.Request{Code: "1", Externals: demo(nil), ExternalsLimits: sandbox.ExternalsLimits{Calls: -1, Bytes: 5}})
	var fault *sandbox.Error
	if !errors.As(err, &fault) || fault.Status != sandbox.StatusInvalid || !strings.Contains(err.Error(), "-1") || !strings.Contains(err.Error(), "least that works") {
		t.Error(err)
	}
}

// A function that does not heed its context is left behind, and the call that it
// belongs to ends all the same.
func TestExternalThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tools := sandbox.Functions{"demo": {"echo": {Call: func(context.Context, json.RawMessage) (any, error) {
			<-release
			return nil, nil
		}}}}
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			id := p.until("run")["id"]
			p.say(kindExternal, "%s", `{"op":"call","cell":1,"id":1,"server":"demo","tool":"echo","size":2}`+"\n{}")
			synctest.Wait()
			p.reply(id, `"status":"ok"`)
			p.next0()
		})
		begun := time.Now()
		res, err := client.Run(t.Context(), sandbox.Request{Code: "1", Externals: tools})
		if took := time.Since(begun); err != nil || !res.Success() || took != externalGrace || len(res.Calls) != 1 || res.Calls[0].OK || res.Calls[0].Name != "demo.echo" {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		close(release)
	})
}

// Code that waits for a tool is stopped at its limit, or when its caller goes; the tool
// hears of it at once, and the variables stay.
func TestStopCancelsExternals(t *testing.T) {
	client := interpreter(t, "python3")
	hangs := make(chan string, 10)
	tools := demo(hangs)
	cell{code: "x = 5", calls: ""}.run(t, client, sandbox.Request{Externals: tools})

	res, err := client.Run(t.Context(), sandbox.Request{Code: "externals.demo.hang()", Timeout: 300 * time.Millisecond, Externals: tools})
	if err != nil || res.Status != sandbox.StatusTimeout || res.State != sandbox.StateKept || len(res.Calls) != 1 || res.Calls[0].OK || res.Calls[0].Duration <= 0 {
		t.Errorf("at the limit: %+v, %v", res, err)
	}
	for _, want := range []string{"called", "cancelled"} {
		if got := <-hangs; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hangs
		cancel()
	}()
	res, err = client.Run(ctx, sandbox.Request{Code: "import asyncio\nawait asyncio.gather(externals.aio.demo.hang(), asyncio.sleep(60))", Externals: tools})
	if !errors.Is(err, context.Canceled) || res.Status != sandbox.StatusCancelled || res.State != sandbox.StateKept || len(res.Calls) == 0 || res.Calls[0].OK {
		t.Errorf("cancelled: %+v, %v", res, err)
	}
	if got := <-hangs; got != "cancelled" {
		t.Error(got)
	}
	// What catches the interrupt and asks again is refused.
	again := "try:\n    externals.demo.hang()\nexcept KeyboardInterrupt:\n    try:\n        externals.demo.echo(1)\n    except ToolError as e:\n        print(e.kind)\n        raise"
	res, err = client.Run(t.Context(), sandbox.Request{Code: again, Timeout: 300 * time.Millisecond, Externals: tools})
	if err != nil || res.Status != sandbox.StatusTimeout || res.State != sandbox.StateKept || !strings.Contains(res.Error, "interrupted") {
		t.Errorf("again: %+v, %v", res, err)
	}
	cell{code: "x + externals.demo.echo(2)['n']", output: "7", calls: "demo.echo"}.run(t, client, sandbox.Request{Externals: tools})
}

// The interpreter that ends while it waits takes its calls with it; the one that takes over calls anew.
func TestTakeoverCancelsExternals(t *testing.T) {
	client := interpreter(t, "python3", "--checkpoint", "always")
	hangs := make(chan string, 10)
	tools := demo(hangs)
	cell{code: "gh = externals.demo\nx = gh.echo(4)['n']", calls: "demo.echo"}.run(t, client, sandbox.Request{Externals: tools})
	code := "import os, threading\nthreading.Thread(target=externals.demo.hang).start()\nexternals.demo.hung()\nos._exit(3)"
	res, err := client.Run(t.Context(), sandbox.Request{Code: code, Externals: tools})
	if err != nil || res.Status != sandbox.StatusCrash || res.State != sandbox.StateRestored || len(res.Calls) != 2 || res.Calls[0].OK {
		t.Errorf("%+v, %v", res, err)
	}
	if got := <-hangs; got != "cancelled" {
		t.Error(got)
	}
	cell{code: "import asyncio\n[x, gh.echo(5)['n'], (await externals.aio.demo.echo(6))['n']]", output: "[4,5,6]", calls: "demo.echo demo.echo"}.run(t, client, sandbox.Request{Externals: tools})
}

// Answers that the guest does not read are not heaped up: they wait here.
func TestExternalAnswersThatNobodyReads(t *testing.T) {
	const asked = 9
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		id := p.until("run")["id"]
		for i := range asked {
			p.say(kindExternal, `{"op":"call","cell":1,"id":%d,"taken":0,"server":"demo","tool":"large","size":2}`+"\n{}", i+1)
		}
		answers, sent, told := 0, 0, 0
		for answers < asked {
			kind, payload, err := readFrame(p.in)
			if err != nil {
				t.Error(err)
				return
			}
			_, body, _ := strings.Cut(string(payload), "\n")
			answers, sent = answers+1, sent+len(body)
			if kind != kindAnswer || sent-told > externalWindow+2<<20 {
				t.Errorf("%d bytes were sent and %d were taken", sent, told)
			}
			if sent-told > externalWindow {
				told = sent
				p.say(kindExternal, `{"op":"taken","cell":1,"id":0,"taken":%d}`+"\n", told)
			}
		}
		p.reply(id, `"status":"ok"`)
		p.next0()
	})
	res, err := client.Run(t.Context(), sandbox.Request{Code: "1", Externals: demo(nil)})
	if err != nil || !res.Success() || len(res.Calls) != asked {
		t.Errorf("%+v, %v", res, err)
	}
}

// The guest says what it has taken, so that as much as is allowed gets through.
func TestExternalBytes(t *testing.T) {
	client := interpreter(t, "python3")
	code := "n = 0\nk = ''\nfor i in range(9):\n    try:\n        n += len(externals.demo.large())\n    except ToolError as e:\n        k = e.kind\nn >> 18, k"
	cell{code: code, output: `[21,"denied"]`, calls: strings.Repeat("demo.large ", 7) + "demo.large! demo.large!"}.
		run(t, client, sandbox.Request{Externals: demo(nil), ExternalsLimits: sandbox.ExternalsLimits{Bytes: 15 << 19}})
	if err := client.Err(); err != nil {
		t.Error(err)
	}
}

// What an upstream gives that no guest should be handed becomes a fault.
func TestExternalResultsThatCantBe(t *testing.T) {
	for name, r := range map[string]sandbox.ExternalResult{
		"too large":   {Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalData, Data: make([]byte, 7<<20)}}},
		"no JSON":     {Value: json.RawMessage("{")},
		"deep":        {Value: json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200))},
		"two at once": {Value: json.RawMessage("1 2")},
	} {
		if _, err := encodeResult(r); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	body, err := encodeResult(sandbox.ExternalResult{Value: json.RawMessage("\"\xff\""), Content: []sandbox.ExternalContent{{Kind: sandbox.ExternalText, Text: "\xff<"}}})
	if err != nil || string(body) != "{\"value\":\"\uFFFD\",\"content\":[{\"kind\":\"text\",\"text\":\"\\ufffd<\"}]}" {
		t.Errorf("%s, %v", body, err)
	}
	tools, err := encodeTools([]sandbox.ExternalTool{{Name: "a", Input: json.RawMessage("{")}})
	if err != nil || string(tools) != `{"tools":[{"name":"a"}]}` {
		t.Errorf("%s, %v", tools, err)
	}
}

func FuzzDecodeExternal(f *testing.F) {
	f.Add([]byte(`{"op":"call","cell":1,"id":1,"taken":0,"server":"demo","tool":"echo","size":2}` + "\n{}"))
	f.Add([]byte(`{"op":"more","cell":1,"id":1}` + "\nx"))
	f.Add([]byte(`{"op":"taken","cell":1,"id":0,"taken":5}` + "\n"))
	f.Add([]byte(`{"op":"list","cell":1,"id":3,"server":"demo"}` + "\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, data, err := decodeExternal(in)
		if err == nil && (h.Size < 0 || h.Size > sandbox.MaxExternalArguments || len(h.Server) > sandbox.MaxExternalName || len(data) > len(in)) {
			t.Fatalf("beyond its bounds: %+v", h)
		}
		e := &externals{cell: 1, limits: sandbox.ExternalsLimits{Calls: 3, Bytes: 1 << 20}, pending: map[uint64]*external{}, moved: make(chan struct{}), running: make(chan struct{}, 1),
			done: make(chan struct{}), to: sandbox.Functions{}, send: func(byte, []byte) error { return nil }, broken: func(error) {}}
		e.clock.limit = time.Minute
		e.ctx, e.cancel = context.WithCancelCause(context.Background())
		if err == nil {
			_ = e.take(h, data)
		}
		e.close()
	})
}

// BenchmarkExternalCall compares a call from Python with the function called directly.
func BenchmarkExternalCall(b *testing.B) {
	tools := demo(nil)
	arguments := json.RawMessage(`{"n":1}`)
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			if _, err := tools.Call(b.Context(), "demo", "echo", arguments); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("from Python", func(b *testing.B) {
		client := interpreter(b, "python3")
		code := fmt.Sprintf("import time, statistics\nt = []\nfor i in range(%d):\n    a = time.perf_counter_ns()\n    externals.demo.echo(n=1)\n    t.append(time.perf_counter_ns() - a)\nstatistics.median(t)", b.N)
		res, err := client.Run(b.Context(), sandbox.Request{Code: code, Timeout: time.Hour, Externals: tools, ExternalsLimits: sandbox.ExternalsLimits{Calls: b.N}})
		if err != nil || !res.Success() {
			b.Fatalf("%+v, %v", res.Error, err)
		}
		var median float64
		if err := json.Unmarshal(res.Output, &median); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(median/1e3, "µs/median")
	})
}

// An interrupt may come between any two lines of the kernel's own: no byte of the
// channel is lost by it, and no answer goes to another call.
func TestInterruptStormAmongExternals(t *testing.T) {
	client := interpreter(t, "python3")
	code := `import os, signal, threading, time
begun, right, hit = False, 0, 0
def storm():
    while not begun: time.sleep(0.001)
    while right < 300:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.0007)
others = []
def beside():
    for i in range(300):
        others.append(externals.demo.echo(n=-i)['n'] == -i)
externals.demo.echo(0)
threads = [threading.Thread(target=f) for f in (storm, beside)]
for t in threads: t.start()
while right < 300 and hit < 100000:
    try:
        begun = True
        right += externals.demo.echo(n=right)['n'] == right
    except KeyboardInterrupt:
        hit += 1
while True:
    try:
        for t in threads: t.join()
        break
    except KeyboardInterrupt:
        pass
`
	// A storm's last signal may still be under way: it may end this call, and no more.
	res, err := client.Run(t.Context(), sandbox.Request{Code: code, Timeout: time.Minute, Externals: demo(nil), ExternalsLimits: sandbox.ExternalsLimits{Calls: 200_000}})
	t.Logf("%s %s, %d calls", res.Status, res.Error, len(res.Calls))
	if err != nil || res.State != sandbox.StateNew {
		t.Fatalf("%+v, %v", res, err)
	}
	cell{code: "[right, hit > 0, len(others), all(others), externals.demo.echo(5)['n']]", output: "[300,true,300,true,5]", calls: "demo.echo"}.run(t, client, sandbox.Request{Externals: demo(nil)})
}
