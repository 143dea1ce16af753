package sandbox_test

import (
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"mcp-sandbox/sandbox"
)

// What measuring adds to a call, with figures alone, and with a span that is recorded.
func BenchmarkInstruments(b *testing.B) {
	spans := sdktrace.NewTracerProvider()
	for name, tracer := range map[string]func() (*sandbox.Instruments, error){
		"metrics": func() (*sandbox.Instruments, error) {
			return sandbox.NewInstruments(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("b"), noop.NewTracerProvider().Tracer("b"), func() sandbox.Stats { return sandbox.Stats{} })
		},
		"spans": func() (*sandbox.Instruments, error) {
			return sandbox.NewInstruments(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("b"), spans.Tracer("b"), func() sandbox.Stats { return sandbox.Stats{} })
		},
	} {
		i, err := tracer()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, e := i.Begin(b.Context(), "execute_python", nil)
				e.End("ann", "id", sandbox.Result{Status: sandbox.StatusOK, Backend: "local", Truncated: sandbox.Truncation{Stdout: sandbox.Count{Produced: 2, Kept: 2}}})
			}
		})
	}
}
