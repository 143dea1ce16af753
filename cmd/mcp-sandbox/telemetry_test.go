package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// scraped reads /metrics as Prometheus does: NAME{LABEL=VALUE,…}, of a histogram the count.
func scraped(t *testing.T, s *webServer, h ...string) map[string]float64 {
	t.Helper()
	a := s.do("GET", "/metrics", h, "")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("/metrics: %+v", a)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil {
		t.Fatalf("%v\n%s", err, a.body)
	}
	got := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				v = float64(m.GetHistogram().GetSampleCount())
				buckets := m.GetHistogram().GetBucket()
				if last := buckets[len(buckets)-1].GetCumulativeCount(); float64(last) != v {
					t.Errorf("%s: %v calls, %d in all buckets", name, v, last)
				}
			}
			got[name+"{"+strings.Join(labels, ",")+"}"] = v
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	s := startWeb(t)
	c := s.legacy()
	for _, code := range []string{"print 1", "print 2", "raise x"} {
		c.run(code)
	}
	s.do("POST", "/mcp", c.headers(asJSON), call(2, ""))
	s.do("POST", "/mcp", c.headers(asJSON), `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"execute_cli","arguments":{"command":"rm -rf /"}}}`)
	s.do("POST", "/mcp", c.headers(asJSON), `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"crash"}}}`)
	want := map[string]float64{}
	for of, n := range map[string]float64{
		"{backend=local,outcome=success,status=ok,tool=execute_python}":      2,
		"{backend=local,outcome=success,status=error,tool=execute_python}":   1,
		"{backend=local,outcome=success,status=invalid,tool=execute_python}": 1,
		"{backend=local,outcome=success,status=denied,tool=execute_cli}":     1,
		"{backend=local,outcome=failure,status=crash,tool=execute_python}":   1,
	} {
		want["sandbox_execution_total"+of], want["sandbox_execution_duration_seconds"+of] = n, n
	}
	maps.Copy(want, map[string]float64{
		"sandbox_execution_failure_total{backend=local,reason=crash,tool=execute_python}": 1,
		"sandbox_sessions{state=awake}": 1, "sandbox_sessions{state=hibernated}": 0,
		"sandbox_calls_running{}": 0, "sandbox_calls_waiting{}": 0, "sandbox_hibernation_total{}": 0,
		"sandbox_checkpoint_made_total{}": 0, "sandbox_checkpoint_taken_total{}": 0,
	})
	if diff := cmp.Diff(want, scraped(t, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMetricsNeedTheToken(t *testing.T) {
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+strings.Repeat("a", 32)))
	if a := s.do("GET", "/metrics", nil, ""); a.status != 401 {
		t.Errorf("without a token: %+v", a)
	}
	scraped(t, s, "Authorization", "Bearer "+strings.Repeat("a", 32))
}

// collected is an OTLP collector, which reads by the official decoder.
type collected struct {
	mu      sync.Mutex
	spans   []*tracepb.Span
	about   map[string]string   // of the resource that sent the last spans
	metrics map[string][]string // the last values: name -> points
	faults  []string
}

func attributes(all []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range all {
		m[kv.Key] = strings.Trim(strings.SplitN(kv.Value.String(), ":", 2)[1], `"`)
	}
	return m
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		in, _ = gzip.NewReader(r.Body)
	}
	body, err := io.ReadAll(in)
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("X-Key") != "a b" || r.Method != "POST" {
		c.faults = append(c.faults, fmt.Sprint(err, r.Header))
	}
	switch r.URL.Path {
	case "/base/v1/traces":
		var data tracepb.TracesData
		if err := proto.Unmarshal(body, &data); err != nil {
			c.faults = append(c.faults, err.Error())
		}
		for _, rs := range data.ResourceSpans {
			c.about = attributes(rs.Resource.Attributes)
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	case "/base/v1/metrics":
		var data metricspb.MetricsData
		if err := proto.Unmarshal(body, &data); err != nil {
			c.faults = append(c.faults, err.Error())
		}
		c.takeMetrics(&data)
	default:
		c.faults = append(c.faults, r.URL.Path)
	}
}

func (c *collected) takeMetrics(data *metricspb.MetricsData) {
	c.metrics = map[string][]string{}
	for _, rm := range data.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
					c.metrics[m.Name] = append(c.metrics[m.Name], fmt.Sprintf("%s %d", attributes(p.Attributes)["status"], p.GetAsInt()))
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					var n uint64
					for _, b := range p.BucketCounts {
						n += b
					}
					if len(p.BucketCounts) != len(p.ExplicitBounds)+1 || n != p.Count || p.GetMin() > p.GetMax() || p.GetSum() <= 0 {
						c.faults = append(c.faults, p.String())
					}
					c.metrics[m.Name] = append(c.metrics[m.Name], fmt.Sprintf("%s %d", attributes(p.Attributes)["status"], p.Count))
				}
			}
		}
	}
}

