package srt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// Contained is a started Program. All methods may be called at any time, from several
// goroutines. Whoever started it must end it; it outlives the Local otherwise.
type Contained struct {
	cage   *cage
	dialer *dialer       // nil = it has no port
	ended  chan struct{} // closed when all is gone, and code is set
	code   int
	oom    bool
}

// Contain starts a program behind the same wall as the code of sessions. It returns when
// the program has been executed; ctx bounds that alone. What the system refuses to
// execute is an error that wraps its number.
func (l *Local) Contain(ctx context.Context, p Program) (_ *Contained, err error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	out, err := newDrains(p.Stdout, p.Stderr)
	if err != nil {
		return nil, fmt.Errorf("srt: %w", err)
	}
	defer out.closeGuest()
	defer func() {
		if err != nil {
			closeAll(out.server)
		}
	}()
	c := command{Path: p.Argv[0], Args: p.Argv[1:], Env: p.Env, Stdout: out.guest[0], Stderr: out.guest[1]}
	var dial *dialer
	if p.Port > 0 {
		if dial, c.Sockets, err = newDialer(p.Port); err != nil {
			return nil, fmt.Errorf("srt: %w", err)
		}
		defer c.Sockets.Close()
	}
	cage, err := l.wall.start(ctx, p.policy(l), c)
	if err == nil && dial != nil {
		if err = dial.receive(); err != nil {
			err = errors.Join(fmt.Errorf("srt: %w", err), cage.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, dial.close())
	}
	contained := &Contained{cage: cage, dialer: dial, ended: make(chan struct{})}
	go contained.wait(out)
	return contained, nil
}

// wait is the goroutine of a program, and those of its output; they end with it.
func (c *Contained) wait(out *drains) {
	defer close(c.ended)
	var copies sync.WaitGroup
	for i := range out.server {
		copies.Go(func() { out.copy(i) })
	}
	state := c.cage.Wait()
	copies.Wait() // all who could write are dead
	c.oom = c.cage.oomKilled()
	_ = c.cage.Close() // it is dead; at worst an empty group is left, for the next sweep
	_ = c.dialer.close()
	c.code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.code = 128 + int(status.Signal())
	}
}

// Wait returns when everything behind the wall is dead and its output has been passed on: the
// exit code of the program, or 128 and the signal that ended it.
func (c *Contained) Wait() int {
	<-c.ended
	return c.code
}

// OOMKilled says, after Wait, whether the kernel has killed at the memory limit.
func (c *Contained) OOMKilled() bool {
	<-c.ended
	return c.oom
}

// Terminate sends SIGTERM to the program, which as PID 1 gets it only if it handles it.
func (c *Contained) Terminate() { _ = c.cage.cmd.Process.Signal(syscall.SIGTERM) } // it may be dead

// Kill kills everything behind the wall.
func (c *Contained) Kill() { _ = c.cage.cmd.Process.Kill() } // likewise

// Dial connects to the program's port.
func (c *Contained) Dial(ctx context.Context) (net.Conn, error) {
	if c.dialer == nil {
		return nil, errors.New("srt: the program has no port")
	}
	return c.dialer.dial(ctx)
}
