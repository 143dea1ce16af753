package srt

// Fact is something that a wall or a limit is made of, and whether this machine has it.
type Fact struct {
	Name   string    // of the list below, or host's own: kernel, server
	State  FactState // what is known of it
	Detail string
	Remedy string // what would help where it is missing; "" = nothing known
}

// FactState is what is known of a fact.
type FactState string

// What a fact can be. That something is active is never taken from the machine's own
// word: only [Local.Prove] says so.
const (
	FactActive    FactState = "active"    // in force, by proof
	FactAvailable FactState = "available" // this machine offers it
	FactMissing   FactState = "missing"
	FactInfo      FactState = "info" // worth knowing, neither good nor bad
)

// The names of what walls are made of, in the order in which they are told.
const (
	factUserns    = "user namespace"
	factMountns   = "mount namespace"
	factPIDns     = "pid namespace"
	factNetns     = "network namespace"
	factOtherns   = "ipc, uts, cgroup namespaces"
	factProc      = "own /proc"
	factIdentity  = "no privileges"
	factLandlock  = "landlock"
	factSeccomp   = "seccomp"
	factRlimits   = "rlimits"
	factCgroup    = "cgroup"
	factWatchdog  = "watchdog"
	factKernel    = "kernel"
	factServer    = "server"
	factContainer = "container"
)

// Facts lists what this host offers to a wall. No session is started: whether a wall can
// be raised in the end, New tells. Where control groups can be had it makes one and takes
// it away again, and this process may come to be in one of its own, as with New.
func Facts() []Fact {
	n, err := newNative(nativeConfig{})
	if err == nil {
		defer n.close() // no session was started
	}
	return thisHost().facts(n)
}
