package sandbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// owned is one session in the books of Sessions. It is opened by its first
// call, so that an entry costs nothing but memory.
type owned struct {
	id      string
	owner   string // principal
	created time.Time

	turn chan struct{} // holds one token while a call is under way
	lost string        // guarded by turn: what the next result of code must say of an earlier session
	owed string        // what lost was at first
	ran  atomic.Bool   // code was run in it: there may be variables to lose

	users      int       // guarded by Sessions.mu: calls under way or waiting
	busy       int       // likewise: those of them that have begun
	crowded    bool      // likewise: those that had not were refused, since another principal needs the place
	used       time.Time // likewise: when the last one left
	connection Caller    // likewise: whose own session it is; zero = nobody's

	asleep   bool            // likewise: it costs nothing but disk
	nap      *nap            // likewise: it is about to fall asleep; nil = it is not
	stubborn bool            // likewise: it could not be hibernated as it is now
	room     <-chan struct{} // likewise: closed when there is memory for it; nil = there is
	kept     bool            // an earlier server left it

	mu      sync.Mutex
	session Session // nil until opened
	ended   error   // why no call may begin any more; nil = they may
	calls   map[*context.CancelCauseFunc]struct{}
}

func newOwned(id, owner string) *owned {
	now := time.Now()
	return &owned{
		id: id, owner: owner, created: now, used: now,
		turn: make(chan struct{}, 1), calls: map[*context.CancelCauseFunc]struct{}{},
	}
}

// join derives a call's context: it ends with the caller's, and with interrupt.
func (o *owned) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	o.mu.Lock()
	o.calls[&cancel] = struct{}{}
	o.mu.Unlock()
	return ctx, func() {
		o.mu.Lock()
		delete(o.calls, &cancel)
		o.mu.Unlock()
		cancel(nil)
	}
}

func (o *owned) interrupt(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for cancel := range o.calls {
		(*cancel)(cause)
	}
}

// lock takes the session's turn; those who wait get it in the order they came.
func (o *owned) lock(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return o.checkEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *owned) unlock() { <-o.turn }

// checkEnded runs with the turn held, which it gives back on failure.
func (o *owned) checkEnded() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil {
		o.unlock()
		return o.ended
	}
	return nil
}

// live is the open session; nil before the first call. The turn is held.
func (o *owned) live() Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.session
}

// open opens the session for the first call, which is code unless lazy. The
// turn is held.
func (o *owned) open(ctx context.Context, sb Sandbox, lazy bool) (Session, error) {
	session, err := sb.Open(ctx, Spec{ID: o.id, Principal: o.owner, Created: o.created, Lazy: lazy})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	ended := o.ended
	if ended == nil {
		o.session = session
	}
	o.mu.Unlock()
	if ended != nil { // close came while it was opening, and could not see it
		if h, ok := session.(Hibernator); ok {
			return nil, errors.Join(ErrClosed, h.Leave()) // whether it is removed, close decides
		}
		return nil, errors.Join(ErrClosed, session.Close())
	}
	return session, nil
}

// tell adds to a result of code, once, what became of an earlier session. The
// turn is held.
func (o *owned) tell(res *Result) {
	if res.Status == "" || o.lost == "" {
		return
	}
	res.Notes = append([]string{o.lost}, res.Notes...)
	if res.State == StateNew {
		res.State = StateLost
	}
	o.lost = ""
}

// close ends the session at once, also in the middle of a call, and waits for
// that call.
func (o *owned) close() error {
	session := o.finish(ErrClosed)
	var err error
	if session != nil {
		err = session.Close()
	}
	o.turn <- struct{}{}
	o.unlock()
	return err
}

// finish ends the call under way, and lets no other begin, for a reason that
// they return.
func (o *owned) finish(why error) Session {
	o.mu.Lock()
	if o.ended == nil {
		o.ended = why
	}
	session := o.session
	o.mu.Unlock()
	o.interrupt(why)
	return session
}

// hibernate ends the session's processes and keeps its variables. The turn is held.
func (o *owned) hibernate(ctx context.Context) error {
	session := o.live()
	if session == nil {
		return nil // it has no processes
	}
	h, ok := session.(Hibernator)
	if !ok {
		return errors.ErrUnsupported
	}
	return h.Hibernate(ctx)
}

// shed ends the session's processes. The turn is held.
func (o *owned) shed(why string) error {
	h, ok := o.live().(Hibernator)
	if !ok {
		return errors.ErrUnsupported
	}
	return h.Shed(why)
}
