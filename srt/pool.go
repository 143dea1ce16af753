package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// pool keeps sessions ready that nobody has asked for yet: each with a directory, a
// workspace and a wall of its own, and an interpreter that has run nothing but imports.
// Each is handed out once. One goroutine makes them, one after the other, looks now and
// then whether they are still fit, and ends with the pool. It is safe for concurrent use.
type pool struct {
	local *Local
	ready chan *session // as many as there are to be; the goroutine alone sends
	taken chan struct{} // one was taken, or found unfit
	first chan error    // what became of the first

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	bounds func() []memoryBound
	serial int   // of the goroutine: names directories
	cost   int64 // likewise: bytes that the last one took
}

const (
	// warmPrefix begins the names of their directories; no session's id does.
	warmPrefix = ".warm-"
	// warmAge is how long one is kept: what it has imported may have been replaced
	// since, and cleaners of temporary directories take what is old.
	warmAge = time.Hour
	// warmPause lets a new session's first call go ahead of making the next one.
	warmPause = 50 * time.Millisecond
	// warmRound is between two looks at those that are ready, and two tries to make one.
	warmRound = 10 * time.Second
	// warmCost is what one takes at least, in bytes, until one was measured.
	warmCost = 32 * mib
	// preloadLimit is how long all the imports may take: with the first ones the server
	// waits, and its client with it, whose patience is half a minute or more.
	preloadLimit = 20 * time.Second
	// warmLeft is the part of memory, one in so many, that stays free for those who work.
	warmLeft = 10
)

// CheckWarm returns all that is wrong with what a Config is to keep ready, as far as can be
// told without an interpreter.
func CheckWarm(warm int, preload []string) error {
	var errs []error
	if warm < 0 {
		errs = append(errs, fmt.Errorf("warm: %d is negative", warm))
	}
	if warm == 0 && len(preload) > 0 {
		errs = append(errs, errors.New("preload: modules are imported in interpreters that are kept ready, and none is: set warm above 0"))
	}
	for _, name := range preload {
		if !isModule(name) {
			errs = append(errs, fmt.Errorf("preload: %q can't name a module", name))
		}
	}
	return errors.Join(errs...)
}

// isModule reports whether name is identifiers with dots between.
func isModule(name string) bool {
	begun := false
	for _, r := range name {
		switch {
		case r == '.' && begun:
			begun = false
		case r == '_', unicode.IsLetter(r), begun && unicode.IsDigit(r):
			begun = true
		default:
			return false
		}
	}
	return begun
}

// newPool starts to make what l is to keep ready; nil if that is nothing.
func newPool(l *Local) *pool {
	if l.cfg.Warm == 0 {
		return nil
	}
	if l.cfg.Workspace == "" && l.wall.places("").Host && l.state != nil {
		// The workspace would get another path with its session's name, and the guest knows it.
		l.cfg.Log.Warn("behind this wall no interpreter is kept ready where sessions outlive the server", "wall", l.wall.name())
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pool{
		local: l, ready: make(chan *session, l.cfg.Warm), taken: make(chan struct{}, 1),
		first: make(chan error, 1), cancel: cancel, done: make(chan struct{}), cost: warmCost,
		bounds: l.cfg.bounds,
	}
	if p.bounds == nil {
		p.bounds = func() []memoryBound { return memoryBounds("/proc") }
	}
	go p.keep(ctx)
	return p
}

// proven waits for the first one where modules are preloaded: one that can't be imported
// is to be known at the start.
func (p *pool) proven(ctx context.Context) error {
	if p == nil || len(p.local.cfg.Preload) == 0 {
		return nil
	}
	select {
	case err := <-p.first:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take is one that is ready; nil if none is. Whether it still lives is for the taker to see.
func (p *pool) take() *session {
	if p == nil {
		return nil
	}
	select {
	case s := <-p.ready:
		select {
		case p.taken <- struct{}{}:
		default:
		}
		return s
	default:
		return nil
	}
}

// size is how many are ready.
func (p *pool) size() int {
	if p == nil {
		return 0
	}
	return len(p.ready)
}

// close ends the goroutine, whatever it does, and all that is ready.
func (p *pool) close() {
	if p != nil {
		p.cancel()
		<-p.done
	}
}

// keep is the goroutine.
func (p *pool) keep(ctx context.Context) {
	defer close(p.done)
	defer p.weed(func(*session) bool { return true })
	due := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.taken: // one after the other must not put it off
			if soon := time.Now().Add(warmPause); soon.Before(due) {
				due = soon
				next.Reset(warmPause)
			}
			continue
		case <-next.C:
		}
		p.weed(p.unfit())
		p.fill(ctx)
		due = time.Now().Add(warmRound)
		next.Reset(warmRound)
	}
}

// fill makes as many as are missing and there is room for.
func (p *pool) fill(ctx context.Context) {
	for len(p.ready) < cap(p.ready) && ctx.Err() == nil {
		if p.serial > 0 && !p.hasRoom() { // the first one has to prove that it can be made
			return
		}
		s, err := p.make(ctx)
		select {
		case p.first <- err:
		default:
		}
		if err != nil {
			if ctx.Err() == nil {
				p.local.cfg.Log.Warn("no interpreter can be made ready", "err", err)
			}
			return
		}
		p.ready <- s // there is room: nobody else sends
	}
}

// memoryBound is something that bounds memory, in bytes.
type memoryBound struct{ limit, free int64 }

// hasRoom reports whether another one leaves enough memory for those who work.
func (p *pool) hasRoom() bool { return leaves(p.bounds(), p.cost) }

// leaves reports whether, once cost is taken, every bound has its share left.
func leaves(bounds []memoryBound, cost int64) bool {
	for _, b := range bounds {
		if b.free-cost < b.limit/warmLeft {
			return false
		}
	}
	return true
}

// unfit tells, of one after the other, the oldest first, whether to give it up. Where
// memory has become short, one goes at a time.
func (p *pool) unfit() func(*session) bool {
	short := !leaves(p.bounds(), 0)
	return func(s *session) bool {
		if short {
			short = false
			p.local.cfg.Log.Info("memory is short: one interpreter less is kept ready")
			return true
		}
		return time.Since(s.made) > warmAge || !s.live.client.IsWarm()
	}
}

// weed ends those of which out says so.
func (p *pool) weed(out func(*session) bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range len(p.ready) {
		select {
		case s := <-p.ready:
			if !out(s) {
				p.ready <- s
				continue
			}
			wg.Go(func() {
				if err := s.Close(); err != nil {
					p.local.cfg.Log.Warn("an interpreter that was ready is left", "err", err)
				}
			})
		default: // taken meanwhile
		}
	}
}

// makeDir makes a directory that is nobody's yet. One that a killed server left, and
// the start could not take away, is passed over: it may hold anything.
func (p *pool) makeDir() (string, error) {
	for {
		p.serial++
		dir := p.local.dirOf(warmPrefix + strconv.Itoa(p.serial))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

// make makes a session that has no id yet, and warms its interpreter up.
func (p *pool) make(ctx context.Context) (_ *session, err error) {
	l := p.local
	dir, err := p.makeDir()
	if err != nil {
		return nil, infra(failed(layerWorkspace, err))
	}
	s := l.blank(dir, l.cfg.Log)
	if err := s.makeWorkspace(); err != nil {
		return nil, errors.Join(infra(failed(layerWorkspace, err)), removeAll(s.dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.live, err = s.startInterpreter(ctx); err != nil {
		return nil, err
	}
	s.lazy = false
	// The end of ctx must not wait for imports to obey: it ends the interpreter.
	stop := context.AfterFunc(ctx, s.live.client.Close)
	defer stop()
	if err := s.live.client.Warm(context.WithoutCancel(ctx), l.cfg.Preload, preloadLimit); err != nil {
		return nil, l.coldBecause(err, s.live)
	}
	if n, err := s.live.cage.memory(); err == nil {
		p.cost = max(n, warmCost/4)
	}
	s.made = time.Now()
	return s, ctx.Err()
}

// coldBecause tells what went wrong while an interpreter was warmed up.
func (l *Local) coldBecause(err error, i *interpreter) error {
	var module kernel.ImportError
	var at *kernel.LoadError
	who := fmt.Sprintf("%s (Python %s)", l.python.Path, l.python.Version)
	switch {
	case errors.As(err, &module) && module.Missing():
		err = fmt.Errorf("%s can't import %w: install it there, or leave it out", who, module)
	case errors.As(err, &module):
		err = fmt.Errorf("%s can't import %w: leave it out", who, module)
	case errors.As(err, &at) && at.Index >= 0 && at.Late:
		err = fmt.Errorf("%s does not import all in %v, and the longest, %s, took %v: leave it out, and code that needs it imports it", who, preloadLimit, at.Name, at.Took.Round(100*time.Millisecond))
	case errors.As(err, &at) && at.Index >= 0:
		err = fmt.Errorf("%s ends when it imports %s (%w): leave it out", who, at.Name, at.Err)
	default:
		return &sandbox.Error{Status: sandbox.StatusInfra, Layer: "python", Err: err, Stderr: i.lastWords()}
	}
	return &sandbox.Error{Status: sandbox.StatusInfra, Layer: "preload", Err: err}
}
