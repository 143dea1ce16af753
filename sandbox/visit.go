package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// Visit hands an open session to do, for what needs no turn: its files, its outputs.
// A call under way goes on meanwhile, and a hibernated session sleeps on. One that was
// not opened yet is, without an interpreter. The ctx that do gets ends with the
// caller's, and with the session. A session that is not the caller's, has ended or
// never was is the same ErrUnknownSession, whatever its id looks like.
func (s *Sessions) Visit(ctx context.Context, who Caller, id string, do func(context.Context, Session) error) error {
	if id == "" || id == NewSession { // no session has such an id
		id = "none"
	}
	o, err := s.takeExisting(who, id)
	if err != nil {
		return err
	}
	defer s.leave(o)
	ctx, done := o.join(ctx)
	defer done()
	begun, err := s.beginCall(ctx, o)
	if err != nil {
		return err
	}
	defer begun()
	session, err := s.visited(ctx, o)
	if err == nil {
		err = do(ctx, session)
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		return errUnknown() // it has ended while we looked
	}
	return err
}

// visited is the open session. Its turn is needed to open it, and not to look into it.
func (s *Sessions) visited(ctx context.Context, o *owned) (Session, error) {
	if session := o.live(); session != nil {
		return session, nil
	}
	if err := o.lock(ctx); err != nil {
		return nil, err
	}
	defer o.unlock()
	session, _, err := s.open(ctx, o, true)
	return session, err
}

// Begin makes a fresh session, without an interpreter, and returns its id.
func (s *Sessions) Begin(ctx context.Context, who Caller) (string, error) {
	o, err := s.take(who, NewSession)
	if err != nil {
		return "", err
	}
	defer s.leave(o)
	ctx, done := o.join(ctx)
	defer done()
	if err := s.begin(ctx, o); err != nil {
		s.forget(o, "")
		return "", errors.Join(err, s.remove(o))
	}
	return o.id, nil
}

func (s *Sessions) begin(ctx context.Context, o *owned) error {
	if err := o.lock(ctx); err != nil {
		return err
	}
	defer o.unlock()
	if err := s.awake(ctx, o); err != nil { // it takes a place like any other
		return err
	}
	begun, err := s.beginCall(ctx, o)
	if err != nil {
		return err
	}
	defer begun()
	_, _, err = s.open(ctx, o, true)
	return err
}

// Own is the id of a connection's own session; "" if it has none.
func (s *Sessions) Own(who Caller) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byConn[who]; o != nil && who.Connection != "" {
		return o.id
	}
	return ""
}

// errUnknown is what a caller hears of every session that is not theirs.
func errUnknown() error {
	return fmt.Errorf("%w: it has ended or never was; leave session_id out, or give %q for a fresh one", ErrUnknownSession, NewSession)
}
