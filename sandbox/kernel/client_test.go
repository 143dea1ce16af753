package kernel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

// peer plays supervisor and worker by a script.
type peer struct {
	t   *testing.T
	in  *bufio.Reader
	out io.WriteCloser
}

// talk connects a Client to a script, which runs until it returns; then the
// channel ends.
func talk(t *testing.T, cfg Config, script func(p *peer)) *Client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	cfg.In, cfg.Out = inW, outR
	c := NewClient(cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer outW.Close()
		script(&peer{t: t, in: bufio.NewReader(inR), out: outW})
	}()
	t.Cleanup(func() {
		c.Close()
		inR.Close()
		<-done
	})
	return c
}

func (p *peer) say(kind byte, format string, args ...any) {
	if err := WriteFrame(p.out, kind, fmt.Appendf(nil, format, args...)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.t.Error(err)
	}
}

func (p *peer) worker() {
	p.say(kindSupervisor, `{"event":"worker","generation":1,"pid":2,"python":"3.11.7"}`)
}

func (p *peer) done(op string, seq float64) {
	p.say(kindSupervisor, `{"event":"done","op":%q,"seq":%d}`, op, int(seq))
}

// next is the next frame of the server; nil when it has closed the channel.
func (p *peer) next() map[string]any {
	_, payload, err := readFrame(p.in)
	if err != nil {
		return nil
	}
	var m map[string]any
	if err := json.Unmarshal(payload, &m); err != nil {
		p.t.Error(err)
	}
	return m
}

func (p *peer) reply(id any, rest string) {
	p.say(kindWorker, `{"event":"result","id":%q,"exit_code":0,%s}`, id, rest)
}

// until skips to a frame with this op, acknowledging others.
func (p *peer) until(op string) map[string]any {
	for {
		m := p.next()
		if m == nil || m["op"] == op {
			return m
		}
	}
}

func req(timeout time.Duration) sandbox.Request {
	return sandbox.Request{Code: "1", Timeout: timeout}
}

// What the sandbox refuses is explained in the server's words, never in the worker's.
func TestHints(t *testing.T) {
	for hint, want := range map[string]string{"network": "E\n\nnone", "path": "E", "other": "E", "": "E"} {
		client := talk(t, Config{Hints: map[string]string{"network": "none"}}, func(p *peer) {
			p.worker()
			p.reply(p.until("run")["id"], fmt.Sprintf(`"status":"error","error":"E","hint":%q`, hint))
			p.next()
		})
		if res, err := client.Run(t.Context(), req(0)); err != nil || res.Error != want {
			t.Errorf("%q: %q, %v", hint, res.Error, err)
		}
	}
}

func TestReplies(t *testing.T) {
	for name, c := range map[string]struct {
		reply  string
		status sandbox.Status
		exit   int
		output string
	}{
		"a value":       {`"status":"ok","output":[1]`, sandbox.StatusOK, 0, `[1]`},
		"no value":      {`"status":"ok","output":null`, sandbox.StatusOK, 0, ``},
		"an exception":  {`"status":"error","exit_code":1,"error":"E"`, sandbox.StatusError, 1, ``},
		"sys.exit(3)":   {`"status":"error","exit_code":3`, sandbox.StatusError, 3, ``},
		"MemoryError":   {`"status":"error","exit_code":1,"oom":true`, sandbox.StatusOOM, 137, ``},
		"own interrupt": {`"status":"interrupted","exit_code":1`, sandbox.StatusError, 1, ``},
	} {
		t.Run(name, func(t *testing.T) {
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				p.reply(p.until("run")["id"], c.reply)
				p.next()
			})
			res, err := client.Run(t.Context(), req(time.Minute))
			if err != nil || res.Status != c.status || res.ExitCode != c.exit || string(res.Output) != c.output || res.State != sandbox.StateNew {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

func TestDeaths(t *testing.T) {
	for name, c := range map[string]struct {
		died   string
		oom    bool
		status sandbox.Status
		exit   int
		text   string
	}{
		"os._exit(3)":                {`"exit":3`, false, sandbox.StatusCrash, 3, "code 3"},
		"a fault":                    {`"signal":11`, false, sandbox.StatusCrash, 139, "segmentation fault"},
		"SIGKILL":                    {`"signal":9`, false, sandbox.StatusCrash, 137, "signal 9"},
		"OOM":                        {`"signal":9`, true, sandbox.StatusOOM, 137, "memory limit of 2 GiB"},
		"a fault beside an OOM kill": {`"signal":11`, true, sandbox.StatusCrash, 139, "segmentation"},
	} {
		t.Run(name, func(t *testing.T) {
			client := talk(t, Config{Memory: 2 << 30, OOM: func() bool { return c.oom }}, func(p *peer) {
				p.worker()
				p.until("run")
				p.say(kindSupervisor, `{"event":"died","generation":1,%s,"asked":false}`, c.died)
				p.worker()
				p.reply(p.until("run")["id"], `"status":"ok"`)
				p.next()
			})
			res, err := client.Run(t.Context(), req(time.Minute))
			if err != nil || res.Status != c.status || res.ExitCode != c.exit || res.State != sandbox.StateLost || !strings.Contains(res.Error, c.text) {
				t.Errorf("%+v, %v", res, err)
			}
			if res, err = client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateNew || !res.Success() {
				t.Errorf("the next call: %+v, %v", res, err)
			}
		})
	}
}

func TestDeathBetweenCallsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.say(kindSupervisor, `{"event":"died","generation":1,"signal":11,"asked":false}`)
			p.worker()
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.next()
		})
		for i, want := range []sandbox.State{sandbox.StateNew, sandbox.StateLost, sandbox.StateKept} {
			res, err := client.Run(t.Context(), req(time.Minute))
			if err != nil || res.State != want || (len(res.Notes) > 0) != (want == sandbox.StateLost) {
				t.Errorf("call %d: %+v, %v; want %s", i, res, err, want)
			}
			synctest.Wait()
		}
	})
}

