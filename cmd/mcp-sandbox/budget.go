package main

import "sync"

// budget is something scarce that strangers share: memory for bodies, connections.
// Nobody holds more of it than they leave to others, so that no one of them shuts
// the others out: one alone has half, the next half of the rest. It is safe for
// concurrent use.
type budget struct {
	mu   sync.Mutex
	left int64
	held map[string]int64 // by holder
}

func newBudget(all int64) *budget { return &budget{left: all, held: map[string]int64{}} }

// take reports whether who may have n more, and then has.
func (b *budget) take(who string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[who]+n > b.left-n {
		return false
	}
	b.left -= n
	b.held[who] += n
	return true
}

// give takes n back, which who has taken.
func (b *budget) give(who string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	if b.held[who] -= n; b.held[who] == 0 {
		delete(b.held, who)
	}
}
