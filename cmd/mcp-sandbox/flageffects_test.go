package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// told is what a run of the program with a scripted sandbox has written.
type told struct {
	code           int
	stdout, stderr string
}

func runFake(t *testing.T, stdin string, args ...string) told {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := fakeProgram()
	p.stdin, p.stdout, p.stderr = strings.NewReader(stdin), &stdout, &stderr
	code := p.run(t.Context(), args)
	return told{code, stdout.String(), stderr.String()}
}

// recorder is an account at DataRobot that takes down what it is asked for, and where
// no container ever gets ready.
type recorder struct {
	mu      sync.Mutex
	created []map[string]any
	paths   []string
	tokens  []string
	refuses bool // to create anything
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.paths = append(rec.paths, r.Method+" "+r.URL.Path)
	rec.tokens = append(rec.tokens, r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/workloads/"):
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		rec.created = append(rec.created, body)
		if rec.refuses {
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"detail":"refused"}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"w1","artifactId":"a1","status":"submitted"}`)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/workloads/w1/"):
		io.WriteString(w, `{"id":"w1","artifactId":"a1","status":"provisioning"}`)
	default:
		io.WriteString(w, `{"data":[],"count":0,"totalCount":0,"next":null,"previous":null}`)
	}
}

// account points the environment to a recorder.
func account(t *testing.T, refuses bool) *recorder {
	t.Helper()
	rec := &recorder{refuses: refuses}
	server := httptest.NewServer(rec)
	t.Cleanup(server.Close)
	t.Setenv(endpointEnv, server.URL)
	t.Setenv(tokenEnv, "token")
	return rec
}

// What the flags of the remote sandbox say is what a container is asked for with.
func TestWorkloadFlags(t *testing.T) {
	for _, c := range []struct {
		flags string
		wants []string // of the request, as JSON, or of its path
		lacks string
	}{
		{"", []string{`"cpu":1,"memory":536870912`, `"readOnlyRootFilesystem":true`, "POST /api/v2/workloads/"}, "example.com"},
		{"--workload-cpu 2.5 --workload-memory 3GiB", []string{`"cpu":2.5,"memory":3221225472`}, ""},
		{"--workload-image example.com/image:7", []string{`"imageUri":"example.com/image:7"`}, ""},
		{"--workload-security-context off", nil, "securityContext"},
		{"--workload-api-base /elsewhere/v9", []string{"POST /elsewhere/v9/workloads/"}, "/api/v2"},
		{"--workload-mode oneshot", []string{"DR_SANDBOX_CODE_B64", "DRX_CODE_ZB64"}, "readinessProbe"},
		{"--workload-mode session", []string{`"readinessProbe"`}, ""},
		{"--workload-mode oneshot --workload-bare", []string{`{"name":"DR_SANDBOX_CODE_B64","value":"MSArIDE="}`}, "DRX_CODE_ZB64"},
	} {
		rec := account(t, true)
		got := runFake(t, "", append(append([]string{"exec"}, strings.Fields(c.flags)...), "1 + 1")...)
		if got.code != 125 || len(rec.created) == 0 {
			t.Errorf("%s: %+v; asked for: %q", c.flags, got, rec.paths)
			continue
		}
		body, err := json.Marshal(rec.created[0])
		if err != nil {
			t.Fatal(err)
		}
		all := string(body) + strings.Join(rec.paths, " ")
		for _, want := range c.wants {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %s in\n%s", c.flags, want, short(all))
			}
		}
		if c.lacks != "" && strings.Contains(all, c.lacks) {
			t.Errorf("%s: %s in\n%s", c.flags, c.lacks, short(all))
		}
	}
}

// short leaves out what a request carries in base64.
func short(request string) string {
	return regexp.MustCompile(`[A-Za-z0-9+/=]{200,}`).ReplaceAllString(request, "…")
}

func TestWorkloadProvisioningTimeout(t *testing.T) {
	account(t, false)
	got := runFake(t, "", "exec", "--workload-provisioning-timeout", "1s", "1 + 1")
	if got.code != 125 || !strings.Contains(got.stderr, "no container was ready within 1s; --workload-provisioning-timeout") {
		t.Errorf("%+v", got)
	}
}

// A token travels unencrypted to this machine, and to others by the flag alone.
func TestWorkloadAllowHTTP(t *testing.T) {
	t.Setenv(endpointEnv, "http://app.example.invalid")
	t.Setenv(tokenEnv, "token")
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"
	if got := runFake(t, list); got.code != exitFailed || !strings.Contains(got.stderr, "unencrypted") || strings.Contains(got.stdout, "execute_python") {
		t.Errorf("%+v", got)
	}
	if got := runFake(t, list, "--workload-allow-http"); got.code != exitOK || !strings.Contains(got.stdout, "execute_python") {
		t.Errorf("with the flag: %+v", got)
	}
}

func TestAuditRotationFlags(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "audit")
	var calls strings.Builder
	for i := range 60 {
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": map[string]any{
			"name": "execute_cli", "arguments": map[string]any{"command": "echo " + strings.Repeat("x", 5000)}}})
		if err != nil {
			t.Fatal(err)
		}
		calls.Write(append(b, '\n'))
	}
	if got := runFake(t, calls.String(), "--audit-log", name, "--audit-max-size", "64KiB", "--audit-keep", "1"); got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v; want the log and one before it", left, err)
	}
	for _, file := range left {
		if info, err := file.Info(); err != nil || info.Size() > 64<<10 {
			t.Errorf("%s: %d bytes, %v", file.Name(), info.Size(), err)
		}
	}
}

// With each caller's own token alone code is run: there is no other, though the server has one.
func TestWorkloadCallerTokenFlag(t *testing.T) {
	rec := account(t, true)
	s := startWeb(t, "--workload-caller-token", "--python", "none") // which has no wall here
	if r := s.modern(map[string]any{"code": "1"}); r.Success || !strings.Contains(r.Error, "X-DataRobot-Api-Token") {
		t.Errorf("without a token: %+v", r)
	}
	if r := s.modern(map[string]any{"code": "1"}, "X-DataRobot-Api-Token", "ann-s-token"); r.Success {
		t.Errorf("%+v", r)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.created) == 0 || slices.ContainsFunc(rec.tokens, func(token string) bool { return token != "Bearer ann-s-token" }) {
		t.Errorf("%d created, with %q", len(rec.created), rec.tokens)
	}
}

func TestListen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	if s := startWeb(t, "--listen", "127.0.0.2:0"); !strings.HasPrefix(s.url, "http://127.0.0.2:") || s.do("GET", "/healthz", nil, "").status != http.StatusOK {
		t.Errorf("it listens at %s", s.url)
	}
}

// Over HTTP sessions have folders of their own, unless the operator shares one.
func TestSharedWorkspace(t *testing.T) {
	for _, shared := range []bool{false, true} {
		args := []string{"--workspace", t.TempDir()}
		if shared {
			args = append(args, "--shared-workspace")
		}
		if r := startWeb(t, args...).legacy().run("config"); !strings.Contains(r.Stdout, fmt.Sprintf(" apart=%v ", !shared)) {
			t.Errorf("shared %v: %+v", shared, r)
		}
	}
}
