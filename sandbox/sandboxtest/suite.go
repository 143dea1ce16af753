package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// Run is the conformance suite: programs over sequences of calls, each with the
// Result that it must yield on every backend. open makes a fresh session with an
// empty workspace and closes it at the end of the test that it is given.
//
// Times are measured and logged. A call may return 2.5 s after its limit: the
// median of all that ran into theirs must hold that, each single one may be late
// by as much more as a loaded machine explains.
func Run(t *testing.T, open func(t *testing.T) sandbox.Session, has Abilities) {
	runGroups(t, open, has, groups())
}

// group is a part of the suite. Those of its programs that need no session of
// their own share one.
type group struct {
	name     string
	programs []program
	parallel bool // they wait most of their time, each in its own session
}

func groups() []group {
	return []group{
		{name: "state", programs: statePrograms()},
		{name: "values", programs: valuePrograms()},
		{name: "errors", programs: errorPrograms()},
		{name: "output", programs: outputPrograms()},
		{name: "library", programs: libraryPrograms()},
		{name: "endings", programs: endingPrograms(), parallel: true},
		{name: "limits", programs: limitPrograms()},
		{name: "session", programs: sessionPrograms()},
		{name: "hibernation", programs: hibernationPrograms()},
		{name: "commands", programs: commandPrograms()},
		{name: "externals", programs: externalPrograms(), parallel: true},
		{name: "hostile", programs: hostilePrograms()},
	}
}

func runGroups(t *testing.T, open func(t *testing.T) sandbox.Session, has Abilities, groups []group) {
	limits, err := has.Limits.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	has.Limits = limits
	var times overshoots
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			var shared *guest // of the programs that need no session of their own
			for _, p := range group.programs {
				g := shared
				apart := has.Stateless && p.do == nil // a session would only make its calls wait for each other
				if p.fresh || p.do != nil || apart {
					g = nil
				} else if g == nil {
					shared = &guest{s: open(t), has: has, open: open, times: &times}
					g = shared
				}
				passed := t.Run(p.name, func(t *testing.T) {
					if group.parallel || apart {
						t.Parallel()
					}
					has.need(t, p.needs)
					if p.heavy && !has.Heavy {
						t.Skip("heavy: asked for by Abilities.Heavy")
					}
					if g == nil {
						g = &guest{s: open(t), has: has, open: open, times: &times}
					}
					p.run(t, g)
				})
				if !passed && g == shared {
					shared = nil
				}
			}
		})
	}
	times.check(t) // the parallel ones have ended with their group
}

// promised is how much beyond its limit a call may return, late what a loaded
// machine may make of it.
const (
	promised = 2500 * time.Millisecond
	late     = promised + 5*time.Second
)

// overshoots are by how much the calls that were stopped at their limit came
// back after it. It is safe for concurrent use.
type overshoots struct {
	mu  sync.Mutex
	all []time.Duration
}

func (o *overshoots) add(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, d)
}

func (o *overshoots) check(t *testing.T) {
	t.Helper()
	if len(o.all) == 0 {
		return
	}
	slices.Sort(o.all)
	median := o.all[len(o.all)/2]
	t.Logf("%d calls were stopped at their limit: %v after it at the median, %v at most; %v", len(o.all), median, o.all[len(o.all)-1], o.all)
	if median > promised {
		t.Errorf("half of the %d calls stopped at their limit came back more than %v after it; %v are promised", len(o.all), median, promised)
	}
}

// program is one thing that a backend must do.
type program struct {
	name  string
	needs []Ability
	fresh bool // needs a session of its own
	heavy bool
	alone bool // none of its steps needs an earlier one
	steps []step
	do    func(t *testing.T, g *guest) // instead of steps; has a session of its own
}

// anything stands for a text or a value that is not looked at.
const anything = "\x00anything"

// step is one call, and what its Result must be. What is left out must be
// empty: a step that says nothing of stderr wants none.
type step struct {
	code    string
	inputs  map[string]any
	timeout time.Duration
	reset   bool // Reset before it

	status sandbox.Status // "" = ok
	exit   int            // 0 = the status's own
	output string         // JSON
	ret    string         // JSON
	stdout string
	stderr string
	errs   []string // parts of Error
	not    []string // what must be in no part of the Result

	loses bool // ends the interpreter: the state is lost, or restored
	may   bool // may do so
	alone bool // needs no earlier step
	any   bool // any well-formed Result will do

	between time.Duration // what it leaves running needs so long to end
	// needsTracing leaves the step out where /proc can't be read from inside.
	needsTracing bool
	check        func(t *testing.T, r sandbox.Result)
}

