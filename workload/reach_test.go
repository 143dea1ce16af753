package workload

import (
	"strings"
	"testing"
)

// One request tells whether the platform takes a token, and leaves nothing there.
func TestReach(t *testing.T) {
	b := emulated(t, nil)
	cfg := Config{Endpoint: b.url, Token: testToken, Instance: "test"}
	account, err := Reach(t.Context(), cfg)
	if err != nil || !strings.HasPrefix(b.url, "http://"+account.Host) {
		t.Errorf("%+v, %v", account, err)
	}
	cfg.Token = "another"
	if _, err := Reach(t.Context(), cfg); err == nil || !Refused(err) || strings.Contains(err.Error(), "another") {
		t.Errorf("with another token: %v", err)
	}
	cfg.Endpoint = "http://127.0.0.1:1"
	if _, err := Reach(t.Context(), cfg); err == nil || Refused(err) {
		t.Errorf("where nobody listens: %v", err)
	}
	cfg.Endpoint, cfg.Token = "", ""
	if _, err := Reach(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "DATAROBOT_API_TOKEN") {
		t.Errorf("not configured: %v", err)
	}
}
