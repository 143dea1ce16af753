package srt

import "testing"

func TestHostFacts(t *testing.T) {
	for _, n := range []*native{nativeWall(t), nil} {
		for _, fact := range n.hostFacts() {
			t.Logf("%s: %s", fact[0], fact[1])
			if fact[1] == "" {
				t.Errorf("%s is empty", fact[0])
			}
		}
	}
}
