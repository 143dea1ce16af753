package workloadtest_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/workload/workloadtest"
)

// messages are those of a page of logs, as they come.
func messages(r reply) []string {
	var all []string
	data, _ := r.object["data"].([]any)
	for _, row := range data {
		all = append(all, row.(object)["message"].(string))
	}
	return all
}

// details are a workload's statusDetails, once they hold something.
func (b *bench) details(id, hold string) string {
	b.Helper()
	record := b.do("GET", "/workloads/"+id, nil)
	path := "/workloads/" + id + "/protons/" + record.object["protonId"].(string) + "/statusDetails"
	return b.until(path, func(r reply) bool { return strings.Contains(r.raw, hold) }).raw
}

func TestStrict(t *testing.T) {
	t.Parallel()
	b := emulate(t, nil)
	change := func(f func(body, container, group object)) object {
		body := oneShot("w", "1")
		spec := body["artifact"].(object)["spec"].(object)
		f(body, spec["containerGroups"].([]object)[0]["containers"].([]object)[0], body["runtime"].(object)["containerGroups"].([]object)[0])
		return body
	}
	for name, c := range map[string]struct {
		body   object
		status int
		says   string
	}{
		"a name of none":         {change(func(b, _, _ object) { b["name"] = "" }), 422, `"loc":["body","name"]`},
		"a name too long":        {change(func(b, _, _ object) { b["name"] = strings.Repeat("a", 5001) }), 422, `"loc":["body","name"]`},
		"no name":                {change(func(b, _, _ object) { delete(b, "name") }), 422, `"type":"missing"`},
		"tags":                   {change(func(b, _, _ object) { b["tags"] = []string{} }), 422, "extra_forbidden"},
		"a name of a wrong type": {change(func(b, _, _ object) { b["name"] = 1 }), 422, "string_type"},
		"both artifacts":         {change(func(b, _, _ object) { b["artifactId"] = "1" }), 422, "exactly one of"},
		"no artifact":            {change(func(b, _, _ object) { delete(b, "artifact") }), 422, "exactly one of"},
		"no primary":             {change(func(_, c, _ object) { delete(c, "primary"); delete(c, "port") }), 422, "exactly one container must be primary"},
		"no port":                {change(func(_, c, _ object) { delete(c, "port") }), 422, "port is required"},
		"a low port":             {change(func(_, c, _ object) { c["port"] = 80 }), 422, "at least 1024"},
		"no image":               {change(func(_, c, _ object) { delete(c, "imageUri") }), 422, "imageUri or imageBuildConfig"},
		"old resources":          {change(func(_, c, _ object) { c["resourceRequest"] = object{} }), 422, "extra_forbidden"},
		"replicas at the top":    {change(func(b, _, _ object) { b["runtime"].(object)["replicaCount"] = 1 }), 422, "extra_forbidden"},
		"no replicas":            {change(func(_, _, g object) { g["replicaCount"] = 0 }), 422, "at least 1"},
		"another container": {change(func(_, _, g object) {
			g["containers"] = []object{{"name": "other"}}
		}), 422, "no such container: other"},
		"two ways to scale": {change(func(_, _, g object) { g["autoscaling"] = object{"enabled": true} }), 422, "exclude each other"},
		"two bundles":       {change(func(_, _, g object) { g["resourceBundles"] = []string{"cpu.small", "cpu.micro"} }), 422, "one resource bundle"},
		"half a byte": {change(func(_, _, g object) {
			g["containers"] = []object{{"name": "sandbox", "resourceAllocation": object{"memory": 0.5}}}
		}), 422, "integer_type"},
		"capabilities": {change(func(_, c, _ object) {
			c["securityContext"] = object{"capabilities": object{"add": []string{"SYS_ADMIN"}}}
		}), 403, "MLOps Admin"},
		"privileges": {change(func(_, c, _ object) { c["securityContext"] = object{"allowPrivilegeEscalation": true} }), 403, "MLOps Admin"},
		"no seccomp": {change(func(_, c, _ object) { c["securityContext"] = object{"seccompProfile": object{"type": "Unconfined"}} }), 403, "MLOps Admin"},
		"a user": {change(func(_, c, _ object) {
			c["securityContext"] = object{"runAsUser": 0}
		}), 422, "extra_forbidden"},
		"a probe without a path": {change(func(_, c, _ object) { c["readinessProbe"] = object{"port": 8080} }), 422, `"path"`},
		"null":                   {nil, 400, "not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent any = c.body
			if c.body == nil {
				sent = ""
			}
			got := b.do("POST", "/workloads/", sent)
			if got.status != c.status || !strings.Contains(got.raw, c.says) {
				t.Errorf("%d %s; want %d, and %s", got.status, got.raw, c.status, c.says)
			}
		})
	}
	if c := b.e.Counters(); c.Created != 0 || c.Artifacts != 0 {
		t.Errorf("what was refused left %+v", c)
	}
	if got := b.do("POST", "/workloads/", strings.Repeat(" ", 4<<20)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("4 MiB: %d", got.status)
	}
}

