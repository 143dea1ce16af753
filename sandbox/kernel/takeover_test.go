package kernel

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcp-sandbox/sandbox"
)

func (p *peer) died(standby bool) {
	p.say(kindSupervisor, `{"event":"died","generation":1,"exit":3,"signal":null,"asked":false,"standby":%t}`, standby)
}

func (p *peer) restored(after int) {
	p.say(kindSupervisor, `{"event":"worker","generation":2,"pid":7,"python":"3.11.7","restored":%d}`, after)
}

func (p *peer) ok() { p.reply(p.until("run")["id"], `"status":"ok"`) }

// A call whose interpreter ends says restored if, and only if, a standby was ready to go on.
func TestTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		then   func(p *peer)
		state  sandbox.State
		next   sandbox.State
		note   string // "" = none
		broken bool
	}{
		"takes over": {func(p *peer) {
			p.died(true)
			p.say(kindWorker, `{"event":"restored","notes":["2 sockets"]}`)
			p.restored(1)
		}, sandbox.StateRestored, sandbox.StateKept, "2 sockets", false},
		"after a while": {func(p *peer) {
			p.died(true)
			time.Sleep(4 * time.Second)
			p.restored(1)
		}, sandbox.StateRestored, sandbox.StateKept, "", false},
		"from an earlier call": {func(p *peer) {
			p.died(true)
			p.restored(0)
		}, sandbox.StateRestored, sandbox.StateKept, "after call 0: what later calls, 1 to 2,", false},
		"there is none": {func(p *peer) {
			p.died(false)
			p.worker()
		}, sandbox.StateLost, sandbox.StateNew, "", false},
		"dies too": {func(p *peer) {
			p.died(true)
			p.died(false)
			p.worker()
		}, sandbox.StateLost, sandbox.StateNew, "", false},
		"is never ready": {func(p *peer) { p.died(true) }, sandbox.StateLost, "", "", true},
		"the channel ends": {func(p *peer) {
			p.died(true)
			p.out.Close()
		}, sandbox.StateLost, "", "", true},
		"tells twice": {func(p *peer) {
			p.died(true)
			p.say(kindWorker, `{"event":"restored","notes":[]}`)
			p.say(kindWorker, `{"event":"restored","notes":[]}`)
		}, sandbox.StateLost, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := talk(t, Config{}, func(p *peer) {
					p.worker()
					p.ok()
					p.until("run")
					c.then(p)
					if !c.broken {
						p.ok()
					}
					for p.next() != nil {
					}
				})
				if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
					t.Fatal(err)
				}
				res, err := client.Run(t.Context(), req(time.Minute))
				if err != nil || res.Status != sandbox.StatusCrash || res.State != c.state || !strings.Contains(strings.Join(res.Notes, ";"), c.note) {
					t.Errorf("%+v, %v", res, err)
				}
				if undone := strings.Contains(res.Error, "undone"); undone != (c.state == sandbox.StateRestored) || undone == strings.Contains(res.Error, "lost") {
					t.Errorf("the error says: %s", res.Error)
				}
				if c.broken {
					if client.Err() == nil {
						t.Error("the client goes on")
					}
					return
				}
				if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != c.next || len(res.Notes) > 0 {
					t.Errorf("the next call: %+v, %v; want %s", res, err, c.next)
				}
			})
		})
	}
}

// A time-out that had to kill is restored like a crash.
func TestTakeoverAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.ok()
			seq := p.until("kill")["seq"].(float64)
			p.say(kindSupervisor, `{"event":"died","generation":1,"signal":9,"asked":true,"standby":true}`)
			p.done("kill", seq)
			p.restored(1)
			p.ok()
			p.next()
		})
		for i, want := range []sandbox.State{sandbox.StateNew, sandbox.StateRestored, sandbox.StateKept} {
			res, err := client.Run(t.Context(), req(time.Second))
			if err != nil || res.State != want || (res.Status == sandbox.StatusTimeout) != (i == 1) {
				t.Errorf("call %d: %+v, %v; want %s", i, res, err, want)
			}
		}
	})
}

