package srt

import (
	"slices"
	"strings"
	"testing"
)

func TestNetworkEnv(t *testing.T) {
	if got := networkEnv(network(t)); got != nil {
		t.Errorf("without rules: %q", got)
	}
	for _, tt := range []struct{ allow, direct string }{
		{"example.org", "localhost,127.0.0.1,::1"},
		{"127.0.0.1:8000", "localhost,::1"},
		{"localhost", "127.0.0.1,::1"},
	} {
		env := networkEnv(network(t, tt.allow))
		for _, want := range []string{"HTTP_PROXY=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128", "all_proxy=http://127.0.0.1:3128", "no_proxy=" + tt.direct} {
			if !slices.Contains(env, want) {
				t.Errorf("%s: %q lacks %s", tt.allow, env, want)
			}
		}
	}
}

func TestNetworkHint(t *testing.T) {
	for hint, want := range map[string]string{
		Policy{}.networkHint(): "has no network; the operator of this server can allow hosts by --allow-domain",
		Policy{Network: network(t, "example.org")}.networkHint(): "reaches these hosts alone: example.org.",
		Policy{}.packageHint(): "Code can't install any",
		Policy{Network: network(t, "example.org")}.packageHint(): "pip install --target",
	} {
		if !strings.Contains(hint, want) {
			t.Errorf("%q lacks %q", hint, want)
		}
	}
}
