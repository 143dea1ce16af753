package workload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload/workloadtest"
)

// leave creates a workload as a server would that is then killed, and says its id.
func (b *bench) leave(owner string, age, life time.Duration) string {
	b.Helper()
	req := b.w.newCreateRequest(newNames(), newMark(owner, time.Now().Add(-age), life).String())
	req.container().EnvironmentVars = []envVar{{"DR_SANDBOX_CODE_B64", encode64([]byte("import time\ntime.sleep(60)"))}}
	r, _, err := b.client().create(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	return r.ID
}

// What servers left that have ended is deleted, and nothing else.
func TestJanitor(t *testing.T) {
	b := emulated(t, func(_ *workloadtest.Config, c *Config) { c.Dead = []string{"killed"} })
	orphans := []string{
		b.leave("killed", time.Minute, time.Hour),
		b.leave(b.w.cfg.Instance, 0, time.Hour),               // ours, and in no book
		b.leave("stranger", 10*time.Hour, 8*time.Hour),        // long after its time
		b.leave("stranger-2", 30*time.Hour, 20*time.Minute*3), // likewise
	}
	kept := []string{
		b.leave("stranger", time.Minute, time.Hour),
		b.leave("stranger", time.Hour, time.Minute*55), // its clock may differ from ours
	}
	others := b.w.newCreateRequest(newNames(), "")
	others.Name, others.Description, others.Artifact.Description = "dr-sandbox-0123456789ab", "", "" // the published client's
	others.container().EnvironmentVars = []envVar{{"DR_SANDBOX_CODE_B64", encode64([]byte("import time\ntime.sleep(60)"))}}
	r, _, err := b.client().create(t.Context(), others)
	if err != nil {
		t.Fatal(err)
	}
	kept = append(kept, r.ID)
	d, err := b.w.launch(t.Context(), b.w.tenants[onlyKey(b.w)], time.Hour, func(r *createRequest) {
		r.container().EnvironmentVars = []envVar{{"DR_SANDBOX_CODE_B64", encode64([]byte("import time\ntime.sleep(60)"))}}
	})
	if err != nil {
		t.Fatal(err)
	}
	kept = append(kept, d.ID)

	// The sweep of the start may have come before it to some of them.
	if _, err := b.w.sweep(t.Context(), b.w.tenants[onlyKey(b.w)]); err != nil {
		t.Error(err)
	}
	for _, id := range orphans {
		if _, err := b.client().record(t.Context(), id); statusOf(err) != 404 {
			t.Errorf("%s is still there: %v", id, err)
		}
	}
	for _, id := range kept {
		r, err := b.client().record(t.Context(), id)
		if err != nil {
			t.Errorf("%s is gone: %v", id, err)
		}
		_ = b.client().remove(context.WithoutCancel(t.Context()), id, r.ArtifactID)
	}
	d.remove()
}

// An artifact whose workload the platform has deleted is found by itself.
func TestJanitorFindsArtifacts(t *testing.T) {
	b := emulated(t, func(_ *workloadtest.Config, c *Config) { c.Dead = []string{"killed"} })
	id := b.leave("killed", 0, time.Hour)
	if err := b.client().remove(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	// The sweep of the start may have come before it here.
	if _, err := b.w.sweep(t.Context(), b.w.tenants[onlyKey(b.w)]); err != nil {
		t.Error(err)
	}
	if n := b.e.Counters().Artifacts; n != 0 {
		t.Errorf("%d artifacts", n)
	}
}

func TestMarks(t *testing.T) {
	now := time.Now()
	if m, ok := readMark(newMark("me", now, time.Hour).String()); !ok || m.Owner != "me" || m.Expires != now.Add(time.Hour).Unix() {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, s := range []string{"", "x", "{}", `{"app":"other","owner":"me","expires":1}`, `{"app":"mcp-sandbox","owner":"","expires":1}`, `{"app":"mcp-sandbox","owner":"me"}`, `{"app":"mcp-sandbox","owner":"me","expires":"x"}`, strings.Repeat("{", 100000)} {
		if m, ok := readMark(s); ok {
			t.Errorf("%.60s: %+v", s, m)
		}
	}
	n := newNames()
	if !ourName.MatchString(n.workload) || !ourName.MatchString(n.artifact) || ourName.MatchString("dr-sandbox-x") {
		t.Errorf("%+v", n)
	}
}

// Callers' tokens: each has an account of their own, and is swept with their token.
func TestCallerTokens(t *testing.T) {
	b := emulated(t, func(e *workloadtest.Config, c *Config) {
		e.Tokens = []string{"token-of-ann", "token-of-bob"}
		c.CallerToken, c.Token = true, ""
	})
	if _, err := b.w.Open(t.Context(), sandbox.Spec{ID: "none"}); err == nil || !strings.Contains(err.Error(), "X-DataRobot-Api-Token") {
		t.Errorf("without a token: %v", err)
	}
	if _, err := b.w.Open(WithToken(t.Context(), "not a token"), sandbox.Spec{ID: "bad"}); err == nil || strings.Contains(err.Error(), "not a token") {
		t.Errorf("with a bad one: %v", err)
	}
	ann, bob := WithToken(t.Context(), "token-of-ann"), WithToken(t.Context(), "token-of-bob")
	s, err := b.w.Open(ann, sandbox.Spec{ID: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(ann, sandbox.Request{Code: "40 + 2"}); err != nil || string(r.Output) != "42" {
		t.Errorf("%+v, %v", r, err)
	}
	for name, ctx := range map[string]context.Context{"bob's": bob, "no": t.Context()} {
		if r, err := s.Run(ctx, sandbox.Request{Code: "40 + 2"}); err == nil {
			t.Errorf("with %s token in ann's session: %+v", name, r)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, mode := range []Mode{ModeOneShot, ModeSession} {
		b.w.cfg.Mode = mode
		eve := WithToken(t.Context(), "token-of-nobody")
		s, err := b.w.Open(eve, sandbox.Spec{ID: "eve", Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Run(eve, sandbox.Request{Code: "1"})
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Status != sandbox.StatusDenied || !strings.Contains(err.Error(), "does not take your token") || strings.Contains(err.Error(), "nobody") {
			t.Errorf("%s with a token that is refused: %v", mode, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // the deletion holds the token
		b.w.mu.Lock()
		held := len(b.w.tenants)
		b.w.mu.Unlock()
		if held == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d tokens are held after all sessions are closed", held)
		}
	}
	if n := strings.Count(b.log.String(), `msg="workload deleted"`); n != 1 {
		t.Errorf("one workload was created, %d are logged as deleted", n)
	}
	for _, token := range []string{"token-of-ann", "token-of-bob", "token-of-nobody"} {
		if strings.Contains(b.log.String(), token) {
			t.Errorf("%s is in the log", token)
		}
	}
}
