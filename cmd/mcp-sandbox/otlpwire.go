package main

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// OTLP's messages (opentelemetry-proto 1.11) as protobuf writes them, as far as our
// instruments fill them. The official encoder registers all of protobuf and gRPC when
// the program starts, 2 ms and 11 MB, and this binary starts itself again for each wall.

// wire is one message. What is written is not read again; the tests let the official
// decoder read it.
type wire []byte

// The wire types of protobuf.
const (
	varintType = 0
	fixed64    = 1
	bytesType  = 2
	fixed32    = 5
)

func (w *wire) tag(field, kind int) { *w = binary.AppendUvarint(*w, uint64(field<<3|kind)) }

func (w *wire) varint(field int, v uint64) {
	w.tag(field, varintType)
	*w = binary.AppendUvarint(*w, v)
}

func (w *wire) fixed64(field int, v uint64) {
	w.tag(field, fixed64)
	*w = binary.LittleEndian.AppendUint64(*w, v)
}

func (w *wire) double(field int, v float64) { w.fixed64(field, math.Float64bits(v)) }

func (w *wire) time(field int, t time.Time) {
	if !t.IsZero() {
		w.fixed64(field, uint64(t.UnixNano()))
	}
}

func (w *wire) bytes(field int, b []byte) {
	w.tag(field, bytesType)
	*w = binary.AppendUvarint(*w, uint64(len(b)))
	*w = append(*w, b...)
}

// text writes a string, which must be UTF-8: else the whole message would be refused.
func (w *wire) text(field int, s string) {
	if s != "" {
		w.bytes(field, []byte(strings.ToValidUTF8(s, "\uFFFD")))
	}
}

func (w *wire) message(field int, fill func(*wire)) {
	var inner wire
	fill(&inner)
	w.bytes(field, inner)
}

// packed writes 64-bit numbers as one field.
func (w *wire) packed(field int, n int, at func(int) uint64) {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, at(i))
	}
	w.bytes(field, b)
}

func (w *wire) attributes(field int, all []attribute.KeyValue) {
	for _, kv := range all {
		w.message(field, func(w *wire) {
			w.text(1, string(kv.Key))
			w.message(2, func(w *wire) { w.value(kv.Value) })
		})
	}
}

func (w *wire) value(v attribute.Value) {
	switch v.Type() {
	case attribute.BOOL:
		n := uint64(0)
		if v.AsBool() {
			n = 1
		}
		w.varint(2, n)
	case attribute.INT64:
		w.varint(3, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		w.double(4, v.AsFloat64())
	default:
		w.bytes(1, []byte(strings.ToValidUTF8(v.String(), "\uFFFD")))
	}
}

func (w *wire) resource(field int, r *resource.Resource) {
	w.message(field, func(w *wire) { w.attributes(1, r.Attributes()) })
}

func (w *wire) scope(field int, s instrumentation.Scope) {
	w.message(field, func(w *wire) {
		w.text(1, s.Name)
		w.text(2, s.Version)
	})
}

// encodeSpans makes an ExportTraceServiceRequest of spans of one provider.
func encodeSpans(all []sdktrace.ReadOnlySpan) []byte {
	var w wire
	if len(all) == 0 {
		return w
	}
	w.message(1, func(w *wire) {
		w.resource(1, all[0].Resource())
		w.message(2, func(w *wire) {
			w.scope(1, all[0].InstrumentationScope())
			for _, s := range all {
				w.message(2, func(w *wire) { w.span(s) })
			}
		})
	})
	return w
}

func (w *wire) span(s sdktrace.ReadOnlySpan) {
	own := s.SpanContext()
	traceID, spanID := own.TraceID(), own.SpanID()
	w.bytes(1, traceID[:])
	w.bytes(2, spanID[:])
	w.text(3, own.TraceState().String())
	flags := uint32(own.TraceFlags()) | 1<<8 // whether the parent is remote is known
	if parent := s.Parent(); parent.SpanID().IsValid() {
		id := parent.SpanID()
		w.bytes(4, id[:])
		if parent.IsRemote() {
			flags |= 1 << 9
		}
	}
	w.text(5, s.Name())
	w.varint(6, kindOf(s.SpanKind()))
	w.time(7, s.StartTime())
	w.time(8, s.EndTime())
	w.attributes(9, s.Attributes())
	w.message(15, func(w *wire) {
		w.text(2, s.Status().Description)
		switch s.Status().Code {
		case codes.Ok:
			w.varint(3, 1)
		case codes.Error:
			w.varint(3, 2)
		}
	})
	w.tag(16, fixed32)
	*w = binary.LittleEndian.AppendUint32(*w, flags)
}

func kindOf(k trace.SpanKind) uint64 {
	if k == trace.SpanKindServer {
		return 2
	}
	return 1 // internal: there are no others of ours
}

// encodeMetrics makes an ExportMetricsServiceRequest.
func encodeMetrics(all *metricdata.ResourceMetrics) []byte {
	var w wire
	w.message(1, func(w *wire) {
		w.resource(1, all.Resource)
		for _, s := range all.ScopeMetrics {
			w.message(2, func(w *wire) {
				w.scope(1, s.Scope)
				for _, m := range s.Metrics {
					w.message(2, func(w *wire) { w.metric(m) })
				}
			})
		}
	})
	return w
}

const cumulative = 2 // AGGREGATION_TEMPORALITY_CUMULATIVE

func (w *wire) metric(m metricdata.Metrics) {
	w.text(1, m.Name)
	w.text(2, m.Description)
	w.text(3, m.Unit)
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		w.message(5, func(w *wire) { w.points(data.DataPoints) })
	case metricdata.Sum[int64]:
		w.message(7, func(w *wire) {
			w.points(data.DataPoints)
			w.varint(2, cumulative)
			if data.IsMonotonic {
				w.varint(3, 1)
			}
		})
	case metricdata.Histogram[float64]:
		w.message(9, func(w *wire) {
			for _, p := range data.DataPoints {
				w.message(1, func(w *wire) { w.histogram(p) })
			}
			w.varint(2, cumulative)
		})
	}
}

func (w *wire) points(all []metricdata.DataPoint[int64]) {
	for _, p := range all {
		w.message(1, func(w *wire) {
			w.time(2, p.StartTime)
			w.time(3, p.Time)
			w.fixed64(6, uint64(p.Value))
			w.attributes(7, p.Attributes.ToSlice())
		})
	}
}

func (w *wire) histogram(p metricdata.HistogramDataPoint[float64]) {
	w.time(2, p.StartTime)
	w.time(3, p.Time)
	w.fixed64(4, p.Count)
	w.double(5, p.Sum)
	w.packed(6, len(p.BucketCounts), func(i int) uint64 { return p.BucketCounts[i] })
	w.packed(7, len(p.Bounds), func(i int) uint64 { return math.Float64bits(p.Bounds[i]) })
	w.attributes(9, p.Attributes.ToSlice())
	for field, extreme := range map[int]metricdata.Extrema[float64]{11: p.Min, 12: p.Max} {
		if v, ok := extreme.Value(); ok {
			w.double(field, v)
		}
	}
}
