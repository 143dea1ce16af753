package workloadtest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/workload/workloadtest"
)

// exchange is a request and the platform's answer to it, in testdata/exchanges. The
// client decodes the same files: a field that the emulator made up, or one that it
// forgot, fails here.
type exchange struct {
	About   string
	Given   string // what has gone before: a one-shot run just begun (one-shot) or errored, an unsized one, a running service; "" = nothing
	Cluster workloadtest.Cluster
	Logs    workloadtest.Logs
	Request struct {
		Method, Path string // below /api/v2; {id}, {pid} and {aid} are the workload's
		Token        string // another than the right one
		Text         string // a body that is not JSON
		Body         any
	}
	Response struct {
		Status int
		Header map[string]string
		Text   string
		Body   any
	}
	Exact []string // places of the answer that must be equal, not only alike
}

func TestExchanges(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/exchanges/*.json")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d exchanges: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			var x exchange
			text, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(text, &x)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := emulate(t, func(c *workloadtest.Config) { c.Cluster, c.Logs, c.Speed = x.Cluster, x.Logs, 20 })
			ids := b.given(x.Given)
			var faults []string
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if faults = x.compare(b.exchange(x, ids)); faults == nil || x.Request.Method != "GET" {
					break
				}
			}
			for _, f := range faults {
				t.Error(f)
			}
		})
	}
}

// given brings an emulator to where an exchange begins, and returns the ids that a path may name.
func (b *bench) given(state string) *strings.Replacer {
	b.Helper()
	const name = "dr-sandbox-3f9c1a7be210"
	var body object
	switch state {
	case "":
		return strings.NewReplacer()
	case "running":
		body = aService(name)
		container := body["artifact"].(object)["spec"].(object)["containerGroups"].([]object)[0]["containers"].([]object)[0]
		container["name"] = "sandbox"
		body["runtime"].(object)["containerGroups"].([]object)[0]["containers"].([]object)[0]["name"] = "sandbox"
	default:
		body = oneShot(name, "_return = 42")
	}
	body["artifact"].(object)["name"] = "dr-sandbox-artifact-3f9c1a7be210"
	if state == "unsized" {
		delete(body["runtime"].(object)["containerGroups"].([]object)[0], "containers")
	}
	id := b.create(body)
	record := b.do("GET", "/workloads/"+id, nil).object
	switch state {
	case "running":
		b.until("/workloads/"+id, func(r reply) bool { return r.object["status"] == "running" })
	case "errored":
		b.until("/otel/workload/"+id+"/logs/?includes=__DR_SANDBOX_RESULT__&limit=1000", func(r reply) bool {
			return strings.Count(r.raw, "__DR_SANDBOX_RESULT__:42") >= 3
		})
	}
	return strings.NewReplacer("{id}", id, "{pid}", record["protonId"].(string), "{aid}", record["artifactId"].(string))
}

func (b *bench) exchange(x exchange, ids *strings.Replacer) reply {
	b.Helper()
	var body any = x.Request.Body
	if x.Request.Text != "" {
		body = x.Request.Text
	}
	r := b.request(x.Request.Method, ids.Replace(x.Request.Path), body)
	if x.Request.Token != "" {
		r.Header.Set("Authorization", "Bearer "+x.Request.Token)
	}
	return b.send(r)
}

// compare lists in what an answer is unlike the platform's.
func (x exchange) compare(got reply) []string {
	var faults []string
	if got.status != x.Response.Status {
		return []string{fmt.Sprintf("status %d, want %d: %s", got.status, x.Response.Status, got.raw)}
	}
	for name, value := range x.Response.Header {
		if kindOf(got.header.Get(name)) != kindOf(value) {
			faults = append(faults, fmt.Sprintf("%s: %s, want one like %s", name, got.header.Get(name), value))
		}
	}
	if x.Response.Text != "" && got.raw != x.Response.Text {
		faults = append(faults, fmt.Sprintf("body %q, want %q", got.raw, x.Response.Text))
	}
	if x.Response.Body == nil {
		return faults
	}
	var body any
	if err := json.Unmarshal([]byte(got.raw), &body); err != nil {
		return append(faults, fmt.Sprintf("%v: %s", err, got.raw))
	}
	faults = append(faults, unlike("", body, x.Response.Body)...)
	for _, place := range x.Exact {
		got, want := at(body, place), at(x.Response.Body, place)
		if !reflect.DeepEqual(got, want) {
			faults = append(faults, fmt.Sprintf("%s is %v, want %v", place, got, want))
		}
	}
	return faults
}

// unlike lists the places whose names, types or forms differ. Of a list the first elements stand
// for all.
func unlike(place string, got, want any) []string {
	if g, w := kindOf(got), kindOf(want); g != w {
		return []string{fmt.Sprintf("%s is %s, want %s: %v", place, g, w, got)}
	}
	var faults []string
	switch want := want.(type) {
	case map[string]any:
		got := got.(map[string]any)
		names := map[string]bool{}
		for name := range maps.Keys(want) {
			names[name] = true
		}
		for name := range maps.Keys(got) {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			g, has := got[name]
			w, wanted := want[name]
			switch {
			case !has:
				faults = append(faults, place+"."+name+" is missing")
			case !wanted:
				faults = append(faults, place+"."+name+" is not the platform's")
			default:
				faults = append(faults, unlike(place+"."+name, g, w)...)
			}
		}
	case []any:
		if got := got.([]any); len(got) > 0 && len(want) > 0 {
			faults = unlike(place+".0", got[0], want[0])
		}
	}
	return faults
}

// forms are what strings of the platform look like.
var forms = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"an id", regexp.MustCompile(`^[0-9a-f]{24}$`)},
	{"a record's time", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$`)},
	{"a row's time", regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00:00$`)},
	{"a pod's time", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)},
	{"the URL of a proton", regexp.MustCompile(`^https?://[^/]+/api/v2/endpoints/workloads/[0-9a-f]{24}/\?protonId=[0-9a-f]{24}$`)},
	{"the URL of a container", regexp.MustCompile(`^https?://[^/]+/api/v2/endpoints/workloads/[0-9a-f]{24}/$`)},
	{"the URL of a workload", regexp.MustCompile(`^https?://[^/]+/api/v2/workloads/[0-9a-f]{24}/$`)},
	{"the URL of a page of logs", regexp.MustCompile(`^https?://[^/]+/api/v2/otel/workload/[0-9a-f]{24}/logs/\?.*$`)},
	{"a URL", regexp.MustCompile(`^https?://`)},
	{"a pod's name", regexp.MustCompile(`^lrs-[0-9a-f]{24}-`)},
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		for _, f := range forms {
			if f.pattern.MatchString(v) {
				return f.name
			}
		}
		return "a string"
	}
	return fmt.Sprintf("%T", v)
}

// at is what lies at a place such as data.0.name.
func at(v any, place string) any {
	for part := range strings.SplitSeq(place, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}
