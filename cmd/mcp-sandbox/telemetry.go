package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"mcp-sandbox/sandbox"
)

// telemetry is where figures and spans go: to whoever reads /metrics, and to a
// collector, where the environment names one.
type telemetry struct {
	meters *sdkmetric.MeterProvider // nil = nobody wants figures
	spans  *sdktrace.TracerProvider // nil = nobody wants spans
	reader *sdkmetric.ManualReader  // what /metrics reads; nil = there is no such route
}

// newTelemetry reads the environment as OpenTelemetry has it. close ends it.
func newTelemetry(ctx context.Context, web bool, env func(string) string, log *slog.Logger) (*telemetry, error) {
	otlp, err := readOTLP(env)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "mcp-sandbox"), attribute.String("service.version", buildVersion())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	t := &telemetry{}
	meters := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if web {
		t.reader = sdkmetric.NewManualReader()
		meters = append(meters, sdkmetric.WithReader(t.reader))
	}
	if otlp.metrics != nil {
		meters = append(meters, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(&figures{newCollector(*otlp.metrics, log)})))
	}
	if web || otlp.metrics != nil {
		t.meters = sdkmetric.NewMeterProvider(meters...)
	}
	if otlp.traces != nil {
		t.spans = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(&spans{newCollector(*otlp.traces, log)}))
	}
	for _, s := range []*destination{otlp.metrics, otlp.traces} {
		if s != nil {
			log.Info("telemetry is sent", "what", s.what, "to", s.url.Redacted())
		}
	}
	return t, nil
}

// instruments measure calls; nil where nobody wants to know.
func (t *telemetry) instruments(stats func() sandbox.Stats) (*sandbox.Instruments, error) {
	if t.meters == nil && t.spans == nil {
		return nil, nil
	}
	var meters metric.MeterProvider = metricnoop.NewMeterProvider()
	if t.meters != nil {
		meters = t.meters
	}
	var spans trace.TracerProvider = tracenoop.NewTracerProvider()
	if t.spans != nil {
		spans = t.spans
	}
	return sandbox.NewInstruments(meters.Meter("mcp-sandbox"), spans.Tracer("mcp-sandbox"), stats)
}

// metrics is the route of that name; nil where there is none.
func (t *telemetry) metrics(log *slog.Logger) http.Handler {
	if t.reader == nil {
		return nil
	}
	return &scrape{reader: t.reader, log: log}
}

// close sends what is left to send, until ctx ends at most. What a collector did not
// take is not the server's failure.
func (t *telemetry) close(ctx context.Context, log *slog.Logger) {
	var errs [2]error
	var both sync.WaitGroup // at once: one that hangs must not take the other's time
	if t.spans != nil {
		both.Go(func() { errs[0] = t.spans.Shutdown(ctx) })
	}
	if t.meters != nil {
		both.Go(func() { errs[1] = t.meters.Shutdown(ctx) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		log.Warn("the last of telemetry was not sent", "err", err)
	}
}
