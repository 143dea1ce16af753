package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server on this machine's loopback is reached by name and port where the operator says
// so, and no other is.
func TestAllowDomain(t *testing.T) {
	t.Parallel()
	serve := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return strings.Replace(s.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
	}
	named, other := serve("the named one"), serve("another")
	code := fmt.Sprintf(`
import urllib.request
print(urllib.request.urlopen("http://%s/").read().decode())
try:
    print(urllib.request.urlopen("http://%s/").read().decode())
except OSError as e:
    print("refused")`, named, other)
	out, stderr, err := try(t, t.TempDir(), nil, binary(t), "exec", "--allow-domain", named, code)
	if err != nil || out != "the named one\nrefused\n" {
		t.Errorf("%v: %s%s", err, out, stderr)
	}
	if out, stderr, err := try(t, t.TempDir(), nil, binary(t), "exec", code); err == nil || strings.Contains(out, "the named one") {
		t.Errorf("without the flag: %s%s", out, stderr)
	}
}