// What a container does is seen from the outside as the platform shows it.
func TestEndings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster workloadtest.Cluster
		change  func(container object)
		code    string
		details []string // what statusDetails come to hold
		logs    []string // likewise
	}{
		"ends well":    {code: "pass", details: []string{`"exitCode":0`, `"reason":"Completed"`, "CrashLoopBackOff"}, logs: []string{"Running (recovered from termination) last_reason=Completed last_exit_code=0", "Crash looping"}},
		"raises":       {code: "1/0", details: []string{`"exitCode":1`, `"reason":"Error"`}, logs: []string{"ZeroDivisionError"}},
		"exits":        {code: "import os; os._exit(7)", details: []string{`"exitCode":7`}},
		"is killed":    {code: "import os; os.kill(os.getpid(), 9)", details: []string{`"exitCode":137`, `"reason":"Error"`}},
		"takes memory": {cluster: workloadtest.Cluster{OOM: true}, code: "import time; time.sleep(600)", details: []string{`"exitCode":137`, `"reason":"OOMKilled"`}},
		"too large":    {code: strings.Repeat("#", 98287), details: []string{`"exitCode":128`, `"reason":"StartError"`, "CrashLoopBackOff"}},
		"just not":     {code: "_return = 1" + strings.Repeat("#", 98286-11), details: []string{`"exitCode":0`}, logs: []string{"__DR_SANDBOX_RESULT__:1"}},
		"not there":    {code: "1", change: func(c object) { c["entrypoint"] = []string{"/not/there"} }, details: []string{`"exitCode":127`}},
		"a bad image":  {cluster: workloadtest.Cluster{Command: []string{"/opt/venv/bin/python", "-c", "raise SystemExit(2)"}}, code: "1", details: []string{`"exitCode":2`}},
		"a late pull": {
			cluster: workloadtest.Cluster{PullFailures: 2}, code: "_return = 2", details: []string{`"exitCode":0`},
			logs: []string{"Image pull failed reason=ErrImagePull", "__DR_SANDBOX_RESULT__:2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := emulate(t, func(cfg *workloadtest.Config) { cfg.Cluster = c.cluster })
			body := oneShot("w", c.code)
			if c.change != nil {
				c.change(body["artifact"].(object)["spec"].(object)["containerGroups"].([]object)[0]["containers"].([]object)[0])
			}
			id := b.create(body)
			for _, hold := range c.details {
				b.details(id, hold)
			}
			for _, hold := range c.logs {
				b.until("/otel/workload/"+id+"/logs/?limit=1000", func(r reply) bool { return strings.Contains(r.raw, hold) })
			}
		})
	}
}

// States are the platform's, in its order; what is errored stays so.
func TestStates(t *testing.T) {
	t.Parallel()
	for _, recovers := range []bool{false, true} {
		t.Run(fmt.Sprint("recovers ", recovers), func(t *testing.T) {
			t.Parallel()
			b := emulate(t, func(c *workloadtest.Config) {
				c.Cluster = workloadtest.Cluster{PullFailures: 1, ErroredRecovers: recovers}
				c.Speed = 10
			})
			id := b.create(aService("w"))
			var states []string
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				state := b.do("GET", "/workloads/"+id, nil).object["status"].(string)
				if len(states) == 0 || states[len(states)-1] != state {
					states = append(states, state)
				}
				ready := b.do("GET", "/endpoints/workloads/"+id+"/x", nil).status == http.StatusOK
				if ready && (state == "running" || !recovers) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("never ready: %q", states)
				}
			}
			want := []string{"submitted", "provisioning", "launching", "errored"}
			if recovers {
				want = append(want, "running")
			}
			states = slices.DeleteFunc(states, func(s string) bool { return s == "launching" }) // it may be too short to be seen
			want = slices.DeleteFunc(want, func(s string) bool { return s == "launching" })
			if !slices.Equal(states, want) {
				t.Errorf("states %q, want %q", states, want)
			}
		})
	}
}