// A kill may take its time where a standby is parked, and not where there is none.
func TestSlowKill(t *testing.T) {
	for parked, want := range map[bool]sandbox.State{true: sandbox.StateRestored, false: sandbox.StateLost} {
		synctest.Test(t, func(t *testing.T) {
			client := talk(t, Config{}, func(p *peer) {
				p.worker()
				p.ok()
				if parked {
					p.say(kindSupervisor, `{"event":"checkpoint","pid":7,"call":1}`)
				}
				seq := p.until("kill")["seq"].(float64)
				time.Sleep(4 * time.Second)
				p.say(kindSupervisor, `{"event":"died","generation":1,"signal":9,"asked":true,"standby":%t}`, parked)
				p.done("kill", seq)
				p.restored(1)
				p.next()
			})
			if _, err := client.Run(t.Context(), req(time.Second)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			start := time.Now()
			res, err := client.Run(t.Context(), req(time.Second))
			if err != nil || res.Status != sandbox.StatusTimeout || res.State != want || (client.Err() == nil) != parked {
				t.Errorf("parked %v: %+v, %v; want %s", parked, res, err, want)
			}
			if took := time.Since(start); !parked && took > 3*time.Second+killWait {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A death between the calls is told by the next one, with what was restored.
func TestTakeoverBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.ok()
			p.ok()
			p.died(true)
			p.say(kindWorker, `{"event":"restored","notes":["a thread"]}`)
			p.restored(1)
			p.say(kindWorker, `{"event":"refused","id":%q,"error":"too deep"}`, p.until("run")["id"])
			p.ok()
			p.ok()
			p.next()
		})
		for range 2 {
			if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if _, err := client.Run(t.Context(), req(time.Minute)); err == nil {
			t.Error("not refused")
		}
		res, err := client.Run(t.Context(), req(time.Minute))
		notes := strings.Join(res.Notes, ";")
		if err != nil || res.State != sandbox.StateRestored || !strings.Contains(notes, "after call 1 of 2") || !strings.Contains(notes, "a thread") {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := client.Run(t.Context(), req(time.Minute)); err != nil || res.State != sandbox.StateKept || len(res.Notes) > 0 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A request that meets the death of its worker on the way is run by the next one, once.
func TestDeathOnTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		arrive func(p *peer)
		state  sandbox.State
	}{
		"restored": {func(p *peer) { p.restored(1) }, sandbox.StateRestored},
		"lost":     {func(p *peer) { p.worker() }, sandbox.StateLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := talk(t, Config{}, func(p *peer) {
					p.worker()
					p.ok()
					id := p.until("run")["id"]
					p.say(kindSupervisor, `{"event":"died","generation":1,"exit":3,"signal":null,"asked":false,"standby":true,"requests":1}`)
					c.arrive(p)
					p.reply(id, `"status":"ok"`)
					p.until("run")
					p.say(kindSupervisor, `{"event":"died","generation":2,"exit":3,"signal":null,"asked":false,"standby":true,"requests":3}`)
					p.restored(2)
					p.next()
				})
				for i, want := range []sandbox.State{sandbox.StateNew, c.state, sandbox.StateRestored} {
					res, err := client.Run(t.Context(), req(time.Minute))
					if err != nil || res.State != want || res.Success() != (i < 2) || (len(res.Notes) == 1) != (i == 1) {
						t.Errorf("call %d: %+v, %v; want %s", i, res, err, want)
					}
				}
			})
		})
	}
}

// Nobody but a standby that is taking over may say that it has.
func TestForgedRestoration(t *testing.T) {
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		p.until("run")
		p.say(kindWorker, `{"event":"restored","notes":["trust me"]}`)
		p.next()
	})
	res, err := client.Run(t.Context(), req(time.Minute))
	if err != nil || res.State != sandbox.StateLost || client.Err() == nil {
		t.Errorf("%+v, %v", res, err)
	}
}

// The owner hears which process is parked, and whether it still is.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []int
		client := talk(t, Config{Parked: func(pid int, yes bool) {
			if !yes {
				pid = -pid
			}
			heard = append(heard, pid)
		}}, func(p *peer) {
			p.worker()
			for range 3 { // told again and again, heard once
				p.say(kindSupervisor, `{"event":"checkpoint","pid":7,"call":1}`)
			}
			p.until("run")
			p.died(true)
			p.restored(1)
			p.say(kindSupervisor, `{"event":"checkpoint","pid":9,"call":1}`)
			m := p.until("discard")
			p.say(kindSupervisor, `{"event":"discarded"}`)
			p.done("discard", m["seq"].(float64))
			p.next()
		})
		synctest.Wait()
		if worker, standby := client.Processes(); worker != 2 || standby != 7 {
			t.Errorf("worker %d, standby %d", worker, standby)
		}
		if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if worker, standby := client.Processes(); worker != 7 || standby != 9 {
			t.Errorf("worker %d, standby %d", worker, standby)
		}
		if err := client.Discard(); err != nil {
			t.Error(err)
		}
		if _, standby := client.Processes(); standby != 0 || len(heard) != 3 || heard[0] != 7 || heard[1] != -7 || heard[2] != 9 {
			t.Errorf("standby %d, heard %v", standby, heard)
		}
	})
}

// A death during a save is the next call's to tell; the worker that took over has
// counted its calls anew, without what was none.
func TestTakeoverInASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.ok()
			p.ok()
			p.until("save")
			p.died(true)
			p.restored(1)
			p.ok()
			p.until("run")
			p.died(true)
			p.restored(0)
			p.next()
		})
		for range 2 {
			if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Save(t.Context(), &memory{}, someLimits); err == nil || errors.Is(err, ErrDied) {
			t.Errorf("saved: %v", err)
		}
		for i, want := range []string{"after call 1 of 2", "what later calls, 1 to 3,"} {
			res, err := client.Run(t.Context(), req(time.Minute))
			if err != nil || res.State != sandbox.StateRestored || !strings.Contains(strings.Join(res.Notes, ";"), want) {
				t.Errorf("call %d: %+v, %v; want %s", i, res, err, want)
			}
		}
	})
}

// Where memory is short the supervisor is late: that costs nothing but the wait.
func TestLateDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := talk(t, Config{}, func(p *peer) {
			p.worker()
			p.say(kindSupervisor, `{"event":"checkpoint","pid":7,"call":1}`)
			seq := p.until("discard")["seq"].(float64)
			time.Sleep(3 * time.Second)
			p.say(kindSupervisor, `{"event":"discarded"}`)
			p.done("discard", seq)
			p.ok()
			p.next()
		})
		synctest.Wait()
		if err := client.Discard(); err == nil || client.Err() != nil {
			t.Errorf("%v; broken: %v", err, client.Err())
		}
		if _, standby := client.Processes(); standby != 7 {
			t.Errorf("standby %d before it was given up", standby)
		}
		if _, err := client.Run(t.Context(), req(time.Minute)); err != nil {
			t.Error(err)
		}
		if _, standby := client.Processes(); standby != 0 {
			t.Errorf("standby %d", standby)
		}
	})
}