// guest is a session with what is known of it. It is not safe for concurrent use.
type guest struct {
	s     sandbox.Session
	has   Abilities
	open  func(t *testing.T) sandbox.Session
	ran   bool // the interpreter has run something: the next state is kept
	marks int
	times *overshoots
}

func (p program) run(t *testing.T, g *guest) {
	if p.do != nil {
		if g.has.Stateless {
			t.Skip("it needs what a session remembers")
		}
		p.do(t, g)
		return
	}
	for i, s := range p.steps {
		if g.has.Stateless && i > 0 && !p.alone && !s.alone {
			continue
		}
		if _, lacks := g.has.Lacks[Tracing]; lacks && s.needsTracing {
			continue
		}
		g.step(t, i, s)
		if t.Failed() {
			t.Logf("step %d was:\n%s", i, s.code)
			return
		}
	}
}

// step runs one step and compares.
func (g *guest) step(t *testing.T, i int, s step) {
	t.Helper()
	if s.reset {
		if err := g.s.Reset(t.Context()); err != nil {
			t.Fatalf("step %d: Reset: %v", i, err)
		}
		g.ran = false
	}
	wrecks := (s.loses || s.may || s.any) && !g.has.Stateless // and what was kept is to be found out
	if wrecks {
		g.mark(t)
	}
	wasNew := !g.ran
	r, took := g.call(t, sandbox.Request{Code: s.code, Inputs: s.inputs, Timeout: s.timeout})
	if s.timeout > 0 {
		t.Logf("step %d: %v for a limit of %v, state %s", i, took.Round(time.Millisecond), s.timeout, r.State)
		if took > s.timeout+late {
			t.Errorf("step %d: took %v where the limit was %v", i, took, s.timeout)
		}
		if r.Status == sandbox.StatusTimeout {
			g.times.add((took - s.timeout).Round(time.Millisecond))
		}
	}
	if s.any {
		t.Logf("step %d: status %s, exit code %d, state %s, %.200s", i, r.Status, r.ExitCode, r.State, r.Error)
	} else {
		s.compare(t, i, r)
	}
	if s.check != nil {
		s.check(t, r)
	}
	switch {
	case g.has.Stateless:
		if r.State != sandbox.StateNone {
			t.Errorf("step %d: state %s, though nothing is remembered", i, r.State)
		}
	case s.loses && r.State != sandbox.StateLost && r.State != sandbox.StateRestored:
		t.Errorf("step %d: state %s, though the interpreter ended", i, r.State)
	case s.loses, s.may, s.any:
	case wasNew && r.State != sandbox.StateNew:
		t.Errorf("step %d: state %s, want new", i, r.State)
	case !wasNew && r.State != sandbox.StateKept:
		t.Errorf("step %d: state %s, want kept", i, r.State)
	}
	g.ran = r.State != sandbox.StateLost
	time.Sleep(s.between)
	if wrecks {
		g.truth(t, i, r.State)
	}
}

// call is one Run that must not fail.
func (g *guest) call(t *testing.T, req sandbox.Request) (sandbox.Result, time.Duration) {
	t.Helper()
	limit := req.Timeout
	if limit == 0 {
		limit = sandbox.DefaultTimeout
	}
	// A backend that hangs fails here, not at the test binary's own end.
	ctx, cancel := context.WithTimeout(t.Context(), limit+4*late)
	defer cancel()
	start := time.Now()
	r, err := g.s.Run(ctx, req)
	took := time.Since(start)
	if err != nil {
		t.Fatalf("Run after %v: %v (status %s, %s)", took, err, r.Status, r.Error)
	}
	wellFormed(t, r)
	return r, took
}

