package workloadtest

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Fault is what goes wrong with some of the requests that match it. The first
// that applies is taken.
type Fault struct {
	Method string         // "": any
	Path   *regexp.Regexp // of the path below /api/v2; nil: any

	From  int // the first matching request that is hit, from 1; 0: 1
	Every int // of the following ones every so many; 0: each
	Times int // how many are hit; 0: one, below 0: all

	Commit bool          // the request is carried out first; only its answer is lost
	Delay  time.Duration // before all else, of the platform's time

	// One of these; neither: the request is only delayed, and carried out.
	Status int  // with Header and Body
	Drop   bool // the connection is closed with no answer
	Hang   bool // no answer until the caller goes, or Close

	Cut    bool // the answer is cut off in the middle of its body
	Header http.Header
	Body   string
}

func (f Fault) check() error {
	said := 0
	for _, b := range []bool{f.Status != 0, f.Drop, f.Hang} {
		if b {
			said++
		}
	}
	if said > 1 {
		return errors.New("only one of Status, Drop and Hang can be")
	}
	if f.Cut && (f.Drop || f.Hang) {
		return errors.New("where there is no answer, none can be cut")
	}
	return nil
}

// faults counts which of the rules are due.
type faults struct {
	mu    sync.Mutex
	rules []Fault
	seen  []int // matching requests of each rule
	hit   []int
}

func newFaults(rules []Fault) *faults {
	return &faults{rules: rules, seen: make([]int, len(rules)), hit: make([]int, len(rules))}
}

// due is the fault of a request, or nil.
func (f *faults) due(method, path string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var due *Fault
	for i := range f.rules {
		rule := &f.rules[i]
		if rule.Method != "" && rule.Method != method || rule.Path != nil && !rule.Path.MatchString(path) {
			continue
		}
		f.seen[i]++
		if due == nil && f.hits(i) {
			f.hit[i]++
			due = rule
		}
	}
	return due
}

func (f *faults) hits(i int) bool {
	rule := f.rules[i]
	times := max(rule.Times, 1)
	if rule.Times < 0 {
		times = math.MaxInt
	}
	after := f.seen[i] - max(rule.From, 1)
	return after >= 0 && after%max(rule.Every, 1) == 0 && f.hit[i] < times
}

// strike serves a request with its fault.
func (e *Emulator) strike(f *Fault, w http.ResponseWriter, r *http.Request) {
	if e.clock.sleep(r.Context(), f.Delay) != nil {
		panic(http.ErrAbortHandler) // the caller has gone
	}
	replaced := f.Status != 0 || f.Drop || f.Hang
	if !replaced && !f.Cut {
		e.mux.ServeHTTP(w, r)
		return
	}
	lost := recorder{header: http.Header{}}
	if f.Commit || !replaced {
		e.mux.ServeHTTP(&lost, r)
	}
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler) // closes the connection
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-e.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		lost = recorder{header: f.Header, status: f.Status}
		lost.body.WriteString(f.Body)
	}
	lost.send(w, f.Cut)
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *recorder) Header() http.Header { return a.header }

func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recorder) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// send gives the answer, or, cut, the half of it.
func (a *recorder) send(w http.ResponseWriter, cut bool) {
	maps.Copy(w.Header(), a.header)
	body := a.body.Bytes()
	if cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		body = body[:len(body)/2]
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	_, _ = w.Write(body) // the caller may have gone
	if cut {
		_ = http.NewResponseController(w).Flush() // likewise
		panic(http.ErrAbortHandler)
	}
}
