package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Quota is what one principal may have of what all share.
type Quota struct {
	// Sessions are those that are awake at once; beyond it the principal's own
	// longest idle one is hibernated, or ends where that can't be. Those that are
	// asleep don't count: MaxHibernated bounds them, for all principals together.
	// 0 = as many as there may be
	Sessions int
	Running  int // calls running at once; further ones wait; 0 = as many as there may be
}

func (q Quota) check() error {
	if q.Sessions < 0 || q.Running < 0 {
		return fmt.Errorf("%+v: a quota can't be negative", q)
	}
	return nil
}

func checkQuotas(all map[string]Quota) error {
	var errs []error
	for who, q := range all {
		if err := q.check(); err != nil {
			errs = append(errs, fmt.Errorf("quota of %s: %w", who, err))
		}
	}
	return errors.Join(errs...)
}

// makeRoom finds a place for o, which is to be awake: where all are taken, or all
// of its principal's quota, another session gives up its own. mu is held.
func (s *Sessions) makeRoom(o *owned) error {
	c := s.crowd(o)
	var victim *owned
	var why string
	most := s.cfg.MaxSessions
	switch {
	case s.atQuota(o.owner, c):
		most = s.cfg.Quotas[o.owner].Sessions
		victim = s.longestIdle(func(other *owned) bool { return other.owner == o.owner && other.hasPlace() })
		why = forQuota
	case c.taken >= most:
		victim = s.giver(o.owner, c.of, (*owned).hasPlace)
		why = forServer
	default:
		return nil
	}
	switch {
	case victim == nil && why == forServer && s.pushOut(o.owner, c.of):
	case victim == nil:
		return fmt.Errorf("%w: all %d sessions are in use; try again in a few seconds, or close one", ErrFull, most)
	case s.canNap(victim):
		n := s.startNap(victim, why)
		if c.leaving >= napping() { // or those that leave would take more memory than those that stay
			o.room = n.done
		}
	default:
		s.drop(victim, "the session's variables are gone: it was the longest idle one when "+why)
		s.wg.Go(func() { s.closeEnded(victim, "room") })
	}
	return nil
}

// Why a session has to give up its place, as its next result says.
const (
	forServer = "the server needed room"
	forQuota  = "another needed its place in your quota"
)

// hasPlace reports whether the session may have processes, and is not about to
// give them up. Sessions.mu is held.
func (o *owned) hasPlace() bool { return !o.asleep && o.nap == nil }

// crowd is who has a place.
type crowd struct {
	taken   int            // places
	of      map[string]int // likewise, each principal's
	leaving int            // sessions besides that are about to give up theirs
}

// crowd counts the sessions but o that are awake. mu is held.
func (s *Sessions) crowd(o *owned) crowd {
	c := crowd{of: map[string]int{}}
	for _, other := range s.byID {
		switch {
		case other == o, other.asleep:
		case other.nap != nil && other.nap.room != "":
			c.leaving++
		default:
			c.taken++
			c.of[other.owner]++
		}
	}
	return c
}

// atQuota reports whether who can have no further session awake.
func (s *Sessions) atQuota(who string, c crowd) bool {
	quota := s.cfg.Quotas[who].Sessions
	return quota > 0 && c.of[who] >= quota
}

// giver is the longest idle of the wanted sessions of whoever has the most, so
// that one who opens many takes none from one who has few. mu is held.
func (s *Sessions) giver(who string, held map[string]int, wanted func(*owned) bool) *owned {
	owners := slices.Collect(maps.Keys(held))
	slices.SortFunc(owners, func(a, b string) int {
		if c := cmp.Compare(held[b], held[a]); c != 0 {
			return c
		}
		switch who { // who asks gives first
		case a:
			return -1
		case b:
			return 1
		}
		return cmp.Compare(a, b)
	})
	for _, owner := range owners {
		if o := s.longestIdle(func(o *owned) bool { return o.owner == owner && wanted(o) }); o != nil {
			return o
		}
	}
	return nil
}

// longestIdle is, of the wanted sessions that nobody uses, the one unused for
// longest. mu is held.
func (s *Sessions) longestIdle(wanted func(*owned) bool) *owned {
	var oldest *owned
	for _, o := range s.byID {
		if o.users == 0 && wanted(o) && (oldest == nil || o.used.Before(oldest.used)) {
			oldest = o
		}
	}
	return oldest
}

// Info is what a principal is told of a session of theirs.
type Info struct {
	ID         string    `json:"session_id"`
	Created    time.Time `json:"created"`
	Used       time.Time `json:"used"`       // when the last call ended
	Calls      int       `json:"calls"`      // under way or waiting
	Own        bool      `json:"own"`        // some connection's own
	Hibernated bool      `json:"hibernated"` // it costs nothing but disk; the next call brings it back
}

// List tells of a principal's sessions, hibernated ones too, the oldest first.
func (s *Sessions) List(principal string) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Info{}
	for _, o := range s.byID {
		if o.owner == principal {
			all = append(all, Info{
				ID: o.id, Created: o.created, Used: o.used, Calls: o.users, Own: s.byConn[o.connection] == o, Hibernated: o.asleep,
			})
		}
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}