// mark sets a variable by which truth can tell whether variables were kept.
func (g *guest) mark(t *testing.T) {
	t.Helper()
	g.marks++
	r, _ := g.call(t, sandbox.Request{Code: "kept_mark = inputs['n']", Inputs: map[string]any{"n": g.marks}})
	if r.Status != sandbox.StatusOK {
		t.Fatalf("before the step: status %s, %s", r.Status, r.Error)
	}
	g.ran = true
}

// truth compares the state that a call reported with what is there. After a
// call that was allowed to wreck the interpreter, one more may fall.
func (g *guest) truth(t *testing.T, i int, state sandbox.State) {
	t.Helper()
	for attempt := range 2 {
		r, took := g.call(t, sandbox.Request{Code: "[globals().get('kept_mark'), 40 + 2]", Timeout: 10 * time.Second})
		if r.Status != sandbox.StatusOK {
			if attempt == 0 && (r.State == sandbox.StateLost || r.State == sandbox.StateRestored) {
				t.Logf("step %d: the call after it fell too: status %s, state %s, %s", i, r.Status, r.State, r.Error)
				if r.State == sandbox.StateLost {
					state = sandbox.StateLost
				}
				continue
			}
			t.Fatalf("step %d: the next call does not work: status %s after %v, state %s, %s", i, r.Status, took, r.State, r.Error)
		}
		g.ran = true
		kept := "null"
		if state != sandbox.StateLost && r.State != sandbox.StateLost {
			kept = text(g.marks)
		}
		if want := "[" + kept + ", 42]"; !same(r.Output, want) {
			t.Errorf("step %d: state %s, but then the variable and 40 + 2 are %s, want %s", i, state, r.Output, want)
		}
		switch {
		case state == sandbox.StateLost && r.State == sandbox.StateKept:
			t.Errorf("step %d: state lost, and the next call's is %s", i, r.State)
		case state != sandbox.StateLost && r.State == sandbox.StateNew:
			t.Errorf("step %d: state %s, and the next call's is new", i, state)
		}
		return
	}
}

// compare holds a Result against what a step wants.
func (s step) compare(t *testing.T, i int, r sandbox.Result) {
	t.Helper()
	status := s.status
	if status == "" {
		status = sandbox.StatusOK
	}
	exit := s.exit
	if exit == 0 {
		exit = status.ExitCode()
	}
	if r.Status != status || r.ExitCode != exit {
		t.Errorf("step %d: status %s with exit code %d, want %s with %d; error: %.2000s\nstderr: %.500s", i, r.Status, r.ExitCode, status, exit, r.Error, r.Stderr)
	}
	for _, v := range []struct {
		name      string
		got, want string
	}{{"output", string(r.Output), s.output}, {"return value", string(r.ReturnValue), s.ret}} {
		if v.want != anything && !same([]byte(v.got), v.want) {
			t.Errorf("step %d: %s is %.300s, want %.300s", i, v.name, or(v.got, "none"), or(v.want, "none"))
		}
	}
	for _, v := range []struct {
		name      string
		got, want string
	}{{"stdout", r.Stdout, s.stdout}, {"stderr", r.Stderr, s.stderr}} {
		if v.want != anything && v.got != v.want {
			t.Errorf("step %d: %s is %.300q, want %.300q", i, v.name, v.got, v.want)
		}
	}
	for _, part := range s.errs {
		if !strings.Contains(r.Error, part) {
			t.Errorf("step %d: the error lacks %q: %.2000s", i, part, r.Error)
		}
	}
	all := string(r.Output) + string(r.ReturnValue) + r.Stdout + r.Stderr + r.Error
	for _, part := range s.not {
		if strings.Contains(all, part) {
			t.Errorf("step %d: %q does not belong there: %.2000s", i, part, all)
		}
	}
}

// same compares JSON by value; "" is no JSON at all.
func same(got []byte, want string) bool {
	if len(got) == 0 || want == "" {
		return len(got) == 0 && want == ""
	}
	var a, b any
	for _, v := range []struct {
		from []byte
		to   *any
	}{{got, &a}, {[]byte(want), &b}} {
		d := json.NewDecoder(bytes.NewReader(v.from))
		d.UseNumber()
		if d.Decode(v.to) != nil {
			return false
		}
	}
	return reflect.DeepEqual(a, b)
}

// text is v as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the tests' own constants
	}
	return string(b)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
