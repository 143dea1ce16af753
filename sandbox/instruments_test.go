package sandbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"mcp-sandbox/sandbox"
)

// read is all figures, each as NAME{ATTRIBUTES}; of a histogram the count.
func read(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	key := func(name string, set attribute.Set) string {
		return name + "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[key(m.Name, p.Attributes)] = p.Value
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					got[key(m.Name, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[key(m.Name, p.Attributes)] = int64(p.Count)
				}
			}
		}
	}
	return got
}

func TestInstruments(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	ended := tracetest.NewInMemoryExporter()
	spans := sdktrace.NewTracerProvider(sdktrace.WithSyncer(ended))
	stats := sandbox.Stats{Awake: 3, Hibernated: 2, Running: 1, Waiting: 7, Hibernations: 9, Checkpoints: sandbox.Checkpoints{Made: 5, Taken: 4}}
	i, err := sandbox.NewInstruments(meters.Meter("t"), spans.Tracer("t"), func() sandbox.Stats { return stats })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{
		"sandbox.sessions{state=awake}": 3, "sandbox.sessions{state=hibernated}": 2, "sandbox.calls_running{}": 1, "sandbox.calls_waiting{}": 7,
		"sandbox.hibernation_total{}": 9, "sandbox.checkpoint_made_total{}": 5, "sandbox.checkpoint_taken_total{}": 4,
		"sandbox.output_produced_bytes_total{stream=stdout}": 1000, "sandbox.output_kept_bytes_total{stream=stdout}": 10,
	}
	for status, reason := range map[sandbox.Status]string{
		sandbox.StatusOK: "", sandbox.StatusError: "", sandbox.StatusInvalid: "", sandbox.StatusDenied: "", sandbox.StatusCancelled: "",
		sandbox.StatusTimeout: "timeout", sandbox.StatusOOM: "oom", sandbox.StatusCrash: "crash", sandbox.StatusInfra: "infra",
	} {
		_, e := i.Begin(t.Context(), "execute_python", nil)
		res := sandbox.Result{Status: status, Backend: "local"}
		if status == sandbox.StatusOK {
			res.Truncated.Stdout = sandbox.Count{Produced: 1000, Kept: 10}
		}
		e.End("ann", "some-session", res)
		outcome := "success"
		if reason != "" {
			outcome = "failure"
			want["sandbox.execution_failure_total{backend=local,reason="+reason+",tool=execute_python}"] = 1
		}
		of := fmt.Sprintf("{backend=local,outcome=%s,status=%s,tool=execute_python}", outcome, status)
		want["sandbox.execution_total"+of], want["sandbox.execution_duration_seconds"+of] = 1, 1
		span := ended.GetSpans()[len(ended.GetSpans())-1]
		if (span.Status.Code == codes.Error) != (reason != "") || span.Name != "sandbox.execute" {
			t.Errorf("%s: the span %s ended as %+v", status, span.Name, span.Status)
		}
	}
	if diff := cmp.Diff(want, read(t, reader)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInstrumentsContinueATrace(t *testing.T) {
	ended := tracetest.NewInMemoryExporter()
	spans := sdktrace.NewTracerProvider(sdktrace.WithSyncer(ended))
	i, err := sandbox.NewInstruments(sdkmetric.NewMeterProvider().Meter("t"), spans.Tracer("t"), func() sandbox.Stats { return sandbox.Stats{} })
	if err != nil {
		t.Fatal(err)
	}
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for given, want := range map[string]string{"00-" + trace + "-" + parent + "-01": parent, "nonsense": "0000000000000000", "": "0000000000000000"} {
		_, e := i.Begin(context.Background(), "execute_cli", map[string]string{"traceparent": given})
		e.End("ann", "", sandbox.Result{Status: sandbox.StatusOK})
		span := ended.GetSpans()[len(ended.GetSpans())-1]
		if got := span.Parent.SpanID().String(); got != want || want == parent && span.SpanContext.TraceID().String() != trace {
			t.Errorf("%q: the parent is %s in trace %s", given, got, span.SpanContext.TraceID())
		}
	}
}

func TestNobodyMeasures(t *testing.T) {
	var i *sandbox.Instruments
	ctx, e := i.Begin(t.Context(), "execute_python", nil)
	if ctx != t.Context() {
		t.Error("the context is another")
	}
	e.End("ann", "", sandbox.Result{Status: sandbox.StatusOK})
}

// Stats must be the truth while calls run, and wait.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s, _ := books(t, sandbox.SessionsConfig{MaxRunning: 1}, func(context.Context, string, int, sandbox.Request) (sandbox.Result, error) {
			<-hold
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		})
		for _, connection := range []string{"a", "b", "c"} {
			go func() {
				_, _, _ = s.Run(t.Context(), sandbox.Caller{Principal: "p", Connection: connection}, "", sandbox.Request{Code: "x"})
			}()
		}
		synctest.Wait()
		if got, want := s.Stats(), (sandbox.Stats{Awake: 3, Running: 1, Waiting: 2}); got != want {
			t.Errorf("while one runs: %+v", got)
		}
		close(hold)
		synctest.Wait()
		if got, want := s.Stats(), (sandbox.Stats{Awake: 3}); got != want {
			t.Errorf("after all: %+v", got)
		}
	})
}
