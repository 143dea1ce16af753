package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// NewSession, given as a session's id, asks for a fresh session beside the
// connection's own.
const NewSession = "new"

// Caller says who asks, and over which connection.
type Caller struct {
	Principal  string // whose the session is; required
	Connection string // "" = the caller has no connection of its own
}

// Sessions owns every open session: whose it is, whose turn it is, and when it
// ends. It is safe for concurrent use.
type Sessions struct {
	cfg   SessionsConfig
	queue *queue
	done  chan struct{}  // closed by Close
	wg    sync.WaitGroup // the janitor, every call and every hibernation under way
	naps  chan struct{}  // holds a token for each hibernation under way

	hibernations atomic.Int64 // that have come to their end

	mu        sync.Mutex
	closed    bool
	freed     chan struct{}  // closed when a session that was in use no longer is
	sleepless map[string]int // calls that wait for that, each principal's
	over      bool           // more are awake than may be, and none of them could go to sleep
	byID      map[string]*owned
	byConn    map[Caller]*owned
	ended     map[Caller]string // why a connection's own session is gone, for its next call
}

// NewSessions starts with no session open. Close ends it.
func NewSessions(cfg SessionsConfig) (*Sessions, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	s := &Sessions{
		cfg: cfg, done: make(chan struct{}), naps: make(chan struct{}, napping()), freed: make(chan struct{}), sleepless: map[string]int{},
		queue: newQueue(cfg.MaxRunning, cfg.MaxQueue, func(who string) int { return cfg.Quotas[who].Running }),
		byID:  map[string]*owned{}, byConn: map[Caller]*owned{}, ended: map[Caller]string{},
	}
	s.adopt()
	s.wg.Go(s.sweepIdle)
	return s, nil
}

// Run executes a request in the session named by id, or, with id empty, in the
// connection's own, which it opens if need be; a caller without a connection
// then gets a fresh one. It returns the session's id, also beside an error
// where there is a session. The error of a call that was cancelled is the
// cause: ctx's own, or ErrClosed where the session was closed meanwhile; it is
// an *Error that has not Ran where the code was not even started.
func (s *Sessions) Run(ctx context.Context, who Caller, id string, req Request) (Result, string, error) {
	if err := req.Check(); err != nil {
		return Result{}, "", err
	}
	return s.call(ctx, who, id, func(ctx context.Context, o *owned) (Result, error) {
		session, opened, err := s.open(ctx, o, false)
		if err != nil {
			return Result{}, err
		}
		o.ran.Store(true)
		res, err := session.Run(ctx, req)
		res.Provisioning += opened
		res.keepOriginals(session, o.id)
		o.tell(&res)
		return res, err
	})
}

// RunCommand is Run for a command line. In a session that has no commands it
// fails with an error that is errors.ErrUnsupported; only an open session can be
// asked for the power, so it stays open then, without an interpreter. What a
// connection must be told of variables that it lost waits for the next Run.
func (s *Sessions) RunCommand(ctx context.Context, who Caller, id string, req CommandRequest) (Result, string, error) {
	if err := req.Check(); err != nil {
		return Result{}, "", err
	}
	return s.call(ctx, who, id, func(ctx context.Context, o *owned) (Result, error) {
		session, opened, err := s.open(ctx, o, true)
		if err != nil {
			return Result{}, err
		}
		runner, ok := session.(CommandRunner)
		if !ok {
			return Result{}, fmt.Errorf("this session runs code and no commands: %w", errors.ErrUnsupported)
		}
		res, err := runner.RunCommand(ctx, req)
		res.Provisioning += opened
		return res, err
	})
}

// call does something in a session once its turn and a place have come.
func (s *Sessions) call(ctx context.Context, who Caller, id string, do func(context.Context, *owned) (Result, error)) (Result, string, error) {
	o, err := s.take(who, id)
	if err != nil {
		return Result{}, "", err
	}
	defer s.leave(o)
	ctx, done := o.join(ctx)
	defer done()
	res, err := s.wait(ctx, o, who, do)
	if gone := ctx.Err(); gone != nil && errors.Is(err, gone) {
		err = context.Cause(ctx) // the caller went away, or the session was closed or had to give way
		if res.Status == "" && !crowdedOut(err) {
			err = &Error{Status: StatusCancelled, ExitCode: StatusCancelled.ExitCode(), Err: err}
		}
	}
	if crowdedOut(err) && o.live() == nil && !o.kept {
		return res, "", err // there is no such session any more
	}
	return res, o.id, err
}

func (s *Sessions) wait(ctx context.Context, o *owned, who Caller, do func(context.Context, *owned) (Result, error)) (Result, error) {
	if err := o.lock(ctx); err != nil {
		return Result{}, err
	}
	defer o.unlock()
	if err := s.awake(ctx, o); err != nil {
		return Result{}, err
	}
	if err := s.queue.acquire(ctx, who.Principal); err != nil {
		return Result{}, err
	}
	defer s.queue.release(who.Principal)
	done, err := s.beginCall(ctx, o)
	if err != nil {
		return Result{}, err
	}
	defer done()
	return do(ctx, o)
}

// open opens the session unless it is open already, and says how long that
// took. The turn is held.
func (s *Sessions) open(ctx context.Context, o *owned, lazy bool) (Session, time.Duration, error) {
	if session := o.live(); session != nil {
		return session, 0, nil
	}
	start := time.Now()
	session, err := o.open(ctx, s.cfg.Sandbox, lazy)
	took := time.Since(start)
	s.log(err, "session opened", "session", o.id, "took", took)
	return session, took, err
}

