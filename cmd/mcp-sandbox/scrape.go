package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// scrape is /metrics: all figures, in the text format of Prometheus, 0.0.4. The
// official exporter brings in protobuf, whose initialisation would be part of every
// session's start: this binary starts itself again for each wall.
type scrape struct {
	reader *sdkmetric.ManualReader
	log    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (s *scrape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(r.Context(), &all); err != nil {
		s.log.Error("the figures can't be read", "err", err)
		refuse(w, http.StatusInternalServerError, "the figures can't be read: the server's log has the cause")
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(exposition(all))
}

// exposition writes figures down.
func exposition(all metricdata.ResourceMetrics) []byte {
	var b bytes.Buffer
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			expose(&b, m)
		}
	}
	return b.Bytes()
}

func expose(b *bytes.Buffer, m metricdata.Metrics) {
	name := strings.ReplaceAll(m.Name, ".", "_") // the names of ours have nothing else to replace, and their units in them
	head := func(kind string) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(m.Description), name, kind)
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind := "gauge"
		if data.IsMonotonic {
			kind = "counter"
		}
		head(kind)
		exposePoints(b, name, data.DataPoints)
	case metricdata.Gauge[int64]:
		head("gauge")
		exposePoints(b, name, data.DataPoints)
	case metricdata.Histogram[float64]:
		head("histogram")
		for _, p := range data.DataPoints {
			exposeHistogram(b, name, p)
		}
	}
}

func exposePoints(b *bytes.Buffer, name string, points []metricdata.DataPoint[int64]) {
	for _, p := range points {
		fmt.Fprintf(b, "%s%s %d\n", name, labels(p.Attributes, ""), p.Value)
	}
}

func exposeHistogram(b *bytes.Buffer, name string, p metricdata.HistogramDataPoint[float64]) {
	var sum uint64
	for i, n := range p.BucketCounts {
		sum += n
		bound := "+Inf"
		if i < len(p.Bounds) {
			bound = strconv.FormatFloat(p.Bounds[i], 'g', -1, 64)
		}
		fmt.Fprintf(b, "%s_bucket%s %d\n", name, labels(p.Attributes, bound), sum)
	}
	of := labels(p.Attributes, "")
	fmt.Fprintf(b, "%s_sum%s %s\n%s_count%s %d\n", name, of, strconv.FormatFloat(p.Sum, 'g', -1, 64), name, of, p.Count)
}

// labels are attributes as a series has them; le is a bucket's bound, "" for none.
func labels(set attribute.Set, le string) string {
	var all []string
	add := func(name, value string) {
		value = strings.ToValidUTF8(value, "\uFFFD")
		all = append(all, name+`="`+strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value)+`"`)
	}
	for _, kv := range set.ToSlice() {
		add(strings.ReplaceAll(string(kv.Key), ".", "_"), kv.Value.String())
	}
	if le != "" {
		add("le", le)
	}
	if all == nil {
		return ""
	}
	return "{" + strings.Join(all, ",") + "}"
}