func TestLadder(t *testing.T) {
	interrupted := `"status":"interrupted","exit_code":1,"interrupted":true,"error":"KeyboardInterrupt"`
	for name, c := range map[string]struct {
		answers string // the step at which the code gives in
		took    time.Duration
		state   sandbox.State
	}{
		"obeys":            {"interrupt", 2 * time.Second, sandbox.StateNew},
		"obeys the second": {"escalate", 3 * time.Second, sandbox.StateNew},
		"never obeys":      {"kill", 4 * time.Second, sandbox.StateLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var steps []string
				client := talk(t, Config{}, func(p *peer) {
					p.worker()
					id := p.until("run")["id"]
					for {
						m := p.next()
						if m == nil {
							return
						}
						op := m["op"].(string)
						steps = append(steps, op)
						if op == "kill" {
							p.say(kindSupervisor, `{"event":"died","generation":1,"signal":9,"asked":true}`)
						} else if op == c.answers {
							p.reply(id, interrupted)
						}
						if seq, ok := m["seq"].(float64); ok {
							p.done(op, seq)
						}
					}
				})
				start := time.Now()
				res, err := client.Run(t.Context(), req(2*time.Second))
				if err != nil || res.Status != sandbox.StatusTimeout || res.ExitCode != 124 || res.State != c.state {
					t.Errorf("%+v, %v", res, err)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if last := steps[len(steps)-1]; (c.answers == "kill") != (last == "kill") || c.answers != "kill" && last != "sweep" {
					t.Errorf("steps: %q", steps)
				}
			})
		})
	}
}

func TestCancelInterrupts(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		id := p.until("run")["id"]
		p.until("interrupt")
		p.reply(id, `"status":"interrupted","interrupted":true`)
		p.done("sweep", p.until("sweep")["seq"].(float64))
		p.next()
	})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	res, err := client.Run(ctx, req(time.Minute))
	if !errors.Is(err, context.Canceled) || res.Status != sandbox.StatusCancelled || res.ExitCode != 130 || res.State != sandbox.StateNew {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestStopKillsAtOnce(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		p.until("run")
		seq := p.next()
		if seq["op"] != "kill" {
			t.Errorf("asked for %v first", seq["op"])
		}
		p.say(kindSupervisor, `{"event":"died","generation":1,"signal":9,"asked":true}`)
		p.done("kill", seq["seq"].(float64))
		p.next()
	})
	if client.Stop(StopReason{}) {
		t.Error("stopped a call that did not run")
	}
	go func() {
		for !client.Stop(StopReason{Status: sandbox.StatusOOM, Text: "Too much.", Kill: true}) {
			time.Sleep(time.Millisecond)
		}
	}()
	res, err := client.Run(t.Context(), req(time.Minute))
	if err != nil || res.Status != sandbox.StatusOOM || res.State != sandbox.StateLost || !strings.HasPrefix(res.Error, "Too much.") {
		t.Errorf("%+v, %v", res, err)
	}
}

