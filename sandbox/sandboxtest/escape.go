package sandboxtest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// EscapeEnv is what a probe would love to find on the host; [Bait] lays it out.
// All of it must be there for the server while the probes run: a probe that
// looks for what nobody has laid out proves nothing.
type EscapeEnv struct {
	CanaryName  string // of a variable in the server's environment
	CanaryValue string // its value, which is also the content of CanaryFile
	CanaryFile  string // absolute, readable by everybody on the host
	Loopback    string // host:port of a listener of the host
	Abstract    string // name of an abstract socket of the host, without its NUL
	Socket      string // path of a listening socket of the host
	HostPID     int    // the server's
	HostStart   string // the server's start time, as in /proc/PID/stat
	HostPIDNS   string // the server's pid namespace, as /proc/self/ns/pid reads
	Hostname    string // the host's

	// Limits are those of the sessions that Escape opens. Small ones keep the
	// LM probes light; they are not tried above 512 MiB, 256 MiB of disk, 20,000
	// inodes and 512 tasks.
	Limits sandbox.Limits

	// Except names probes whose verdict on this wall is another one on purpose,
	// each with the reason, which the wall's documentation must give too.
	Except map[string]string

	// Watched names probes of limits that a watch holds here and not the kernel, each with
	// the reason, which the documentation must give too: what is quick is over before the
	// watch looks. The wall's own tests must show that it does look.
	Watched map[string]string
}

// inputs are what the probes get. Their names are those in prelude.py.
func (e EscapeEnv) inputs() map[string]any {
	l := e.Limits
	return map[string]any{
		"canary_name": e.CanaryName, "canary_value": e.CanaryValue, "canary_file": e.CanaryFile,
		"loopback": e.Loopback, "abstract": e.Abstract, "socket": e.Socket,
		"host_pid": e.HostPID, "host_start": e.HostStart, "host_pidns": e.HostPIDNS, "hostname": e.Hostname,
		"token": "probe-" + e.CanaryValue,
		"limits": map[string]any{
			"memory": l.Memory, "tasks": l.Tasks, "disk": l.Disk, "inodes": l.Inodes, "shm": l.Shm, "open_files": l.OpenFiles,
		},
	}
}

// small reports whether the LM probes can be tried without hurting the machine.
func (e EscapeEnv) small() bool {
	l := e.Limits
	return l.Memory > 0 && l.Memory <= 512<<20 && l.Disk > 0 && l.Disk <= 256<<20 && l.Shm > 0 && l.Shm <= 256<<20 &&
		l.Inodes > 0 && l.Inodes <= 20_000 && l.Tasks > 0 && l.Tasks <= 512 && l.OpenFiles > 0 && l.OpenFiles <= 4096
}

// Times of the escape table. They are generous, since machines are loaded;
// what a probe takes is logged.
const (
	probeTimeout = 40 * time.Second
	wreckTimeout = 6 * time.Second // what attacks the channel may make its call mute
	pingTimeout  = 10 * time.Second
	closeBound   = 15 * time.Second
)

// Escape tries to get through the wall: all [Probes], one subtest for each ID.
// open makes a fresh session behind it. Probes that leave their session as it
// was share one; a bystander's session is asked again and again meanwhile, and
// must neither be slowed down nor lose a variable.
func Escape(t *testing.T, open func(t *testing.T) sandbox.Session, env EscapeEnv) {
	by := newBystander(t, open(t))
	shared := open(t)
	for _, p := range Probes() {
		t.Run(p.ID, func(t *testing.T) {
			if strings.HasPrefix(p.ID, "LM-") {
				Require(t, env.small(), "the sessions' limits are too large to be tried: see EscapeEnv.Limits")
			}
			var got Verdict
			var detail string
			if p.fresh {
				got, detail = wreck(t, open, by, p, env)
			} else {
				got, detail = try(t, shared, p.Code, env)
			}
			if watched := env.Watched[p.ID]; watched != "" && got == Allowed && p.Want == Held {
				t.Logf("%s: over before the watch of this wall looked (%s): %s", p.Try, watched, detail)
			} else {
				verdict(t, p, got, detail, env.Except[p.ID])
			}
			by.ask(t)
		})
	}
}

// absent are the probes of what an architecture does not have. No other may
// find that there is nothing to try.
var absent = map[string][]string{
	"arm64": {"SY-13", "SY-17", "SY-23", "SY-24"},
}

