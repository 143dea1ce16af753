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
		for _, want := range []string{"HTTP_PROXY=http://127.0.0.1:3129", "https_proxy=http://127.0.0.1:3129", "all_proxy=http://127.0.0.1:3129", "no_proxy=" + tt.direct} {
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
		Policy{Network: network(t, "example.org")}.packageHint():            "pip install --target /tmp/packages NAME",
		Policy{Network: network(t, "example.org"), Tmp: "/t"}.packageHint(): "sys.path.append('/t/packages')",
	} {
		if !strings.Contains(hint, want) {
			t.Errorf("%q lacks %q", hint, want)
		}
	}
}

// A wall that reaches no hosts refuses by the name of what allows them.
func TestNoNetwork(t *testing.T) {
	for want, cfg := range map[string]Config{
		"": {Settings: Settings{given: true, allowed: []string{"x.org"}, denied: []string{"*"}}},
		"network: the wall landlock reaches no hosts, and x.org are allowed (--allow-domain)":                                    {Network: network(t, "x.org")},
		"settings: network.allowedDomains: the wall landlock can't honour it: it reaches no hosts, and x.org, y.org are allowed": {Network: network(t, "x.org", "y.org"), Settings: Settings{given: true, allowed: []string{"x.org", "y.org"}}},
	} {
		got := ""
		if err := noNetwork(cfg, WallLandlock); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