func TestStopAndStart(t *testing.T) {
	t.Parallel()
	b := emulate(t, nil)
	id := b.create(aService("w"))
	ready := func() {
		b.until("/endpoints/workloads/"+id+"/x", func(r reply) bool { return r.status == http.StatusOK })
	}
	ready()
	if got := b.do("POST", "/workloads/"+id+"/stop", object{}); got.status != http.StatusAccepted {
		t.Errorf("stop: %d", got.status)
	}
	b.until("/workloads/"+id, func(r reply) bool { return r.object["status"] == "stopped" })
	if c := b.e.Counters(); c.Processes != 0 {
		t.Errorf("after a stop: %+v", c)
	}
	if got := b.do("GET", "/endpoints/workloads/"+id+"/x", nil); got.status != http.StatusBadGateway {
		t.Errorf("stopped, it says %d", got.status)
	}
	if got := b.do("POST", "/workloads/"+id+"/start", object{}); got.status != http.StatusAccepted {
		t.Errorf("start: %d", got.status)
	}
	if got := b.do("POST", "/workloads/"+id+"/start", object{}); got.status != http.StatusConflict {
		t.Errorf("start again: %d", got.status)
	}
	ready()
}

// What the platform knows comes to be known in its parts one after the other.
func TestLags(t *testing.T) {
	t.Parallel()
	b := emulate(t, func(c *workloadtest.Config) {
		c.Cluster.RecordLag, c.Cluster.ListLag = 30*time.Second, 60*time.Second
	})
	id := b.create(aService("w"))
	if got := b.do("GET", "/workloads/"+id, nil); got.status != http.StatusNotFound {
		t.Errorf("at once it can be read: %d", got.status)
	}
	b.until("/workloads/"+id, func(r reply) bool { return r.status == http.StatusOK })
	if got := b.do("GET", "/workloads/?search=w", nil); got.object["count"] != 0.0 {
		t.Errorf("at once it is in the list: %s", got.raw)
	}
	b.until("/workloads/?search=w", func(r reply) bool { return r.object["count"] == 1.0 })
}

func TestErroredBlocks(t *testing.T) {
	t.Parallel()
	b := emulate(t, func(c *workloadtest.Config) {
		c.Cluster = workloadtest.Cluster{PullFailures: 1, ErroredBlocks: true}
	})
	id := b.create(aService("w"))
	b.until("/endpoints/workloads/"+id+"/x", func(r reply) bool { return r.status == http.StatusServiceUnavailable })
	b.details(id, `"ready":true`)
	if got := b.do("GET", "/endpoints/workloads/"+id+"/x", nil); got.status != http.StatusServiceUnavailable {
		t.Errorf("an errored workload answers %d", got.status)
	}
}

