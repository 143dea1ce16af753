package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// do sends a request of whoever's turn it is, with JSON if there is a body.
func (w *web) do(method, path, body, session string) (int, http.Header, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// listed are the sessions that whoever asks is told of: which of them are
// hibernated.
func (w *web) listed() map[string]bool {
	w.t.Helper()
	_, _, body := w.do("GET", "/sessions", "", "")
	var list struct {
		Sessions []struct {
			ID         string `json:"session_id"`
			Hibernated bool
		}
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		w.t.Fatalf("%v: %s", err, body)
	}
	all := map[string]bool{}
	for _, s := range list.Sessions {
		all[s.ID] = s.Hibernated
	}
	return all
}

func (w *web) awaitHibernated(ids ...string) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		all, left := w.listed(), 0
		for _, id := range ids {
			if !all[id] {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not hibernated: %v", all)
		}
	}
}

// strangersSee expects somebody else to learn and reach nothing of a session.
func (w *web) strangersSee(id string) {
	w.t.Helper()
	w.token = strangerToken
	defer func() { w.token = webToken }()
	if r := w.python(id, "1"); r.Success || !strings.Contains(r.Error, "unknown session") {
		w.t.Errorf("a stranger calls: %+v", r)
	}
	if all := w.listed(); len(all) != 0 {
		w.t.Errorf("a stranger is told of %v", all)
	}
	if status, _, body := w.do("DELETE", "/sessions/"+id, "", ""); status != 404 {
		w.t.Errorf("a stranger ends it: %d, %s", status, body)
	}
}

// A hibernated session over HTTP is its principal's alone, in this server and in
// the next; and its end takes all that was saved.
func TestWebHibernation(t *testing.T) {
	dir, state := t.TempDir(), stateDir(t)
	flags := []string{"--workspace", dir, "--state-dir", state, "--session-idle", "1s"}
	w := startWeb(t, flags...)
	made := w.python("", "x = 41; _ = open('f', 'w').write('kept')")
	other := w.python("", "y = 1")
	id := made.SessionID
	w.awaitHibernated(id, other.SessionID)
	w.strangersSee(id)
	if c := w.call("execute_cli", map[string]any{"command": "cat f", "session_id": id}); c.Stdout != "kept" {
		t.Errorf("a command: %+v", c)
	}
	if r := w.python(id, "x += 1\nx, open('f').read()"); string(r.Output) != `[42,"kept"]` || r.State != "restored" {
		t.Errorf("its own principal: %+v", r)
	}
	start := time.Now()
	w.stop()
	if took := time.Since(start); took > 14*time.Second {
		t.Errorf("ended after %v", took)
	}

	w = startWeb(t, flags...)
	if all := w.listed(); len(all) != 2 || !all[id] || !all[other.SessionID] {
		t.Errorf("after a restart: %v", all)
	}
	w.strangersSee(id)
	if r := w.python(id, "x += 1\nx, open('f').read()"); string(r.Output) != `[43,"kept"]` || r.State != "restored" {
		t.Errorf("after a restart: %+v", r)
	}
	w.awaitHibernated(id)
	for _, id := range []string{id, other.SessionID} { // hibernated by this server, and by the one before
		if status, _, body := w.do("DELETE", "/sessions/"+id, "", ""); status != 204 {
			t.Errorf("DELETE: %d, %s", status, body)
		}
		if r := w.python(id, "1"); r.Success || !strings.Contains(r.Error, "unknown session") {
			t.Errorf("after its end: %+v", r)
		}
	}
	if left, err := os.ReadDir(filepath.Join(state, "sessions")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != id {
		t.Errorf("folders: %v, %v; want the one that holds something", left, err)
	}
	w.stop()
}

// A connection that was silent for longer than its session's idle time finds its
// variables; after a restart their id leads to them.
func TestWebHibernatedConnection(t *testing.T) {
	state := stateDir(t)
	flags := []string{"--state-dir", state, "--session-idle", "500ms"}
	w := startWeb(t, flags...)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"x = globals().get('x', 0) + 1\nx"}}}`
	connect := func() string {
		status, h, body := w.do("POST", "/mcp", helloWeb, "")
		if status != 200 || h.Get("Mcp-Session-Id") == "" {
			t.Fatalf("%d, %s", status, body)
		}
		return h.Get("Mcp-Session-Id")
	}
	run := func(connection string) reply {
		_, _, body := w.do("POST", "/mcp", call, connection)
		return structured(t, body)
	}
	c := connect()
	first := run(c)
	w.awaitHibernated(first.SessionID)
	time.Sleep(1500 * time.Millisecond) // twice the idle time, with some to spare
	if r := run(c); r.SessionID != first.SessionID || r.State != "restored" || string(r.Output) != "2" {
		t.Errorf("%+v", r)
	}
	w.stop()
	w = startWeb(t, flags...)
	if status, _, body := w.do("POST", "/mcp", call, c); status != 404 {
		t.Errorf("the connection after a restart: %d, %s", status, body)
	}
	if r := run(connect()); r.SessionID == first.SessionID || r.State != "new" {
		t.Errorf("another connection: %+v", r)
	}
	if r := w.python(first.SessionID, "x"); r.State != "restored" || string(r.Output) != "2" {
		t.Errorf("by its id: %+v", r)
	}
	w.stop()
}

// Over a quota, the principal's longest idle one goes to sleep, with its
// variables.
func TestWebQuotaHibernates(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("tester:"+webToken+" sessions=1\nstranger:"+strangerToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := startWeb(t, "--auth-token-file", tokens)
	w.token = strangerToken
	theirs := w.python("", "x = 0")
	w.token = webToken
	a := w.python("", "x = 1")
	b := w.python("", "x = 2")
	w.awaitHibernated(a.SessionID)
	if r := w.python(a.SessionID, "x"); r.State != "restored" || string(r.Output) != "1" {
		t.Errorf("the first: %+v", r)
	}
	w.awaitHibernated(b.SessionID)
	w.token = strangerToken
	if r := w.python(theirs.SessionID, "x"); r.State != "kept" {
		t.Errorf("the stranger's: %+v", r)
	}
	w.stop()
}

// A call that outlasts the time to drain is interrupted and answered, and what
// it did is saved.
func TestWebDrainSaves(t *testing.T) {
	dir := t.TempDir()
	flags := []string{"--workspace", dir, "--state-dir", stateDir(t), "--drain-timeout", "1s"}
	w := startWeb(t, flags...)
	id := w.python("", "x = 1").SessionID
	answered := make(chan reply, 1)
	go func() {
		answered <- w.python(id, "x = 2\n_ = open('begun', 'w').close()\nimport time\nwhile True: time.sleep(0.1)")
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, id, "begun")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never began")
		}
	}
	w.stop()
	if r := <-answered; r.Success {
		t.Errorf("%+v", r)
	}
	w = startWeb(t, flags...)
	if r := w.python(id, "x"); r.State != "restored" || string(r.Output) != "2" {
		t.Errorf("after a restart: %+v", r)
	}
	w.stop()
}
