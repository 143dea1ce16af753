package srt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// killed is one session and what its variables must be.
type killed struct {
	s    *session
	rand *rand.Rand
	n    int
	log  []string

	after []variables // each call that the interpreter remembers: what a model of the session predicts
}

// variables are what x may be at one moment: an interrupt may have come before the call
// changed it.
type variables [][]int

// Calls of random kinds, and kills of every kind at random moments: the variables are
// always those that the states and notes told so far imply.
func TestKills(t *testing.T) { kills(t, 10) }

// As TestKills, for longer.
func TestProveKills(t *testing.T) {
	if os.Getenv("MCP_SANDBOX_PROVE") != "1" {
		t.Skip("asked for by MCP_SANDBOX_PROVE=1")
	}
	kills(t, 200)
}

func kills(t *testing.T, sessions int) {
	l := local(t, Config{Limits: small})
	var states sync.Map
	next := make(chan int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range next {
				s, err := l.Open(t.Context(), sandbox.Spec{ID: fmt.Sprintf("k%d", i)})
				if err != nil {
					t.Error(err)
					continue
				}
				k := killed{s: s.(*session), rand: rand.New(rand.NewPCG(uint64(i), 4)), after: []variables{{nil}}}
				for range 50 {
					state, ok := k.step(t)
					if !ok {
						t.Errorf("session %d, call %d", i, k.n)
						break
					}
					count, _ := states.LoadOrStore(state, new(atomic.Int64))
					count.(*atomic.Int64).Add(1)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range sessions {
		next <- i
	}
	close(next)
	wg.Wait()
	var told []string
	for _, state := range []sandbox.State{sandbox.StateNew, sandbox.StateKept, sandbox.StateRestored, sandbox.StateLost} {
		if count, ok := states.Load(state); ok {
			told = append(told, fmt.Sprintf("%s %d", state, count.(*atomic.Int64).Load()))
		}
	}
	if t.Failed() {
		return // no proof of anything
	}
	t.Logf("PROOF: %d sessions of 50 calls with kills at random moments: the variables were those that the states implied, each time (%s)", sessions, strings.Join(told, ", "))
	for _, want := range []sandbox.State{sandbox.StateKept, sandbox.StateRestored, sandbox.StateLost} {
		if _, ok := states.Load(want); !ok {
			t.Errorf("no call ended with state %s: the kills don't do what they should", want)
		}
	}
}

// step makes one call, compares what the variables were before it, and says what became
// of them by the Result's word alone.
func (k *killed) step(t *testing.T) (sandbox.State, bool) {
	k.n++
	code := fmt.Sprintf("x = globals().get('x', [])\nwas = list(x)\nprint(was, flush=True)\nx.append(%d)\n", k.n)
	kind := k.rand.IntN(12)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	timeout := 20 * time.Second
	switch kind {
	case 0:
		code += "import os; os._exit(3)"
	case 1:
		code += "import os; os.kill(os.getpid(), 9)"
	case 2:
		code += "import os; os.abort()"
	case 3:
		code += "1 / 0"
	case 4: // beyond its time, and deaf
		if k.rand.IntN(8) == 0 {
			timeout = 100 * time.Millisecond
			code += "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass"
		}
	case 5: // killed from outside, at any moment
		k.killSoon()
		code += "import time; time.sleep(0.01)"
	case 6: // without its standby
		code += "import os\nfor p in os.listdir('/proc'):\n    if p.isdigit() and int(p) not in (1, os.getpid()): os.kill(int(p), 9)\n"
		if k.rand.IntN(2) == 0 {
			code += "import time; time.sleep(0.05); os._exit(1)"
		}
	case 7:
		time.AfterFunc(time.Duration(k.rand.IntN(20))*time.Millisecond, cancel)
		code += "import time; time.sleep(0.01)"
	}
	if k.rand.IntN(2) == 0 {
		time.Sleep(time.Duration(k.rand.IntN(15)) * time.Millisecond) // a checkpoint may be under way, or made
	}
	res, err := k.s.Run(ctx, sandbox.Request{Code: code, Timeout: timeout})
	if res.Status == "" && err != nil && ctx.Err() != nil {
		return sandbox.StateKept, true // nothing ran
	}
	if res.Status == "" && errors.Is(err, sandbox.ErrInfra) {
		return sandbox.StateKept, true // the whole wall was killed before; the next call tells of it
	}
	if err != nil && ctx.Err() == nil {
		t.Errorf("%s\n%v", code, err)
		return "", false
	}
	notes := strings.Join(res.Notes, "; ")
	k.log = append(k.log, fmt.Sprintf("call %d, kind %d: %s, %s, stdout %q, notes %q, %.200q", k.n, kind, res.Status, res.State, res.Stdout, res.Notes, res.Error))
	if strings.Contains(notes, "between the calls") {
		// Not by the state: what was restored then may be lost by this very call.
		k.forget(strings.Contains(notes, "ran in a fresh one"), betweenCall.FindStringSubmatch(notes))
	}
	if said := strings.TrimSpace(res.Stdout); said != "" && !k.settle(said) {
		t.Errorf("x was %s, want %v; the last calls were\n%s", said, k.after[len(k.after)-1], strings.Join(k.log[max(0, len(k.log)-6):], "\n"))
		return "", false
	}
	lost := strings.Contains(res.Error, "variables are lost")
	if lost || strings.Contains(res.Error, "undone") {
		k.forget(lost, withinCall.FindStringSubmatch(notes))
		return res.State, true
	}
	var now variables
	for _, x := range k.after[len(k.after)-1] {
		if res.Status == sandbox.StatusCancelled || res.Status == sandbox.StatusTimeout { // perhaps before it changed anything
			now = append(now, x)
		}
		now = append(now, append(x[:len(x):len(x)], k.n))
	}
	k.after = append(k.after, now)
	return res.State, true
}

var (
	betweenCall = regexp.MustCompile(`after call (\d+) of`)
	withinCall  = regexp.MustCompile(`made after call (\d+):`)
)

// forget: the variables are gone, or what they were after an earlier call, the one that a
// note names, or else the last one before.
func (k *killed) forget(lost bool, named []string) {
	n := len(k.after) - 1
	if named != nil {
		n, _ = strconv.Atoi(named[1])
	}
	if lost {
		n = 0
	}
	k.after = k.after[:min(n+1, len(k.after))]
}

// settle compares what code saw with what it should have.
func (k *killed) settle(said string) bool {
	for _, x := range k.after[len(k.after)-1] {
		if said == strings.ReplaceAll(fmt.Sprint(x), " ", ", ") {
			k.after[len(k.after)-1] = variables{x}
			return true
		}
	}
	return false
}

// killSoon ends the worker, the standby or any process behind the wall from outside.
func (k *killed) killSoon() {
	k.s.mu.Lock()
	live := k.s.live
	k.s.mu.Unlock()
	if live == nil {
		return
	}
	first, after := live.cage.Pid(), time.Duration(k.rand.IntN(25))*time.Millisecond
	which := k.rand.IntN(8)
	time.AfterFunc(after, func() {
		select {
		case <-live.cage.Done():
			return // its number may be another's
		default:
		}
		all := descendants(first, nil)
		if which > 0 { // else also the first, which takes the wall with it
			all = all[1:]
		}
		if len(all) > 0 {
			_ = syscall.Kill(all[which%len(all)], syscall.SIGKILL)
		}
	})
}
