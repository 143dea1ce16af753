package kernel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

func TestWarm(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		m := p.until("warm")
		if modules, ok := m["modules"].([]any); !ok || len(modules) != 1 || modules[0] != "numpy" {
			t.Errorf("asked for %v", m)
		}
		p.reply(m["id"], `"status":"ok"`)
		p.reply(p.until("run")["id"], `"status":"ok"`)
		p.say(kindSupervisor, `{"event":"died","signal":9}`)
		p.worker()
		p.reply(p.until("run")["id"], `"status":"ok"`)
		p.next()
	})
	if err := client.Warm(t.Context(), []string{"numpy"}, time.Minute); err != nil || !client.IsWarm() {
		t.Fatalf("%v, warm: %v", err, client.IsWarm())
	}
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateNew || len(res.Notes) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateLost || client.IsWarm() {
		t.Errorf("after a death: %+v, %v, warm: %v", res, err, client.IsWarm())
	}
}

func TestWarmFails(t *testing.T) {
	for name, c := range map[string]struct {
		script func(p *peer, id any)
		said   string
		module bool // it was the import's fault
		good   bool // a call may follow
	}{
		"no such module": {func(p *peer, id any) { p.reply(id, `"status":"error","error":"m: ModuleNotFoundError"`) }, "m: ModuleNotFoundError", true, true},
		"the worker dies": {func(p *peer, _ any) {
			p.say(kindName, "\x00\x00\x00\x00m")
			p.say(kindSupervisor, `{"event":"died","signal":11}`)
			p.worker()
		}, "while m was being loaded, the interpreter ended meanwhile: killed by signal 11", false, true},
		"refused":           {func(p *peer, id any) { p.say(kindWorker, `{"event":"refused","id":%q,"error":"too late"}`, id) }, "too late", false, true},
		"the channel ends":  {func(*peer, any) {}, "EOF", false, false},
		"another's answer":  {func(p *peer, _ any) { p.reply("x", `"status":"ok"`) }, "nobody asked", false, false},
		"it takes too long": {func(p *peer, _ any) { p.until("kill"); p.next() }, "time limit of 1s", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := talk(t, Config{}, func(p *peer) {
					p.worker()
					c.script(p, p.until("warm")["id"])
					if c.good {
						p.reply(p.until("run")["id"], `"status":"ok"`)
						p.next()
					}
				})
				err := client.Warm(t.Context(), nil, time.Second)
				var module ImportError
				if err == nil || !strings.Contains(err.Error(), c.said) && client.Err() == nil || errors.As(err, &module) != c.module || client.IsWarm() {
					t.Errorf("%v, warm: %v", err, client.IsWarm())
				}
				if !c.good {
					return
				}
				if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateNew {
					t.Errorf("the call after it: %+v, %v", res, err)
				}
			})
		})
	}
	client := talk(t, Config{}, func(p *peer) { p.next() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Warm(ctx, nil, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller that has gone: %v", err)
	}
}

// What warms up is given the time to obey, as a call is.
func TestWarmIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			id := p.until("warm")["id"]
			p.until("interrupt")
			time.Sleep(500 * time.Millisecond)
			p.reply(id, `"status":"interrupted","interrupted":true`)
			if m := p.next(); m["op"] == "sweep" {
				p.done("sweep", m["seq"].(float64))
				p.ok()
			} else {
				t.Errorf("then asked for %v", m["op"])
			}
			p.next()
		})
		if err := client.Warm(t.Context(), nil, time.Second); err == nil || !strings.Contains(err.Error(), "time limit of 1s") {
			t.Errorf("%v", err)
		}
		if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateNew {
			t.Errorf("the call after it: %+v, %v", res, err)
		}
	})
}

func TestPing(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		p.done("ping", p.until("ping")["seq"].(float64))
	})
	if err := client.Ping(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(); err == nil {
		t.Error("answered by nobody")
	}
}
