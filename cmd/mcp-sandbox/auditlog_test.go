package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// audited is a line of the audit log, of either kind.
type audited struct {
	auditLine
	Dropped int64 `json:"dropped"`
}

func auditedIn(t *testing.T, names ...string) (all []audited) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, auditedLines(t, text)...)
	}
	return all
}

func auditedLines(t *testing.T, text []byte) (all []audited) {
	t.Helper()
	for l := bufio.NewScanner(bytes.NewReader(text)); l.Scan(); {
		var a audited
		d := json.NewDecoder(strings.NewReader(l.Text()))
		d.DisallowUnknownFields()
		if err := d.Decode(&a); err != nil {
			t.Errorf("%v: %s", err, l.Text())
		}
		all = append(all, a)
	}
	return all
}

func TestAuditLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit")
	s := startWeb(t, "--audit-log", name, "--auth-token-file", tokenFile(t, "ann:"+strings.Repeat("a", 32)+"\nbob:"+strings.Repeat("b", 32)))
	token := func(letter string) []string { return []string{"Authorization", "Bearer " + strings.Repeat(letter, 32)} }
	ann := s.legacy(token("a")...)
	own := ann.run("print secret-output").SessionID
	ann.do("POST", "/mcp", ann.headers(asJSON), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"inputs","inputs":{"k":"secret-input"}}}}`)
	ann.run("exit 3")
	ann.do("POST", "/mcp", ann.headers(asJSON), call(1, ""))
	for _, command := range []string{"echo '<hi>'", "rm -rf /"} {
		b, _ := json.Marshal(command)
		ann.do("POST", "/mcp", ann.headers(asJSON), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_cli","arguments":{"command":%s}}}`, b))
	}
	s.modern(map[string]any{"code": "print 1", "session_id": own}, token("b")...) // not bob's
	ann.do("POST", "/mcp", ann.headers(asJSON), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reset_session","arguments":{}}}`)
	s.do("POST", "/mcp", asJSON, call(1, "print 1")) // no token: no call
	if code, _ := s.stop(); code != 0 {
		t.Errorf("ended with %d", code)
	}
	var got []string
	for _, a := range auditedIn(t, name) {
		got = append(got, fmt.Sprintf("%s %v %s %.8s %s %s %d", a.Principal, a.Session == own, a.Tool, a.CodeHash, a.Command, a.Status, a.ExitCode))
		if time.Since(a.Time) > time.Minute || a.Time.Location() != time.UTC || a.DurationS <= 0 {
			t.Errorf("%+v", a)
		}
	}
	want := []string{
		"ann true execute_python " + hashOf("print secret-output")[:8] + "  ok 0",
		"ann true execute_python " + hashOf("inputs")[:8] + "  ok 0",
		"ann true execute_python " + hashOf("exit 3")[:8] + "  error 3",
		"ann false execute_python   invalid 2",
		"ann true execute_cli  echo '<hi>' ok 0",
		"ann false execute_cli  rm -rf / denied 126",
		"bob false execute_python " + hashOf("print 1")[:8] + "  invalid 2",
		"ann true reset_session   ok 0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text, _ := os.ReadFile(name)
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 || bytes.Contains(text, []byte("secret")) {
		t.Errorf("%v, %v:\n%s", info.Mode(), err, text)
	}
}

func TestAuditOverStdio(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit")
	cmd := exec.Command("fake-sandbox", "serve", "--audit-log", name)
	cmd.Stdin = strings.NewReader(call(1, "print 1") + "\n" + call(2, "raise x"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := auditedIn(t, name)
	if len(all) != 2 || all[0].Principal != hostUser() || all[0].CodeHash != hashOf("print 1") || all[1].Status != sandbox.StatusError {
		t.Errorf("%+v", all)
	}
}

// Which tools outside code called is what happened, too.
func TestAuditOfExternals(t *testing.T) {
	calls := []sandbox.Call{{Name: "files.read"}, {Name: "files.read", OK: true}}
	for i := range 60 {
		calls = append(calls, sandbox.Call{Name: fmt.Sprintf("files.made-up-%d", i)})
	}
	counts := auditOf(sandbox.Record{Tool: "execute_python", Calls: calls}).Externals
	if len(counts) != auditTools+1 || counts["files.read"] != 2 || counts["others"] != 11 {
		t.Errorf("%v", counts)
	}
	if line, err := encodeLine(auditOf(sandbox.Record{})); err != nil || bytes.Contains(line, []byte("externals")) {
		t.Errorf("%s, %v", line, err)
	}
}

// Of 1,000 calls each is there, over as many files as it takes.
func TestAuditRotation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit")
	file, err := openRotated(name, 64<<10, 2)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuditLog(file, slog.New(slog.DiscardHandler))
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 250 {
				a.record(sandbox.Record{Principal: fmt.Sprint(w), Tool: "execute_cli", Source: fmt.Sprint("echo ", i), Status: sandbox.StatusOK, Took: time.Second})
				for len(a.lines) > auditDepth/2 { // this test is about files, not about slow disks
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	writers.Wait()
	if err := a.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	all := auditedIn(t, name+".2", name+".1", name)
	next := map[string]int{}
	for _, l := range all {
		if l.Command != fmt.Sprint("echo ", next[l.Principal]) {
			t.Fatalf("of %s came %q instead of number %d", l.Principal, l.Command, next[l.Principal])
		}
		next[l.Principal]++
	}
	if len(all) != 1000 {
		t.Errorf("%d lines", len(all))
	}
	for _, n := range []string{name, name + ".1", name + ".2"} {
		if info, err := os.Stat(n); err != nil || info.Size() > 64<<10 || info.Mode() != 0o600 {
			t.Errorf("%s: %+v, %v", n, info, err)
		}
	}

	// Again, beyond what is kept.
	if file, err = openRotated(name, 64<<10, 2); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		line, _ := encodeLine(auditOf(sandbox.Record{Principal: "later", Tool: "execute_cli", Source: strings.Repeat("x", 50)}))
		if _, err := file.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(name + "*"); len(files) != 3 {
		t.Errorf("%q", files)
	}
	for _, l := range auditedIn(t, name+".2", name+".1", name) {
		if l.Principal != "later" {
			t.Fatalf("an old line is there still: %+v", l)
		}
	}
}

// fakeDisk is one that a test makes full, or slow.
type fakeDisk struct {
	mu   sync.Mutex
	text bytes.Buffer
	full bool
	held chan struct{} // a write waits until it is closed; nil = none does
}

func (d *fakeDisk) Write(b []byte) (int, error) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return 0, syscall.ENOSPC
	}
	return d.text.Write(b)
}

func (d *fakeDisk) Sync() error  { return nil }
func (d *fakeDisk) Close() error { return nil }

func (d *fakeDisk) set(change func(*fakeDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// What a full disk did not take is counted, in a line of its own once there is room.
func TestAuditOnAFullDisk(t *testing.T) {
	d := &fakeDisk{}
	said := &journal{}
	a := newAuditLog(d, slog.New(slog.NewTextHandler(said, nil)))
	record := func(name string) { a.record(sandbox.Record{Principal: name, Tool: "execute_python"}) }
	written := func() { // all that was recorded
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); len(a.lines) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the writer is stuck")
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	record("before")
	written()
	d.set(func(d *fakeDisk) { d.full = true })
	for range 10 {
		record("lost")
	}
	written()
	d.set(func(d *fakeDisk) { d.full = false })
	record("after")
	if err := a.close(t.Context()); err != nil {
		t.Error(err)
	}
	record("too late") // and no panic
	all := auditedLines(t, d.text.Bytes())
	if len(all) != 3 || all[0].Principal != "before" || all[1].Dropped != 10 || all[2].Principal != "after" {
		t.Errorf("%+v", all)
	}
	if n := strings.Count(said.String(), "can't be written"); n != 1 || !strings.Contains(said.String(), "dropped=10") {
		t.Errorf("it was said %d times:\n%s", n, said)
	}
}

// A disk that does not answer makes nobody wait, not even the end.
func TestAuditOnASlowDisk(t *testing.T) {
	held := make(chan struct{})
	d := &fakeDisk{held: held}
	a := newAuditLog(d, slog.New(slog.DiscardHandler))
	const calls = auditDepth + 500
	begun := time.Now()
	for range calls {
		a.record(sandbox.Record{Principal: "ann", Tool: "execute_python", Source: "x"})
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("%d calls took %v", calls, took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.close(ctx); err == nil || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("the end: %v", err)
	}
	close(held)
	<-a.ended
	var lines, dropped int64
	for _, l := range auditedLines(t, d.text.Bytes()) {
		if dropped += l.Dropped; l.Dropped == 0 {
			lines++
		}
	}
	if lines+dropped != calls || dropped < 400 || lines < auditDepth {
		t.Errorf("%d lines, %d dropped, of %d", lines, dropped, calls)
	}
}

// A disk that is full in the middle of a line leaves none that is cut.
func TestAuditTakesHalfLinesBack(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit")
	file, err := openRotated(name, 1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limited := was
	limited.Cur = 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	n, err := file.Write([]byte("{\"a line\": 1}\n"))
	if e := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); e != nil {
		t.Fatal(e)
	}
	if err == nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := file.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(name); string(text) != "{}\n{}\n" {
		t.Errorf("%q", text)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

func TestAuditPlaces(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	shown := at("shown")
	err := errors.Join(os.Mkdir(shown, 0o700), os.Symlink(at("elsewhere"), at("link")), os.Symlink(shown, at("into")),
		syscall.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("one"), nil, 0o600), os.Link(at("one"), at("two")), os.WriteFile(at("open"), nil, 0o600), os.Chmod(at("open"), 0o622))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(at("pipe"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for name, says := range map[string]string{
		"link": "symbolic link", "pipe": "no regular file", "open": "written by others", "two": "hard links", "shown": "is a directory", "none/audit": "no such file",
	} {
		if _, err := openRotated(at(name), 1<<20, 1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	reader.Close()
	if os.Geteuid() == 0 {
		if err := errors.Join(os.WriteFile(at("theirs"), nil, 0o600), os.Chown(at("theirs"), 1234, 1234)); err != nil {
			t.Fatal(err)
		}
		if _, err := openRotated(at("theirs"), 1<<20, 1); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("another's: %v", err)
		}
	}
	if _, err := openRotated(at("pipe"), 1<<20, 1); err == nil {
		t.Error("a pipe that nobody reads was opened")
	}
	for name, ok := range map[string]bool{"shown/audit": false, "into/audit": false, "audit": true, "shownaudit": true, "open": true} {
		err := observeFlags{AuditLog: at(name), AuditMaxSize: 1 << 20}.check([]string{shown, at("nowhere")})
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (observeFlags{AuditLog: at("open"), AuditMaxSize: 1 << 20}).check([]string{at("open")}); err == nil {
		t.Error("a file that is itself mounted was taken")
	}
	if err := (observeFlags{AuditMaxSize: 10, AuditKeep: -1}).check(nil); err == nil || !strings.Contains(err.Error(), "64KiB") || !strings.Contains(err.Error(), "--audit-keep") {
		t.Errorf("sizes: %v", err)
	}
}
