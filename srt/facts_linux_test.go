package srt

import "testing"

func TestHostFacts(t *testing.T) {
	for _, n := range []*native{wall(t), nil} {
		for _, fact := range n.hostFacts() {
			t.Logf("%s: %s", fact[0], fact[1])
			if fact[1] == "" {
				t.Errorf("%s is empty", fact[0])
			}
		}
	}
}
