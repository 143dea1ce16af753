package workloadtest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/workload/workloadtest"
	"mcp-sandbox/workload/workloadtest/plain"
)

const token = "a-token"

// bench is an emulator, its server, and a client without any cleverness.
type bench struct {
	*testing.T
	e   *workloadtest.Emulator
	url string
}

// python is an interpreter itself, where the one of PATH may be a version manager's script.
func python(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil && os.Getenv("MCP_SANDBOX_REQUIRE") == "1" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	return strings.TrimSpace(string(out))
}

// emulate makes an emulator that ends with the test, and leaves nothing.
func emulate(t *testing.T, change func(*workloadtest.Config)) *bench {
	t.Helper()
	cfg := workloadtest.Config{Start: plain.Start, Python: python(t), Token: token, Speed: 100}
	if change != nil {
		change(&cfg)
	}
	e, err := workloadtest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		e.Close()
		if n := e.Counters().Processes; n != 0 {
			t.Errorf("%d processes outlive Close", n)
		}
	})
	return &bench{t, e, server.URL}
}

// reply is an answer, decoded where it is JSON.
type reply struct {
	status int
	header http.Header
	raw    string
	object map[string]any
}

func (b *bench) do(method, path string, body any) reply {
	b.Helper()
	return b.send(b.request(method, path, body))
}

func (b *bench) request(method, path string, body any) *http.Request {
	b.Helper()
	var payload io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		payload = strings.NewReader(body)
	default:
		raw, err := json.Marshal(body)
		if err != nil {
			b.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	r, err := http.NewRequest(method, b.url+"/api/v2"+path, payload)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func (b *bench) send(r *http.Request) reply {
	b.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
	resp, err := client.Do(r)
	if err != nil {
		return reply{raw: err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{raw: err.Error()}
	}
	got := reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &got.object)
	return got
}

// until asks again and again, until ok or a minute has gone.
func (b *bench) until(path string, ok func(reply) bool) reply {
	b.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got := b.do("GET", path, nil); ok(got) {
			return got
		}
	}
	b.Fatalf("%s: never; the last was %v", path, b.do("GET", path, nil).raw)
	return reply{}
}

// object is JSON.
type object = map[string]any

// oneShot is the request of section 1.3 for a piece of code.
func oneShot(name, code string) object {
	return request(name, object{
		"name": "sandbox", "imageUri": "registry.example/sandbox:1", "primary": true, "port": 8080,
		"environmentVars": []object{
			{"name": "DR_SANDBOX_CODE_B64", "value": base64.StdEncoding.EncodeToString([]byte(code))},
			{"name": "DR_SANDBOX_INPUTS_B64", "value": "e30="},
			{"name": "DR_SANDBOX_TIMEOUT_SECS", "value": "30"},
		},
		"securityContext": object{
			"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
			"capabilities": object{"drop": []string{"ALL"}}, "seccompProfile": object{"type": "RuntimeDefault"},
		},
	})
}

func request(name string, container object) object {
	return object{
		"name": name,
		"artifact": object{
			"name": name + "-artifact", "type": "service",
			"spec": object{"containerGroups": []object{{"name": "default", "containers": []object{container}}}},
		},
		"runtime": object{"containerGroups": []object{{
			"name": "default", "replicaCount": 1,
			"containers": []object{{"name": container["name"], "resourceAllocation": object{"cpu": 1, "memory": 536870912}}},
		}}},
	}
}

// create makes a workload, and returns its id.
func (b *bench) create(body object) string {
	b.Helper()
	got := b.do("POST", "/workloads/", body)
	if got.status != http.StatusCreated {
		b.Fatalf("create: %d %s", got.status, got.raw)
	}
	return got.object["id"].(string)
}

// logged waits until the logs have a message that begins with something.
func (b *bench) logged(id, begins string) reply {
	b.Helper()
	return b.until("/otel/workload/"+id+"/logs/?limit=1000", func(r reply) bool {
		return strings.Contains(r.raw, `"message":"`+begins)
	})
}

func TestOneShot(t *testing.T) {
	b := emulate(t, nil)
	id := b.create(oneShot("dr-sandbox-1", "print('hello')\n_return = 6 * 7"))
	b.logged(id, "__DR_SANDBOX_RESULT__:42")
	b.logged(id, "hello")
	b.until("/workloads/"+id, func(r reply) bool { return r.object["status"] == "errored" })
	if got := b.do("DELETE", "/workloads/"+id, nil); got.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", got.status, got.raw)
	}
	if got := b.do("GET", "/workloads/"+id, nil); got.status != http.StatusNotFound {
		t.Errorf("after delete: %d", got.status)
	}
	b.logged(id, "hello") // the logs stay
	if c := b.e.Counters(); c.Artifacts != 1 || c.Workloads != 0 {
		t.Errorf("after delete: %+v", c)
	}
	list := b.do("GET", "/artifacts/?search=dr-sandbox-", nil)
	artifact := list.object["data"].([]any)[0].(object)["id"].(string)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := b.do("DELETE", "/artifacts/"+artifact, nil)
		if got.status == http.StatusNoContent {
			break
		}
		if got.status != http.StatusConflict || time.Now().After(end) {
			t.Fatalf("artifact: %d %s", got.status, got.raw)
		}
	}
	if c := b.e.Counters(); c.Artifacts != 0 {
		t.Errorf("after both deletes: %+v", c)
	}
}

const service = `
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (self.path + " " + str(self.headers.get("Authorization"))).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["DRX_PORT"])), H).serve_forever()
`

// aService is a request whose container serves what is asked of it.
func aService(name string) object {
	return request(name, object{
		"name": "agent", "imageUri": "registry.example/sandbox:1", "primary": true, "port": 8080,
		"entrypoint":     []string{"/opt/venv/bin/python", "-I", "-u", "-c", service},
		"readinessProbe": object{"path": "/healthz", "initialDelaySeconds": 0, "periodSeconds": 2},
	})
}

func TestService(t *testing.T) {
	b := emulate(t, nil)
	id := b.create(aService("session-1"))
	if got := b.do("GET", "/endpoints/workloads/"+id+"/v1", nil); got.status != http.StatusBadGateway {
		t.Errorf("before it is ready: %d %s", got.status, got.raw)
	}
	b.until("/workloads/"+id+"/", func(r reply) bool { return r.object["status"] == "running" })
	got := b.do("GET", "/endpoints/workloads/"+id+"/v1/a%2Fb?protonId=1&x=2", nil)
	if got.raw != "/v1/a%2Fb?x=2 None" {
		t.Errorf("the container saw %q", got.raw)
	}
	if !b.e.Kill(id, true) {
		t.Error("nothing to kill")
	}
	record := b.do("GET", "/workloads/"+id, nil)
	details := b.until("/workloads/"+id+"/protons/"+record.object["protonId"].(string)+"/statusDetails", func(r reply) bool {
		return strings.Contains(r.raw, `"restartCount":1`)
	})
	if !strings.Contains(details.raw, `"reason":"OOMKilled"`) || !strings.Contains(details.raw, `"exitCode":137`) {
		t.Errorf("after an OOM: %s", details.raw)
	}
}
