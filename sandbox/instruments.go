package sandbox

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Instruments measure calls, by OpenTelemetry, for every backend alike. They are
// safe for concurrent use; nil measures nothing.
//
// No attribute of a metric grows with the clients: principals and sessions are
// named in spans alone.
type Instruments struct {
	tracer     trace.Tracer
	executions metric.Int64Counter
	failures   metric.Int64Counter
	duration   metric.Float64Histogram
	produced   metric.Int64Counter
	kept       metric.Int64Counter
}

// durations are the bounds of the histogram, in seconds: from a warm call to the
// longest that may be asked for.
var durations = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// NewInstruments makes them by meter and tracer. stats is asked at each reading.
func NewInstruments(meter metric.Meter, tracer trace.Tracer, stats func() Stats) (*Instruments, error) {
	var errs [6]error
	i := &Instruments{tracer: tracer}
	i.executions, errs[0] = meter.Int64Counter("sandbox.execution_total",
		metric.WithDescription("Calls of code and commands that have ended. Faults of the caller's own count as success of the service; the status tells them apart."))
	i.failures, errs[1] = meter.Int64Counter("sandbox.execution_failure_total",
		metric.WithDescription("Calls that ended at a limit, in a crash, or without a sandbox."))
	i.duration, errs[2] = meter.Float64Histogram("sandbox.execution_duration_seconds", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(durations...),
		metric.WithDescription("From the call's coming to its result: waiting for a turn and starting an interpreter are part of it."))
	i.produced, errs[3] = meter.Int64Counter("sandbox.output_produced_bytes_total", metric.WithUnit("By"),
		metric.WithDescription("What code and commands have written to standard output and error."))
	i.kept, errs[4] = meter.Int64Counter("sandbox.output_kept_bytes_total", metric.WithUnit("By"),
		metric.WithDescription("The part of it that is in results."))
	errs[5] = observe(meter, stats)
	return i, errors.Join(errs[:]...)
}

// observe registers what is read and not counted.
func observe(meter metric.Meter, stats func() Stats) error {
	var errs []error
	gauge := func(name, what string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	counter := func(name, what string) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	sessions := gauge("sandbox.sessions", "Open sessions: awake ones, which may have processes, and hibernated ones.")
	running := gauge("sandbox.calls_running", "Calls that have a place.")
	waiting := gauge("sandbox.calls_waiting", "Calls that wait for a place.")
	hibernations := counter("sandbox.hibernation_total", "Sessions that were saved to disk, their processes ended.")
	made := counter("sandbox.checkpoint_made_total", "Copies of interpreters that were parked.")
	taken := counter("sandbox.checkpoint_taken_total", "Copies that have taken over from an interpreter that ended.")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	awake := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "awake")))
	hibernated := metric.WithAttributeSet(attribute.NewSet(attribute.String("state", "hibernated")))
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := stats()
		o.ObserveInt64(sessions, int64(s.Awake), awake)
		o.ObserveInt64(sessions, int64(s.Hibernated), hibernated)
		o.ObserveInt64(running, int64(s.Running))
		o.ObserveInt64(waiting, int64(s.Waiting))
		o.ObserveInt64(hibernations, s.Hibernations)
		o.ObserveInt64(made, s.Made)
		o.ObserveInt64(taken, s.Taken)
		return nil
	}, sessions, running, waiting, hibernations, made, taken)
	return err
}

// Execution is one call that is being measured. nil measures nothing.
type Execution struct {
	of   *Instruments
	ctx  context.Context // of the span, so that a reading can name it
	span trace.Span
	tool string
	from time.Time
}

// Begin measures a call of tool from now on. The span belongs to the trace that
// caller names in the words of W3C (traceparent, tracestate), or else to ctx's; what
// is malformed is ignored. End must be called.
func (i *Instruments) Begin(ctx context.Context, tool string, caller map[string]string) (context.Context, *Execution) {
	if i == nil {
		return ctx, nil
	}
	if len(caller) > 0 {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(caller))
	}
	ctx, span := i.tracer.Start(ctx, "sandbox.execute", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("tool", tool)))
	return ctx, &Execution{of: i, ctx: ctx, span: span, tool: tool, from: time.Now()}
}

// End tells how the call went, whose it was, and in which session.
func (e *Execution) End(principal, session string, res Result) {
	if e == nil {
		return
	}
	outcome, reason := outcomeOf(res.Status)
	about := []attribute.KeyValue{
		attribute.String("tool", e.tool), attribute.String("backend", res.Backend),
		attribute.String("outcome", outcome), attribute.String("status", string(res.Status)),
	}
	labels := metric.WithAttributeSet(attribute.NewSet(about...)) // a copy
	e.of.executions.Add(e.ctx, 1, labels)
	e.of.duration.Record(e.ctx, time.Since(e.from).Seconds(), labels)
	if reason != "" {
		e.of.failures.Add(e.ctx, 1, metric.WithAttributes(
			attribute.String("tool", e.tool), attribute.String("backend", res.Backend), attribute.String("reason", reason)))
	}
	e.countOutput("stdout", res.Truncated.Stdout)
	e.countOutput("stderr", res.Truncated.Stderr)
	if e.span.IsRecording() {
		e.span.SetAttributes(append(about,
			attribute.String("principal", principal), attribute.String("session", session),
			attribute.Int("exit_code", res.ExitCode), attribute.String("state", string(res.State)),
			attribute.Float64("ran_s", res.Duration.Seconds()), attribute.Float64("provisioning_s", res.Provisioning.Seconds()),
		)...)
		if reason != "" {
			e.span.SetStatus(codes.Error, reason)
		}
	}
	e.span.End()
}

func (e *Execution) countOutput(stream string, n Count) {
	if n.Produced == 0 {
		return
	}
	of := metric.WithAttributes(attribute.String("stream", stream))
	e.of.produced.Add(e.ctx, n.Produced, of)
	e.of.kept.Add(e.ctx, n.Kept, of)
}

// outcomeOf is the published taxonomy: what is the caller's own doing is the service's success.
func outcomeOf(s Status) (outcome, reason string) {
	switch s {
	case StatusTimeout, StatusOOM, StatusInfra, StatusCrash:
		return "failure", string(s)
	}
	return "success", ""
}
