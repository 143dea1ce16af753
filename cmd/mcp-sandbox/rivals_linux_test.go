package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkRivals measures the product against what a user would pick instead, in turn,
// in one run, and prints one table. With MCP_SANDBOX_TEST_BENCH_JSON set to a path, it
// is also written there. The work is fixed: -benchtime does not change it.
func BenchmarkRivals(b *testing.B) {
	r := newRace(b)
	r.part("warm", r.warm)
	r.part("100MB", func() { r.withData("100 MB", 10, 5, 6) })
	r.part("1GB", func() {
		if free := availableMemory(r.b); free < 10<<30 {
			r.b.Skipf("takes 10 GiB of memory, and %d MiB are free", free>>20)
		}
		r.withData("1 GB", 100, 3, 3)
	})
	r.part("new", func() {
		r.newSession("new session, first answer", "40 + 2", "42", 12)
		r.newSession("new session, pandas imported", withPandas, "41", 5)
	})
	r.part("memory", func() {
		r.memory("memory of an idle session", "40 + 2")
		r.memory("memory of an idle session, pandas imported", withPandas)
	})
	r.part("rate", r.sessionsPerSecond)
	r.report()
}

const (
	withPandas = `__import__("pandas").DataFrame({"a": [41]})["a"].sum().item()`
	count      = "x += 1\nx"
	// countInData changes what it holds, in another frame each time, so that nobody
	// could do without saving.
	countInData = "x += 1\nd[x % len(d)].iat[0, 0] = x\nint(d[x % len(d)].iat[0, 0])"
	// frames are 10 MB each, of numbers alone: the kindest data to whoever pickles.
	// A column of strings costs a pickle many times more.
	frames = "import numpy, pandas\nr = numpy.random.default_rng(7)\nd = [pandas.DataFrame(r.random((125_000, 10)), columns=list('abcdefghij')) for _ in range(%d)]\nlen(d)"
	held   = `globals().get("x", -1) if len(globals().get("d", ())) == %d else -1`
)

// race is one run of all contestants.
type race struct {
	b        *testing.B // of the part under way
	began    time.Time
	about    map[string]string
	entrants []entrant
	figures  figures
}

// entrant is a contestant in the table. Its calls are measured slow times more seldom.
type entrant struct {
	contestant
	name string
	slow int
}

func (e entrant) share(n int) int { return max(n/e.slow, 1) }

func newRace(b *testing.B) *race {
	python, server := installed(b, "MCP_SANDBOX_TEST_RIVALS_PYTHON"), binary(b)
	r := &race{b: b, began: time.Now(), about: about(b, python, server)}
	scratch, states := b.TempDir(), stateDirectory(b)
	enter := func(name string, slow int, c contestant, err error) {
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		b.Cleanup(func() {
			if err := c.end(); err != nil {
				b.Errorf("%s: %v", name, err)
			}
		})
		r.entrants = append(r.entrants, entrant{c, name, slow})
	}
	for _, checkpoint := range []string{"always", "idle", "off"} {
		c, err := newOurs(server, python, checkpoint)
		enter("checkpoint="+checkpoint, 1, c, err)
	}
	c, err := newIPykernel(python, scratch)
	enter("ipykernel", 1, c, err)
	for _, how := range []string{"plain", "apart"} {
		c, err := newRepickler(how, python, scratch, states)
		enter("re-pickled, "+how, 5, c, err)
	}
	return r
}

// part is what can be run alone, by -bench Rivals/name.
func (r *race) part(name string, f func()) {
	whole := r.b
	defer func() { r.b = whole }()
	whole.Run(name, func(b *testing.B) {
		r.b = b
		f()
		b.ReportMetric(0, "ns/op") // of all contestants together: says nothing
	})
}

// lane is an open session of an entrant, and what its x must be.
type lane struct {
	entrant
	contender
	x int
}

func (r *race) must(name string, err error) {
	r.b.Helper()
	if err != nil {
		r.b.Fatalf("%s: %v", name, err)
	}
}

// lanes opens a session of each entrant, and has it run code.
func (r *race) lanes(code string) []*lane {
	var lanes []*lane
	for _, e := range r.entrants {
		s, _, err := e.open("40 + 2")
		r.must(e.name, err)
		lanes = append(lanes, &lane{entrant: e, contender: s})
		_, err = s.run("x = 0\n" + code)
		r.must(e.name, err)
	}
	return lanes
}

func (r *race) leave(lanes []*lane) {
	for _, l := range lanes {
		r.must(l.name, l.close())
	}
}

// step is a call that counts, and must count right.
func (r *race) step(l *lane, code string) time.Duration {
	r.b.Helper()
	a, err := l.run(code)
	r.must(l.name, err)
	if l.x++; a.value != strconv.Itoa(l.x) {
		r.b.Fatalf("%s: %q, want %d", l.name, a.value, l.x)
	}
	return a.took
}

// calls measures code that counts, in rounds of some calls of each in turn, with a rest
// before each. The first of a round comes after the others' turns, which was another
// rest: it is not measured where that could matter.
func (r *race) calls(measure string, lanes []*lane, code string, rest time.Duration, rounds, calls int) {
	took := map[*lane][]float64{}
	for range rounds {
		for _, l := range lanes {
			if l.pid() != 0 {
				r.step(l, code)
			}
			for range l.share(calls) {
				time.Sleep(rest)
				took[l] = append(took[l], milliseconds(r.step(l, code)))
			}
		}
	}
	for _, l := range lanes {
		r.figures.add(measure, "ms", l.name, "", took[l]...)
	}
}