// verdict compares.
func verdict(t *testing.T, p Probe, got Verdict, detail, exception string) {
	t.Helper()
	t.Logf("%s: %s (wanted %s): %s", p.Try, got, p.Want, detail)
	switch {
	case got == None:
		known := exception != "" || slices.Contains(absent[runtime.GOARCH], p.ID)
		Require(t, known, "there is said to be no such thing here, which nobody has expected: "+detail)
		t.Skipf("no such thing here: %s", detail)
	case got == Failed:
		t.Errorf("%s: the probe could not try: %s", p.Try, detail)
	case p.Want == Info && (got == Allowed || got == Denied), got == p.Want:
		if exception != "" {
			t.Errorf("%s: got %s, as every wall should, but an exception says otherwise: %s", p.Try, got, exception)
		}
	case exception != "":
		t.Logf("an exception of this wall: %s", exception)
	default:
		t.Errorf("%s: got %s, want %s: %s", p.Try, got, p.Want, detail)
	}
}

// try runs a probe and reads its verdict.
func try(t *testing.T, s sandbox.Session, code string, env EscapeEnv) (Verdict, string) {
	t.Helper()
	res, err := s.Run(t.Context(), sandbox.Request{Code: code, Inputs: env.inputs(), Timeout: probeTimeout})
	if err != nil {
		return Failed, fmt.Sprintf("Run: %v", err)
	}
	return said(res)
}

// said is what the probe itself says, if it lived to say it.
func said(res sandbox.Result) (Verdict, string) {
	var pair [2]string
	if res.Status != sandbox.StatusOK {
		return Failed, fmt.Sprintf("status %s, exit code %d: %s", res.Status, res.ExitCode, res.Error)
	}
	if err := json.Unmarshal(res.ReturnValue, &pair); err != nil {
		return Failed, fmt.Sprintf("returned %.200q: %v", res.ReturnValue, err)
	}
	return Verdict(pair[0]), pair[1]
}

// wreck runs a probe in a session of its own and judges by what follows: a call
// may end badly, but it ends, the session goes on, and nobody believes a lie.
func wreck(t *testing.T, open func(t *testing.T) sandbox.Session, by *bystander, p Probe, env EscapeEnv) (Verdict, string) {
	t.Helper()
	s := open(t)
	if res, err := s.Run(t.Context(), sandbox.Request{Code: "mark = 'm1'"}); err != nil || !res.Success() {
		return Failed, fmt.Sprintf("before the probe: %v, %s", err, res.Error)
	}
	stop := func() {}
	if by != nil {
		stop = by.watch(t)
	}
	start := time.Now()
	timeout := probeTimeout
	if strings.HasPrefix(p.ID, "PX-") {
		timeout = wreckTimeout
	}
	res, err := s.Run(t.Context(), sandbox.Request{Code: p.Code, Inputs: env.inputs(), Timeout: timeout})
	took := time.Since(start)
	stop()
	if err != nil {
		return Allowed, fmt.Sprintf("Run gave an error after %v, where the guest's doing is a Result: %v", took, err)
	}
	wellFormed(t, res)
	got, detail := said(res)
	if got == Failed && res.Status != sandbox.StatusOK && p.Want == Held {
		got, detail = Held, detail+" (the call ended)"
	}
	if fault := forged(p, res); fault != "" {
		return Allowed, fault
	}
	if got == None || got == Failed {
		return got, detail
	}
	detail = fmt.Sprintf("%s; status %s, state %s, %v", detail, res.Status, res.State, took.Round(time.Millisecond))
	if fault := aftermath(t, s, p, res, env); fault != "" {
		return Allowed, detail + "; afterwards " + fault
	}
	start = time.Now()
	if err := s.Close(); err != nil {
		return Allowed, fmt.Sprintf("%s; Close: %v", detail, err)
	}
	if took := time.Since(start); took > closeBound {
		return Allowed, fmt.Sprintf("%s; Close took %v", detail, took)
	}
	if left := hostProcesses("probe-" + env.CanaryValue); len(left) > 0 {
		return Allowed, fmt.Sprintf("%s; after Close %d processes of the session live on: %v", detail, len(left), left)
	}
	return got, detail
}

// forged reports a result that holds what only a forged frame said.
func forged(p Probe, res sandbox.Result) string {
	const token = "FORGED"
	if p.takeover || p.ID == "PX-06" { // what it says of itself is its own affair
		return ""
	}
	// Streams are not looked at: whoever runs code may print.
	texts := map[string]string{"output": string(res.Output), "return value": string(res.ReturnValue), "notes": strings.Join(res.Notes, "\n")}
	for where, text := range texts {
		if strings.Contains(text, token) {
			return fmt.Sprintf("a forged %s was believed: %.200q", where, text)
		}
	}
	return ""
}