func TestCollector(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		c := &collected{}
		server := httptest.NewServer(c)
		defer server.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL+"/base")
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
		t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
		t.Setenv("OTEL_SERVICE_NAME", "ours")
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "place=here")
		s := startWeb(t)
		const (
			byHeader, byMeta = "4bf92f3577b34da6a3ce929d0e0e4736", "5bf92f3577b34da6a3ce929d0e0e4736"
			parent           = "-00f067aa0ba902b7-01"
		)
		l := s.legacy()
		read(t, s.do("POST", "/mcp", append(l.headers(asJSON), "Traceparent", "00-"+byHeader+parent), call(1, "print 1")))
		read(t, s.do("POST", "/mcp", append(l.headers(asJSON), "Traceparent", "00-"+byHeader+parent),
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"traceparent":"00-`+byMeta+parent+`"},"name":"execute_python","arguments":{"code":"crash"}}}`))
		e := s.listen()
		e.extra = header{"Traceparent", "00-" + byMeta + parent}
		e.send(call(3, "print 3"))
		e.await(`^data: .*"stdout":"(3)\\n"`)
		if code, took := s.stop(); code != 0 || took > 5*time.Second {
			t.Errorf("ended with %d after %v", code, took)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.faults != nil {
			t.Errorf("%s: %v", compression, c.faults)
		}
		if c.about["service.name"] != "ours" || c.about["place"] != "here" || c.about["service.version"] == "" {
			t.Errorf("the resource: %v", c.about)
		}
		var got []string
		for _, span := range c.spans {
			a := attributes(span.Attributes)
			got = append(got, fmt.Sprintf("%s %x %x %v %s %s", span.Name, span.TraceId, span.ParentSpanId, span.Status.GetCode(), a["status"], a["outcome"]))
			if span.EndTimeUnixNano <= span.StartTimeUnixNano || a["session"] == "" || a["principal"] == "" || a["exit_code"] == "" {
				t.Errorf("%v", span)
			}
		}
		want := []string{
			"sandbox.execute " + byHeader + " 00f067aa0ba902b7 STATUS_CODE_UNSET ok success",
			"sandbox.execute " + byMeta + " 00f067aa0ba902b7 STATUS_CODE_ERROR crash failure",
			"sandbox.execute " + byMeta + " 00f067aa0ba902b7 STATUS_CODE_UNSET ok success",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spans, -want +got:\n%s", diff)
		}
		for name, want := range map[string]string{"sandbox.execution_total": "[crash 1 ok 2]", "sandbox.execution_duration_seconds": "[crash 1 ok 2]", "sandbox.execution_failure_total": "[ 1]"} {
			slices.Sort(c.metrics[name])
			if got := fmt.Sprint(c.metrics[name]); got != want {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// A collector that takes connections and never answers must cost nobody anything.
func TestCollectorThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	s := startWeb(t)
	c := s.legacy()
	begun := time.Now()
	for range 100 {
		c.run("print 1")
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("100 calls took %v", took)
	}
	for _, what := range []string{"metrics", "traces"} {
		s.stderr.await(t, "telemetry is not taken: .*what="+what)
	}
	if code, took := s.stop(); code != 0 || took > webFlushTime+2*time.Second {
		t.Errorf("ended with %d after %v", code, took)
	}
	if n := strings.Count(s.stderr.String(), "telemetry is not taken"); n != 2 {
		t.Errorf("it was said %d times", n)
	}
}

func TestReadOTLP(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, test := range map[string]struct {
		env                    map[string]string
		metrics, traces, fault string
	}{
		"nothing":        {nil, "", "", ""},
		"both":           {map[string]string{endpoint: "http://c:4318/"}, "http://c:4318/v1/metrics", "http://c:4318/v1/traces", ""},
		"one":            {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/in"}, "", "https://c/in", ""},
		"its own":        {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/x"}, "http://m/x", "http://c/v1/traces", ""},
		"disabled":       {map[string]string{endpoint: "http://c", "OTEL_SDK_DISABLED": "TRUE"}, "", "", ""},
		"none":           {map[string]string{endpoint: "http://c", "OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "otlp"}, "", "http://c/v1/traces", ""},
		"no URL":         {map[string]string{endpoint: "c:4318"}, "", "", "must be a URL"},
		"gRPC":           {map[string]string{endpoint: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", "", "only http/protobuf"},
		"a bad header":   {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "a=b,secret"}, "", "", "number 2"},
		"two lines":      {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%0d%0aX: y"}, "", "", "number 1"},
		"no time":        {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT": "-1"}, "", "", "milliseconds"},
		"zip":            {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "", "", "gzip or none"},
		"no certificate": {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, "", "", "no such file"},
	} {
		got, err := readOTLP(func(name string) string { return test.env[name] })
		if test.fault != "" || err != nil {
			if err == nil || test.fault == "" || !strings.Contains(err.Error(), test.fault) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, s := range []struct {
			d    *destination
			want string
		}{{got.metrics, test.metrics}, {got.traces, test.traces}} {
			if url := ""; s.d != nil {
				if url = s.d.url.String(); url != s.want {
					t.Errorf("%s: %s", name, url)
				}
			} else if s.want != "" {
				t.Errorf("%s: not sent to %s", name, s.want)
			}
		}
	}
}