const rest = 100 * time.Millisecond // a model thinks longer

func (r *race) warm() {
	lanes := r.lanes("")
	defer r.leave(lanes)
	r.calls("warm call, 100 ms after the last", lanes, count, rest, 8, 5)
	r.calls("warm call, back to back", lanes, count, 0, 10, 20)
	r.recovery("recovery after a kill", lanes, count, `globals().get("x", -1)`, false, 12)
}

func (r *race) withData(size string, n, rounds, kills int) {
	lanes := r.lanes(fmt.Sprintf(frames, n))
	defer r.leave(lanes)
	r.calls("call with "+size+" of DataFrames, 100 ms after the last", lanes, countInData, rest, rounds, 5)
	r.recovery("recovery with "+size, lanes, countInData, fmt.Sprintf(held, n), true, kills)
}

// recovery is from the call that kills its interpreter to the next answer, which tells
// whether the variables are there. Who has lost them once is not asked again where they
// are dear.
func (r *race) recovery(measure string, lanes []*lane, code, kept string, dear bool, times int) {
	took, lost := map[*lane][]float64{}, map[*lane]int{}
	for range times {
		for _, l := range lanes {
			if dear && lost[l] > 0 {
				continue
			}
			time.Sleep(rest)
			r.step(l, code)
			time.Sleep(rest)
			a, err := l.kill(kept)
			r.must(l.name, err)
			took[l] = append(took[l], milliseconds(a.took))
			switch a.value {
			case strconv.Itoa(l.x):
			case "-1":
				lost[l]++
				l.x = 0
				_, err := l.run("x = 0")
				r.must(l.name, err)
			default:
				r.b.Fatalf("%s: %q, want %d or -1", l.name, a.value, l.x)
			}
		}
	}
	for _, l := range lanes {
		note := ""
		if lost[l] > 0 {
			note = "variables lost"
		}
		r.figures.add(measure, "ms", l.name, note, took[l]...)
	}
}

func (r *race) newSession(measure, expression, want string, times int) {
	took := map[string][]float64{}
	for range times {
		for _, e := range r.entrants {
			s, a, err := e.open(expression)
			r.must(e.name, err)
			if a.value != want {
				r.b.Fatalf("%s: %q, want %s", e.name, a.value, want)
			}
			took[e.name] = append(took[e.name], milliseconds(a.took))
			r.must(e.name, s.close())
			time.Sleep(rest) // the kernel takes processes and namespaces down meanwhile
		}
	}
	for _, e := range r.entrants {
		r.figures.add(measure, "ms", e.name, "", took[e.name]...)
	}
}

// memory is what each of some idle sessions adds to all processes together.
func (r *race) memory(measure, expression string) {
	const sessions = 10
	for _, e := range r.entrants {
		before := proportionalMemory(r.b, e.pid())
		var open []contender
		var stored int64
		for range sessions {
			s, _, err := e.open(expression)
			r.must(e.name, err)
			open = append(open, s)
			stored += s.stored()
		}
		if e.pid() != 0 {
			time.Sleep(2 * time.Second) // chores and checkpoints are done by then
		}
		each := (proportionalMemory(r.b, e.pid()) - before + stored) / sessions
		r.figures.add(measure, "MB", e.name, "", float64(each)/1e6)
		for _, s := range open {
			r.must(e.name, s.close())
		}
	}
}

// sessionsPerSecond opens sessions, twice as many at once as there are cores, each for
// one answer.
func (r *race) sessionsPerSecond() {
	const sessions, rounds = 16, 3
	rates := map[string][]float64{}
	for range rounds {
		for _, e := range r.entrants {
			begin := time.Now()
			r.must(e.name, inParallel(2*runtime.NumCPU(), sessions, func() error {
				s, a, err := e.open("40 + 2")
				if err == nil && a.value != "42" {
					err = fmt.Errorf("%q, want 42", a.value)
				}
				if err != nil {
					return err
				}
				return s.close()
			}))
			rates[e.name] = append(rates[e.name], sessions/time.Since(begin).Seconds())
			time.Sleep(rest)
		}
	}
	for _, e := range r.entrants {
		r.figures.add("sessions opened, used and closed", perSecond, e.name, "", rates[e.name]...)
	}
}

func inParallel(workers, times int, f func() error) error {
	work := make(chan struct{}, times)
	for range times {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() {
			for range work {
				errs[i] = errors.Join(errs[i], f())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func (r *race) report() {
	r.about["load"] += " at the beginning, " + load() + " at the end"
	r.about["took"] = time.Since(r.began).Round(time.Second).String()
	fmt.Printf("\n\nmedian · 99th percentile (number of values) × the first column's median; %s\n\n%s\n", describe(r.about), r.figures)
	path := os.Getenv("MCP_SANDBOX_TEST_BENCH_JSON")
	if path == "" {
		return
	}
	b, err := json.MarshalIndent(map[string]any{"about": r.about, "figures": r.figures}, "", "\t")
	r.must(path, err)
	r.must(path, os.WriteFile(path, append(b, '\n'), 0o644))
}

func describe(about map[string]string) string {
	var parts []string
	for _, k := range []string{"machine", "server", "python", "bubblewrap", "load", "took"} {
		parts = append(parts, k+" "+about[k])
	}
	return strings.Join(parts, "; ")
}
