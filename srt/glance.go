package srt

import (
	"sync"
	"time"
)

// glance looks at the memory of a session in a control group while a call runs. The kernel
// knows how large a process is, and not what its end would free; so a standby that holds
// much which the worker has overwritten is given up before the kernel must choose.
//
// It is safe for concurrent use. Its owner must call close.
type glance struct {
	w *watchdog

	mu      sync.Mutex
	timer   *time.Timer // nil = no call is under way
	closed  bool
	looking sync.WaitGroup
}

const (
	glanceFar  = 100 * time.Millisecond // between two looks,
	glanceNear = 20 * time.Millisecond  // and from half of the limit on
)

// running tells whether a call is under way. A call that is over before the first look
// pays for no more than setting a timer.
func (g *glance) running(yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if yes && !g.closed {
		g.timer = time.AfterFunc(glanceNear, g.look)
	}
}

func (g *glance) close() {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	g.mu.Unlock()
	g.looking.Wait()
}

func (g *glance) look() {
	g.mu.Lock()
	timer := g.timer
	if timer == nil || g.closed {
		g.mu.Unlock()
		return
	}
	g.looking.Add(1)
	g.mu.Unlock()
	defer g.looking.Done()
	next := glanceFar
	limit := g.w.policy.Memory
	if used, err := g.w.cage.memory(); err == nil && used > limit/2 {
		next = glanceNear
		if used > limit/4*3 && g.w.giveUpStandby(0) {
			next = glanceFar
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == timer && !g.closed {
		g.timer.Reset(next)
	}
}