// A container's environment is what was declared, and what the platform adds, and nothing of ours.
func TestEnvironment(t *testing.T) {
	for _, injects := range []bool{false, true} {
		t.Run(fmt.Sprint("injects ", injects), func(t *testing.T) {
			t.Setenv("EMULATORS_OWN", "1")
			b := emulate(t, func(c *workloadtest.Config) { c.Cluster.InjectToken = injects })
			id := b.create(oneShot("w", "import os\n_return = ' '.join(sorted(os.environ))"))
			got := b.logged(id, "__DR_SANDBOX_RESULT__:")
			want := "DR_SANDBOX_CODE_B64 DR_SANDBOX_INPUTS_B64 DR_SANDBOX_TIMEOUT_SECS DRX_PORT LC_CTYPE " +
				"OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS PATH PORT PYTHONUNBUFFERED WORKLOAD_ID"
			if injects {
				want = "DATAROBOT_API_TOKEN DATAROBOT_ENDPOINT " + want
			}
			sorted := strings.Fields(want)
			slices.Sort(sorted)
			var names []string
			for _, m := range messages(got) {
				if text, ok := strings.CutPrefix(m, "__DR_SANDBOX_RESULT__:"); ok {
					names = strings.Fields(strings.Trim(text, `"`))
				}
			}
			// Python adds it where the locale is C.
			without := func(s string) bool { return s == "LC_CTYPE" }
			if !slices.Equal(slices.DeleteFunc(names, without), slices.DeleteFunc(sorted, without)) {
				t.Errorf("the environment has %q, want %q", names, sorted)
			}
		})
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	b := emulate(t, func(c *workloadtest.Config) { c.Cluster.TTL = 10 * time.Second })
	id := b.create(aService("w"))
	b.until("/workloads/"+id, func(r reply) bool { return r.status == http.StatusNotFound })
	if c := b.e.Counters(); c.Artifacts != 1 {
		t.Errorf("the platform's own clean-up takes the workload alone: %+v", c)
	}
}

func TestLogKnobs(t *testing.T) {
	t.Parallel()
	// The first attempt's lines alone: the second one ends in the back-off after it.
	const code = "import sys\nfor i in range(5): print('out', i)\nprint('err', file=sys.stderr)\nprint('x' * 20000)\nimport time; time.sleep(600)"
	for name, c := range map[string]struct {
		logs  workloadtest.Logs
		check func(t *testing.T, b *bench, id string)
	}{
		"newest first": {check: func(t *testing.T, b *bench, id string) {
			all := messages(b.logged(id, "xxx"))
			if slices.Index(all, "out 4") > slices.Index(all, "out 0") {
				t.Errorf("%.200q", all)
			}
		}},
		"oldest first": {logs: workloadtest.Logs{OldestFirst: true}, check: func(t *testing.T, b *bench, id string) {
			all := messages(b.logged(id, "xxx"))
			if slices.Index(all, "out 4") < slices.Index(all, "out 0") {
				t.Errorf("%.200q", all)
			}
		}},
		"twice": {logs: workloadtest.Logs{Duplicate: true}, check: func(t *testing.T, b *bench, id string) {
			if got := b.logged(id, "xxx"); strings.Count(got.raw, `"out 3"`) != 2 {
				t.Errorf("%.300q", got.raw)
			}
		}},
		"with line ends": {logs: workloadtest.Logs{Newlines: true}, check: func(t *testing.T, b *bench, id string) { b.logged(id, `out 3\n"`) }},
		"split": {logs: workloadtest.Logs{Split: true}, check: func(t *testing.T, b *bench, id string) {
			var sizes []int
			for _, m := range messages(b.logged(id, "xxx")) {
				if strings.HasPrefix(m, "xxx") {
					sizes = append(sizes, len(m))
				}
			}
			if !slices.Equal(sizes, []int{20000 - 16<<10, 16 << 10}) {
				t.Errorf("pieces of %v", sizes)
			}
		}},
		"stdout late": {logs: workloadtest.Logs{Stdout: 100 * time.Second, Stderr: time.Millisecond}, check: func(t *testing.T, b *bench, id string) {
			if got := b.logged(id, "err"); strings.Contains(got.raw, "out 0") {
				t.Errorf("stdout is not late: %.300q", got.raw)
			}
			b.logged(id, "out 0")
		}},
		"never": {logs: workloadtest.Logs{Never: true}, check: func(t *testing.T, b *bench, id string) {
			b.until("/endpoints/workloads/"+id+"/", func(r reply) bool { return b.e.Counters().Processes == 1 })
			time.Sleep(100 * time.Millisecond)
			if got := b.do("GET", "/otel/workload/"+id+"/logs/", nil); len(messages(got)) != 0 {
				t.Errorf("%.300q", got.raw)
			}
		}},
		"next elsewhere": {logs: workloadtest.Logs{NextBase: "http://evil.example"}, check: func(t *testing.T, b *bench, id string) {
			b.logged(id, "xxx")
			if next := b.do("GET", "/otel/workload/"+id+"/logs/?limit=2", nil).object["next"]; !strings.HasPrefix(fmt.Sprint(next), "http://evil.example/api/v2/") {
				t.Errorf("next is %v", next)
			}
		}},
		"an empty page": {logs: workloadtest.Logs{EmptyPage: true}, check: func(t *testing.T, b *bench, id string) {
			b.logged(id, "xxx")
			last := b.do("GET", "/otel/workload/"+id+"/logs/?limit=500", nil)
			empty := b.do("GET", "/otel/workload/"+id+"/logs/?limit=500&offset=500", nil)
			if last.object["next"] == nil || empty.object["next"] == nil || len(messages(empty)) != 0 {
				t.Errorf("%.200q, then %.200q", last.raw, empty.raw)
			}
		}},
		"overlapping": {logs: workloadtest.Logs{Overlap: 1}, check: func(t *testing.T, b *bench, id string) {
			b.logged(id, "xxx")
			first := b.do("GET", "/otel/workload/"+id+"/logs/?limit=3", nil)
			_, path, _ := strings.Cut(first.object["next"].(string), "/api/v2")
			second := b.do("GET", path, nil)
			if messages(first)[2] != messages(second)[0] {
				t.Errorf("%.200q, then %.200q", messages(first), messages(second))
			}
		}},
		"a row of one's own": {check: func(t *testing.T, b *bench, id string) {
			b.e.AddRow(id, "ERROR", "mine", "a trace")
			if got := b.do("GET", "/otel/workload/"+id+"/logs/?level=error", nil); !strings.Contains(got.raw, `"stacktrace":"a trace"`) {
				t.Errorf("%.300q", got.raw)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := emulate(t, func(cfg *workloadtest.Config) { cfg.Logs = c.logs })
			c.check(t, b, b.create(oneShot("w", code)))
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	workloads := regexp.MustCompile(`^/workloads/`)
	faults := []workloadtest.Fault{
		{Method: "GET", Path: regexp.MustCompile(`/status$`), Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: "<html>slow down</html>"},
		{Method: "POST", Path: workloads, Drop: true},
		{Method: "POST", Path: workloads, From: 2, Drop: true, Commit: true},
		{Method: "POST", Path: workloads, From: 3, Status: 502, Commit: true, Body: "<html>"},
		{Method: "GET", Path: regexp.MustCompile(`^/artifacts/`), From: 2, Every: 2, Times: -1, Status: 500},
		{Method: "GET", Path: regexp.MustCompile(`^/account/info/$`), Cut: true},
		{Method: "GET", Path: regexp.MustCompile(`^/mlops/`), Delay: 10 * time.Second},
		{Method: "DELETE", Hang: true},
	}
	b := emulate(t, func(c *workloadtest.Config) { c.Faults = faults })

	got := b.do("GET", "/workloads/1/status", nil)
	if got.status != 429 || got.header.Get("Retry-After") != "7" || got.raw != "<html>slow down</html>" {
		t.Errorf("429: %+v", got)
	}
	for i, want := range []struct{ status, created int }{{0, 0}, {0, 1}, {502, 2}, {201, 3}} {
		got := b.do("POST", "/workloads/", aService(fmt.Sprint("w", i)))
		if created := b.e.Counters().Created; got.status != want.status || created != want.created {
			t.Errorf("create %d: %d %s with %d created, want %v", i, got.status, got.raw, created, want)
		}
	}
	for i, want := range []int{200, 500, 200, 500, 200} {
		if got := b.do("GET", "/artifacts/", nil); got.status != want {
			t.Errorf("list %d: %d, want %d", i, got.status, want)
		}
	}
	if got := b.do("GET", "/account/info/", nil); !strings.Contains(got.raw, "unexpected EOF") {
		t.Errorf("cut: %+v", got)
	}
	began := time.Now()
	if got := b.do("GET", "/mlops/compute/bundles/", nil); got.status != 200 || time.Since(began) < 100*time.Millisecond {
		t.Errorf("delayed: %d after %v", got.status, time.Since(began))
	}
	hung := make(chan reply)
	go func() { hung <- b.do("DELETE", "/workloads/1", nil) }()
	select {
	case got := <-hung:
		t.Errorf("what hangs says %+v", got)
	case <-time.After(200 * time.Millisecond):
	}
	b.e.Close()
	if got := <-hung; got.status != 0 {
		t.Errorf("what hung says %+v", got)
	}
	if got := b.do("GET", "/workloads/", nil); got.status != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d", got.status)
	}
	seen := b.e.Seen()
	if last := seen[len(seen)-1]; last.Method != "GET" || last.URI != "/api/v2/workloads/" || last.Status != 503 {
		t.Errorf("the last request was %+v", last)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := workloadtest.New(workloadtest.Config{Speed: -1, Faults: []workloadtest.Fault{{Drop: true, Hang: true}}})
	for _, part := range []string{"no Start", "no Python", "an empty token", "Speed", "fault 0"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: lacks %q", err, part)
		}
	}
}

// Users have their own workloads, and no others.
func TestUsers(t *testing.T) {
	t.Parallel()
	b := emulate(t, func(c *workloadtest.Config) { c.Tokens = []string{"another"}; c.Cluster.Limit = 1 })
	id := b.create(aService("w"))
	other := func(method, path string) reply {
		r := b.request(method, path, nil)
		r.Header.Set("Authorization", "Bearer another")
		return b.send(r)
	}
	for _, path := range []string{"/workloads/" + id, "/endpoints/workloads/" + id + "/", "/otel/workload/" + id + "/logs/"} {
		if got := other("GET", path); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.raw)
		}
	}
	if got := other("DELETE", "/workloads/"+id); got.status != http.StatusNotFound {
		t.Errorf("delete: %d", got.status)
	}
	if got := other("GET", "/workloads/"); got.object["totalCount"] != 0.0 {
		t.Errorf("list: %s", got.raw)
	}
}

const upgraded = `
import os, socket
s = socket.create_server(("127.0.0.1", int(os.environ["DRX_PORT"])))
while True:
    c, _ = s.accept()
    with c:
        got = b""
        while b"\r\n\r\n" not in got: got += c.recv(1000)
        if b"/slow" in got: c.recv(1000)
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        c.sendall(c.recv(1000).upper())
`

func TestGateway(t *testing.T) {
	t.Parallel()
	b := emulate(t, func(c *workloadtest.Config) {
		c.Cluster.InvokeBody, c.Cluster.InvokeTimeout = 1000, 100*time.Second
	})
	body := aService("w")
	container := body["artifact"].(object)["spec"].(object)["containerGroups"].([]object)[0]["containers"].([]object)[0]
	delete(container, "readinessProbe")
	container["entrypoint"] = []string{"/opt/venv/bin/python", "-c", upgraded}
	id := b.create(body)
	b.until("/workloads/"+id, func(r reply) bool { return r.object["status"] == "running" })

	var conn net.Conn
	var read *bufio.Reader
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if conn, err = net.Dial("tcp", strings.TrimPrefix(b.url, "http://")); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/v2/endpoints/workloads/%s/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", id, token)
		read = bufio.NewReader(conn)
		line, err := read.ReadString('\n')
		if err == nil && strings.Contains(line, " 101 ") {
			break
		}
		if time.Now().After(end) { // without a probe it is running before it listens
			t.Fatalf("%q %v", line, err)
		}
	}
	for line := "x"; line != "\r\n"; {
		var err error
		if line, err = read.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(conn, "hello\n")
	if got, err := read.ReadString('\n'); got != "HELLO\n" {
		t.Errorf("upgraded: %q %v", got, err)
	}
	if got := b.do("POST", "/endpoints/workloads/"+id+"/", strings.Repeat("x", 1001)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d", got.status)
	}
	conn.Close()
	if got := b.do("GET", "/endpoints/workloads/"+id+"/slow", nil); got.status != http.StatusGatewayTimeout {
		t.Errorf("a container that does not answer: %d", got.status)
	}
}

// Close ends what will not end, and what it left to others.
func TestClose(t *testing.T) {
	t.Parallel()
	const stubborn = `
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child", os.fork() and os.getpid(), flush=True)
time.sleep(600)`
	b := emulate(t, func(c *workloadtest.Config) { c.Cluster.Grace = time.Hour })
	ids := []string{b.create(oneShot("a", stubborn)), b.create(oneShot("b", stubborn))}
	for _, id := range ids {
		b.logged(id, "child 0")
	}
	if got := b.do("DELETE", "/workloads/"+ids[0], nil); got.status != http.StatusNoContent {
		t.Errorf("delete: %d", got.status)
	}
	if c := b.e.Counters(); c.Processes != 2 || c.Workloads != 1 {
		t.Errorf("within the grace: %+v", c)
	}
	began := time.Now()
	b.e.Close()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	if c := b.e.Counters(); c.Processes != 0 {
		t.Errorf("after Close: %+v", c)
	}
	b.e.Close() // fine twice
}
