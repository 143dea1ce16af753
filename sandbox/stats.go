package sandbox

// Stats is what Sessions and the sandbox below are doing, and what they have done
// since they began.
type Stats struct {
	Awake        int   // sessions that may have processes
	Hibernated   int   // sessions that cost nothing but disk
	Running      int   // calls that have a place
	Waiting      int   // calls that wait for one
	Hibernations int64 // sessions that were saved to disk while the server ran, whether or not they came back
	Checkpoints
}

// Checkpoints counts copies of interpreters.
type Checkpoints struct {
	Made  int64 // parked, ready to take over
	Taken int64 // have taken over
}

// Checkpointer is a power that a Sandbox may have besides: it tells of the checkpoints
// of all its sessions, those that have ended too.
type Checkpointer interface {
	Checkpoints() Checkpoints
}

// Stats tells what is under way.
func (s *Sessions) Stats() Stats {
	st := Stats{Hibernations: s.hibernations.Load()}
	st.Running, st.Waiting = s.queue.count()
	if c, ok := s.cfg.Sandbox.(Checkpointer); ok {
		st.Checkpoints = c.Checkpoints()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.byID {
		if o.asleep {
			st.Hibernated++
		} else {
			st.Awake++
		}
	}
	return st
}
