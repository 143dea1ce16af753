package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// interpreter is a started one, with the talk to it. kernel.Client.Close ends
// the talk alone.
type interpreter struct {
	r      *remote
	client *kernel.Client
	link   *link
}

// distance is what a frame may take to an interpreter and back, beyond a pipe.
const distance = 2 * time.Second

// start gives the live interpreter, and starts one where there is none, in a
// fresh container if need be.
func (s *session) start(ctx context.Context) (*interpreter, error) {
	s.mu.Lock()
	closed, live := s.closed, s.live
	s.mu.Unlock()
	if closed {
		return nil, sandbox.ErrClosed
	}
	if live != nil {
		select {
		case <-live.client.Broken():
			s.bury(live)
		default:
			if time.Now().Before(live.r.expires) {
				return live, nil
			}
			s.retire(live)
		}
	}
	ctx, done := s.untilClosed(ctx) // Close does not wait for a container
	defer done()
	container, err := s.container(ctx)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	s.mu.Lock()
	s.generation++
	generation := s.generation
	s.mu.Unlock()
	if err := container.start(ctx, generation, s.w.limits()); err != nil {
		if container.err() != nil { // it went between the calls
			s.abandon(container)
		}
		return nil, s.explain(ctx, err)
	}
	return s.connect(container, generation)
}

// container gives the session's container, or makes one.
func (s *session) container(ctx context.Context) (*remote, error) {
	s.mu.Lock()
	r := s.remote
	s.mu.Unlock()
	if r != nil {
		if r.err() == nil {
			return r, nil
		}
		s.abandon(r)
	}
	r, err := s.w.newRemote(ctx, s.t)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.remote, s.generation = r, 0
	}
	s.mu.Unlock()
	if closed { // Close came in between and could not see it
		r.deployment.remove()
		return nil, sandbox.ErrClosed
	}
	if s.mirror != nil {
		s.mirror.forget()
	}
	return r, nil
}

// packageHint tells how a package comes into a container.
const packageHint = "The packages are those of the container's image, which the operator of this server names by --workload-image."

// connect makes the talk to a started interpreter.
func (s *session) connect(r *remote, generation int64) (*interpreter, error) {
	output := kernel.NewFedOutput(s.w.cfg.Limits.Output)
	link, out := newLink(r, generation, output)
	live := &interpreter{r: r, link: link, client: kernel.NewClient(kernel.Config{
		In: link, Out: out, Output: output, Memory: s.w.cfg.Memory, Distance: distance, OOM: link.oomKilled,
		Hints: map[string]string{"package": packageHint},
	})}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.live, s.ran = live, false
	}
	s.mu.Unlock()
	if closed {
		live.client.Close()
		return nil, sandbox.ErrClosed
	}
	return live, nil
}

// bury takes away an interpreter that died, or broke the protocol, and with it a
// container that is lost.
func (s *session) bury(dead *interpreter) {
	reason := dead.client.Err()
	dead.client.Close()
	s.log.Warn("the interpreter is gone", "reason", reason)
	ended := "the interpreter ended"
	if dead.r.err() != nil {
		ended = "the container was lost, " + clean(dead.r.err().Error(), 300) + ": its interpreter ended"
		s.abandon(dead.r)
	}
	s.forget(dead, ended+" between the calls: "+kernel.Fresh)
}

// retire gives up a container whose time is over before the platform does.
func (s *session) retire(old *interpreter) {
	old.client.Close()
	s.abandon(old.r)
	s.log.Info("the container's time is over", "id", old.r.deployment.ID)
	s.forget(old, "the container had reached the age at which the platform ends it: "+kernel.Fresh)
}

// forget notes that an interpreter is gone, and why, for the next call.
func (s *session) forget(i *interpreter, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == i {
		s.live = nil
	}
	if s.ran {
		s.lost = why
	}
	s.ran = false
}

// abandon deletes a container that is of no more use.
func (s *session) abandon(r *remote) {
	s.mu.Lock()
	if s.remote == r {
		s.remote = nil
	}
	s.mu.Unlock()
	r.deployment.remove()
}

const (
	shutdownLimit = 2 * time.Second
	endingLimit   = 5 * time.Second
	endingLook    = 500 * time.Millisecond
)

// end has all that runs in the container ended, and the container deleted.
func (r *remote) end() {
	if r.err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if _, err := r.once(ctx, "/v1/shutdown", struct{}{}, nil, nil); err != nil {
			r.client.log.Debug("the agent did not shut down", "id", r.deployment.ID, "err", err)
		}
	}
	_ = r.failed(&lostError{why: "the session is closed"}) // the first reason stays
	r.deployment.remove()
}

// fallen finds out why a container was lost during a call, and has the result
// say so. What the code is not to blame for is an error.
func (s *session) fallen(live *interpreter, res *sandbox.Result) error {
	lost, ok := errors.AsType[*lostError](live.r.err())
	if !ok {
		return nil // the container is there: it was the interpreter alone
	}
	limit := endingLimit
	if lost.restarted { // nothing hangs on the platform's word but memory
		limit = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(s.w.clock.real(limit), time.Second))
	defer cancel()
	ctx, done := s.untilClosed(ctx)
	defer done()
	oom, ended, words := live.r.ending(ctx)
	for words == "" && ctx.Err() == nil && s.w.clock.sleep(ctx, endingLook) == nil { // the platform looks now and then
		oom, ended, words = live.r.ending(ctx)
	}
	why := clean(lost.Error(), 500)
	if words != "" {
		why += "; " + words
	}
	const gone = " All variables are lost, and so is what this call changed in files. The next call starts a fresh container."
	switch {
	case oom:
		res.Status, res.ExitCode = sandbox.StatusOOM, sandbox.StatusOOM.ExitCode()
		res.Error = "The container was ended: it went beyond its memory limit of " + kernel.Bytes(s.w.cfg.Memory) + "." + gone
	case res.Status != sandbox.StatusCrash: // stopped, at a limit or by the caller; whether the code was late is not known
		stopped, _, _ := strings.Cut(res.Error, ". ")
		res.Error = stopped + ", and the container was lost: " + why + "." + gone
	case ended || lost.restarted:
		res.Error = "The container ended while the code ran: " + why + "." + gone
	default:
		s.forgetLost(live, why)
		return errInfra(true, fmt.Errorf("the container was lost while the code ran: %s", why))
	}
	return nil
}

// forgetLost buries an interpreter whose end no result tells of.
func (s *session) forgetLost(live *interpreter, why string) {
	s.mu.Lock()
	s.ran = true // for the next call to be told
	s.mu.Unlock()
	live.client.Close()
	s.abandon(live.r)
	s.forget(live, "the container was lost during an earlier call, "+why+": "+kernel.Fresh)
}