// aftermath looks at the calls after an attack: at most one of them may fall
// to it, then the session works; its state is the truth; nothing forged appears.
func aftermath(t *testing.T, s sandbox.Session, p Probe, before sandbox.Result, env EscapeEnv) string {
	t.Helper()
	ctx := t.Context()
	if p.Then != "" {
		res, err := s.Run(ctx, sandbox.Request{Code: p.Then, Timeout: wreckTimeout})
		if err != nil {
			return fmt.Sprintf("the second part: %v", err)
		}
		if strings.Contains(string(res.ReturnValue), "STALE-") {
			return "the reply of an earlier call was believed"
		}
		before = res
	}
	if p.takeover {
		if err := s.Reset(ctx); err != nil {
			return fmt.Sprintf("Reset: %v", err)
		}
	}
	code := "['mark' in globals() and mark == 'm1', 40 + 2, False]"
	if p.ID == "PX-12" { // whose files leave a trace when they are run
		code = "import os\n['mark' in globals() and mark == 'm1', 40 + 2, os.path.exists('poisoned')]"
	}
	if strings.HasPrefix(p.ID, "LM-") { // what it wrote is still there if it was killed
		code = "import glob, os, shutil, tempfile\nfor d in (os.getcwd(), tempfile.gettempdir(), '/dev/shm'):\n  for p in glob.glob(os.path.join(d, 'probe-*')):\n" +
			"    shutil.rmtree(p) if os.path.isdir(p) else os.unlink(p)\n" + code
	}
	var fault string
	for range 2 {
		res, err := s.Run(ctx, sandbox.Request{Code: code, Timeout: wreckTimeout})
		if err != nil {
			return fmt.Sprintf("the next call: %v", err)
		}
		wellFormed(t, res)
		all := string(res.Output) + string(res.ReturnValue)
		if p.takeover { // what it planted must not be loaded by an interpreter started after it
			all += res.Stdout + res.Stderr + res.Error
		}
		if strings.Contains(all, "FORGED") {
			return fmt.Sprintf("the next call was poisoned: %.300q", all)
		}
		if res.Status != sandbox.StatusOK {
			fault = fmt.Sprintf("the next calls fail: status %s, %s", res.Status, res.Error)
			before = res
			continue
		}
		var pair [3]any
		if err := json.Unmarshal(res.Output, &pair); err != nil || pair[1] != 42.0 {
			return fmt.Sprintf("the next call answers %.200s: %v", res.Output, err)
		}
		if pair[2] == true {
			return "what the guest planted was run by the interpreter that came after it"
		}
		fault = ""
		kept, _ := pair[0].(bool)
		if p.takeover {
			if kept || res.State != sandbox.StateNew {
				return fmt.Sprintf("after Reset: state %s, variables kept: %v", res.State, kept)
			}
		} else if want := res.State == sandbox.StateKept || res.State == sandbox.StateRestored; want != kept {
			return fmt.Sprintf("state %s then %s, yet variables kept: %v", before.State, res.State, kept)
		}
		break
	}
	if fault == "" && p.ID == "PX-14" {
		return links(s, env)
	}
	return fault
}

// links follows what the guest planted, as a server would that reads files.
func links(s sandbox.Session, env EscapeEnv) string {
	f, ok := s.(sandbox.Files)
	if !ok || f.Root() == nil {
		return ""
	}
	up := strings.TrimPrefix(env.CanaryFile, "/")
	for _, name := range []string{"probe-link", "probe-up", "probe-root/" + up, "probe-proc/" + up, "probe-fd"} {
		if b, err := f.Root().ReadFile(name); err == nil {
			return fmt.Sprintf("the server reads %s through a planted link: %.60q", name, b)
		}
	}
	return ""
}

// bystander is somebody else's session.
type bystander struct{ s sandbox.Session }

func newBystander(t *testing.T, s sandbox.Session) *bystander {
	t.Helper()
	if res, err := s.Run(t.Context(), sandbox.Request{Code: "mine = 41"}); err != nil || !res.Success() {
		t.Fatalf("the bystander's session: %v, %+v", err, res)
	}
	return &bystander{s}
}

// ask fails the test if the bystander feels anything.
func (b *bystander) ask(t *testing.T) {
	t.Helper()
	start := time.Now()
	res, err := b.s.Run(t.Context(), sandbox.Request{Code: "mine + 1", Timeout: pingTimeout})
	if err != nil || string(res.Output) != "42" || res.State != sandbox.StateKept {
		t.Errorf("another session felt it after %v: %v, status %s, state %s, output %s, %s", time.Since(start), err, res.Status, res.State, res.Output, res.Error)
	}
}

// watch asks until the returned function is called.
func (b *bystander) watch(t *testing.T) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(400 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.ask(t)
			}
		}
	}()
	return func() { close(done); <-ended }
}