// Whatever is not well-formed, or answers what nobody asked, ends the
// interpreter: it can only come from user code that found the channel.
func TestForgedFramesEndTheInterpreter(t *testing.T) {
	for name, forge := range map[string]func(p *peer){
		"another id":         func(p *peer) { p.reply("x", `"status":"ok"`) },
		"not JSON":           func(p *peer) { p.say(kindWorker, "hello") },
		"a strange kind":     func(p *peer) { p.say('Z', "{}") },
		"2 GiB announced":    func(p *peer) { p.out.Write([]byte{'W', 0x80, 0, 0, 0}) },
		"half a frame":       func(p *peer) { p.out.Write([]byte{'W', 0, 0, 0, 9, '{'}); p.out.Close() },
		"the channel ends":   func(p *peer) { p.out.Close() },
		"a death of nothing": func(p *peer) { p.say(kindSupervisor, `{"event":"died"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				p.until("run")
				forge(p)
				p.next()
			})
			res, err := client.Run(t.Context(), req(time.Minute))
			if err != nil || res.Status != sandbox.StatusCrash || res.State != sandbox.StateLost {
				t.Errorf("%+v, %v", res, err)
			}
			select {
			case <-client.Broken():
			default:
				t.Error("the client goes on after a forged frame")
			}
		})
	}
}

func TestAnEarlyForgedReplyIsFoundOut(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		id := p.until("run")["id"]
		p.reply(id, `"status":"ok","output":"forged"`)
		p.reply(id, `"status":"ok","output":"the real one"`)
		p.next()
	})
	if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-client.Broken():
	case <-time.After(30 * time.Second):
		t.Error("two replies to one request were accepted")
	}
}

func TestCloseDuringRun(t *testing.T) {
	started := make(chan struct{})
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		p.until("run")
		close(started)
		p.next()
	})
	go func() {
		<-started
		client.Close()
	}()
	res, err := client.Run(t.Context(), req(time.Minute))
	if !errors.Is(err, sandbox.ErrClosed) || res.Status != sandbox.StatusCancelled || res.State != sandbox.StateLost {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestInputsAreBoundedAndExact(t *testing.T) {
	payload, err := encodeRun("1", sandbox.Request{Code: "<&>", Inputs: map[string]any{"n": json.Number("123456789012345678901234567890"), "t": "<a>&"}}, nil)
	if err != nil || !strings.Contains(string(payload), `"t":"<a>&"`) || !strings.Contains(string(payload), `"n":123456789012345678901234567890`) || !strings.Contains(string(payload), "<&>") {
		t.Errorf("%s, %v", payload, err)
	}
	for name, inputs := range map[string]map[string]any{
		"too large": {"x": strings.Repeat("x", sandbox.MaxInputs)},
		"no JSON":   {"x": func() {}},
	} {
		var refused *sandbox.Error
		if _, err := encodeRun("1", sandbox.Request{Inputs: inputs}, nil); !errors.As(err, &refused) || refused.Status != sandbox.StatusInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A request that the worker refuses runs nothing: what the next result has to
// say of the past, it still says.
func TestRefusalLeavesTheTruthAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.say(kindSupervisor, `{"event":"died","generation":1,"signal":11,"asked":false}`)
			p.worker()
			p.say(kindWorker, `{"event":"refused","id":%q,"error":"too deep"}`, p.until("run")["id"])
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.next()
		})
		if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var refused *sandbox.Error
		if _, err := client.Run(t.Context(), sandbox.Request{Code: "1", Inputs: map[string]any{"x": strings.Repeat("x", sandbox.MaxInputs)}}); !errors.As(err, &refused) || refused.Status != sandbox.StatusInvalid {
			t.Errorf("refused by the server: %v", err)
		}
		if _, err := client.Run(t.Context(), req(time.Minute)); !errors.As(err, &refused) || refused.Status != sandbox.StatusInvalid || !strings.Contains(err.Error(), "too deep") {
			t.Errorf("refused by the worker: %v", err)
		}
		if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateLost {
			t.Errorf("after two refusals: %+v, %v; the variables were lost before them", res, err)
		}
	})
}

func TestWorkerThatDiesBeforeItIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			time.Sleep(time.Second)
			p.say(kindSupervisor, `{"event":"died","generation":1,"exit":1,"asked":false}`)
			time.Sleep(time.Second)
			p.worker()
			p.reply(p.until("run")["id"], `"status":"ok"`)
			p.next()
		})
		res, err := client.Run(t.Context(), req(time.Minute))
		if err != nil || res.State != sandbox.StateNew || res.Provisioning != 2*time.Second {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A kill of an earlier call's process says nothing of this one.
func TestOldOOMKillIsNotThisCalls(t *testing.T) {
	killed := true
	client := talk(t, Config{OOM: func() bool { k := killed; killed = false; return k }}, func(p *peer) {
		p.worker()
		p.until("run")
		p.say(kindSupervisor, `{"event":"died","generation":1,"signal":9,"asked":false}`)
		p.next()
	})
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.Status != sandbox.StatusCrash {
		t.Errorf("%+v, %v", res, err)
	}
}

// A supervisor that answers nothing any more can't hold a call beyond its time.
func TestStuckSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			for p.next() != nil { // reads, and does nothing
			}
		})
		start := time.Now()
		res, err := client.Run(t.Context(), req(time.Second))
		if took := time.Since(start); err != nil || res.Status != sandbox.StatusTimeout || res.State != sandbox.StateLost || took > 3500*time.Millisecond {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		if client.Err() == nil {
			t.Error("nobody is told that the wall has to be ended")
		}
	})
}