// Reset forgets the variables of a session, or, with end, ends the session
// altogether. Where there is nothing to forget it succeeds, and the id is
// empty.
func (s *Sessions) Reset(ctx context.Context, who Caller, id string, end bool) (string, error) {
	if id == NewSession {
		return "", Invalid("a new session has nothing to forget: name an existing one, or leave session_id out for this connection's own")
	}
	o, err := s.takeExisting(who, id)
	if o == nil || err != nil {
		return "", err
	}
	defer s.leave(o)
	if end {
		s.forget(o, "")
		err := s.remove(o)
		s.logEnd(o, "closed", err)
		return o.id, err
	}
	ctx, done := o.join(ctx)
	defer done()
	if err := o.lock(ctx); err != nil {
		return o.id, err
	}
	defer o.unlock()
	o.lost = ""
	if o.live() == nil && !o.kept {
		return o.id, nil
	}
	if err := s.awake(ctx, o); err != nil {
		return o.id, err
	}
	begun, err := s.beginCall(ctx, o)
	if err != nil {
		return o.id, err
	}
	defer begun()
	session, _, err := s.open(ctx, o, true)
	if err != nil {
		return o.id, err
	}
	return o.id, session.Reset(ctx)
}

// Disconnect says that a connection has ended. The contexts of its calls are the
// caller's to end; its session, which others may be using by its id, lives on
// until it has been idle for too long.
func (s *Sessions) Disconnect(who Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byConn, who)
	delete(s.ended, who)
}

// Close ends every session, or saves it for the next server where there will be
// one, and waits for every call. Later calls get ErrClosed.
func (s *Sessions) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.done)
	}
	s.closed = true
	var all []*owned
	for _, o := range s.byID {
		all = append(all, o)
	}
	clear(s.byID)
	clear(s.byConn)
	s.mu.Unlock()

	if s.cfg.Keep {
		err := s.leaveAll(all)
		s.wg.Wait()
		return err
	}
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, o := range all {
		closing.Go(func() { errs[i] = o.close() })
	}
	closing.Wait()
	s.wg.Wait()
	return errors.Join(errs...)
}

// take finds the caller's session, or makes an entry for a new one, and marks
// it as in use until leave.
func (s *Sessions) take(who Caller, id string) (*owned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.current(who, id)
	if err != nil {
		return nil, err
	}
	if o == nil {
		if o, err = s.add(who, id); err != nil {
			return nil, err
		}
	}
	s.use(o)
	return o, nil
}

// use marks a session as in use. mu is held.
func (s *Sessions) use(o *owned) {
	o.users++
	s.wg.Add(1)
	if o.nap != nil {
		o.nap.wake()
	}
}

// takeExisting is take without making anything: nil where there is no session.
func (s *Sessions) takeExisting(who Caller, id string) (*owned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.current(who, id)
	if o == nil || err != nil {
		return nil, err
	}
	s.use(o)
	return o, nil
}

// current is find, once a session that has grown too old, and that nobody uses, is gone:
// the sweep may not have come to it, as where an earlier server left it.
func (s *Sessions) current(who Caller, id string) (*owned, error) {
	o, err := s.find(who, id)
	if o == nil || o.users > 0 || !s.tooOld(o, time.Now()) {
		return o, err
	}
	s.endOld(o)
	return s.find(who, id)
}

// find returns nil where a new session is to be made. A stranger's, an ended
// and a malformed id are the same to the caller.
func (s *Sessions) find(who Caller, id string) (*owned, error) {
	switch {
	case s.closed:
		return nil, ErrClosed
	case who.Principal == "":
		return nil, &Error{Status: StatusDenied, Err: errors.New("no principal: the caller is not known")}
	case id == NewSession, id == "" && who.Connection == "":
		return nil, nil
	case id == "":
		return s.byConn[who], nil
	}
	if o := s.byID[id]; o != nil && o.owner == who.Principal {
		return o, nil
	}
	return nil, errUnknown()
}

func (s *Sessions) add(who Caller, id string) (*owned, error) {
	o := newOwned(uuid.NewString(), who.Principal)
	if err := s.makeRoom(o); err != nil {
		return nil, err
	}
	s.byID[o.id] = o
	if id == "" && who.Connection != "" {
		o.connection = who
		s.byConn[who] = o
		o.lost = s.ended[who]
		o.owed = o.lost
		delete(s.ended, who)
	}
	return o, nil
}

func (s *Sessions) leave(o *owned) {
	s.mu.Lock()
	if o.users--; o.users == 0 {
		o.crowded = false
	}
	o.used = time.Now()
	s.tellFreed()
	if s.over && o.users == 0 {
		s.makeUp()
	}
	s.mu.Unlock()
	s.wg.Done()
}

// drop takes a session out of the books; mu is held. why is what the
// connection's next call will say of it; "" = nothing.
func (s *Sessions) drop(o *owned, why string) {
	delete(s.byID, o.id)
	s.tellFreed()
	if s.byConn[o.connection] != o {
		return
	}
	delete(s.byConn, o.connection)
	switch {
	case why == "":
	case o.ran.Load():
		s.ended[o.connection] = why
	case o.lost != "": // nobody holds the turn of a session that is dropped with a reason
		s.ended[o.connection] = o.lost
	}
}

func (s *Sessions) forget(o *owned, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(o, why)
}

func (s *Sessions) logEnd(o *owned, reason string, err error) {
	s.log(err, "session ended", "session", o.id, "reason", reason, "after", time.Since(o.created))
}

func (s *Sessions) log(err error, what string, attrs ...any) {
	if err != nil {
		s.cfg.Log.Error(what, append(attrs, "err", err)...)
		return
	}
	s.cfg.Log.Info(what, attrs...)
}
