package workloadtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

var _ http.Handler = (*Emulator)(nil)

// Config is what an emulator is made from. But for what says that it is
// required, the zero value is a cluster that behaves, at the platform's own pace.
type Config struct {
	Start  Starter  // required
	Python string   // required: the interpreter of the containers, a path of this machine
	Token  string   // required: what a request must bear
	Tokens []string // those of further users, who do not see each other's workloads

	Speed float64      // how many times faster than the platform; 0: 1. The code in containers is not sped up
	Log   *slog.Logger // nil: none

	Cluster Cluster
	Logs    Logs
	Faults  []Fault
}

// Emulator is one cluster. It serves HTTP, from as many goroutines as there are
// requests, until Close.
type Emulator struct {
	cfg    Config
	clock  clock
	mux    *http.ServeMux
	faults *faults

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	live   sync.WaitGroup // the workloads' goroutines

	mu        sync.Mutex
	closed    bool
	workloads map[string]*workload // those that have a record
	deleted   []*workload          // the logs stay, of the last ones
	artifacts map[string]*artifact
	processes int
	created   int
	requests  []Seen
	count     int
}

// New makes an emulator. It returns all faults of cfg together.
func New(cfg Config) (*Emulator, error) {
	var faults []error
	if cfg.Start == nil {
		faults = append(faults, errors.New("workloadtest: no Start"))
	}
	if cfg.Python == "" {
		faults = append(faults, errors.New("workloadtest: no Python"))
	}
	if cfg.Token == "" || slices.Contains(cfg.Tokens, "") {
		faults = append(faults, errors.New("workloadtest: an empty token"))
	}
	if cfg.Speed < 0 {
		faults = append(faults, errors.New("workloadtest: Speed is below 0"))
	}
	for i, f := range cfg.Faults {
		if err := f.check(); err != nil {
			faults = append(faults, errors.Join(errors.New("workloadtest: fault "+strconv.Itoa(i)), err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if cfg.Speed == 0 {
		cfg.Speed = 1
	}
	cfg.Cluster, cfg.Logs = cfg.Cluster.withDefaults(), cfg.Logs.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Emulator{
		cfg: cfg, clock: clock{cfg.Speed}, faults: newFaults(cfg.Faults),
		workloads: map[string]*workload{}, artifacts: map[string]*artifact{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.mux = e.routes()
	return e, nil
}

// Close kills all containers, ends what hangs, and waits for both. Requests are
// answered with 503 from then on. It may be called twice.
func (e *Emulator) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.live.Wait()
}

// Counters say what there is now, for a test of leaks.
type Counters struct {
	Processes int // that run
	Workloads int // that have a record
	Artifacts int
	Created   int // workloads, since New
	Requests  int // since New, those to containers included
}

// Counters counts.
func (e *Emulator) Counters() Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Counters{
		Processes: e.processes, Workloads: len(e.workloads), Artifacts: len(e.artifacts),
		Created: e.created, Requests: e.count,
	}
}

// Seen is a request that came, for a test of what a client sends.
type Seen struct {
	Method, URI string
	Status      int // 0: no answer was given
}

// Seen lists the requests so far, the last 10,000 of them.
func (e *Emulator) Seen() []Seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

const maxSeen = 10_000

func (e *Emulator) saw(s Seen) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	e.requests = append(e.requests, s)
	if len(e.requests) > maxSeen {
		e.requests = slices.Delete(e.requests, 0, maxSeen/10)
	}
}

// Kill ends the process of a workload's container by SIGKILL, as an eviction
// would, or, if oom, as the kernel's OOM killer. The platform starts it again.
// It reports whether there was one.
func (e *Emulator) Kill(workloadID string, oom bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.workloads[workloadID]
	if w == nil || w.pod.process == nil {
		return false
	}
	w.pod.oom = oom
	w.pod.process.Kill()
	return true
}

// newID is one of the platform's: 24 hexadecimal digits.
func newID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// now is the time of records, which has microseconds.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }
