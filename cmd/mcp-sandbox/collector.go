package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// collector sends one kind of telemetry by OTLP over HTTP. Where it is not taken, it
// is given up, and the log says so once. Who calls it is the SDK's own goroutine: no
// call of code waits for a collector.
type collector struct {
	destination
	client *http.Client
	log    *slog.Logger

	mu   sync.Mutex
	down bool // the log has said so
}

func newCollector(s destination, log *slog.Logger) *collector {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	return &collector{
		destination: s, log: log,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // headers hold secrets
		},
	}
}

// send sends a body, again where that may help, until its time or ctx ends.
func (c *collector) send(ctx context.Context, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var err error
	for pause := time.Second; ; pause *= 2 {
		var again time.Duration
		if again, err = c.post(ctx, body); err == nil || again < 0 {
			break
		}
		wait := time.NewTimer(max(pause, again))
		select {
		case <-wait.C:
			continue
		case <-ctx.Done():
			wait.Stop()
		}
		break
	}
	c.report(err)
}

// post tries once. again is how long to wait before the next attempt at least; below
// 0 there is no use in one.
func (c *collector) post(ctx context.Context, body []byte) (again time.Duration, err error) {
	header := c.header.Clone()
	header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body) // into memory
		_ = z.Close()
		body = b.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = header
	res, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	switch res.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		again = time.Duration(min(max(seconds, 0), 60)) * time.Second
	default:
		again = -1
	}
	return again, fmt.Errorf("the collector answered %s", res.Status)
}

// report logs what changed.
func (c *collector) report(err error) {
	c.mu.Lock()
	was := c.down
	c.down = err != nil
	c.mu.Unlock()
	switch {
	case err != nil && !was:
		c.log.Warn("telemetry is not taken: it is given up until it is", "what", c.what, "err", err)
	case err == nil && was:
		c.log.Info("telemetry is taken again", "what", c.what)
	}
}

// spans sends spans.
type spans struct{ *collector }

var _ sdktrace.SpanExporter = (*spans)(nil)

func (s *spans) ExportSpans(ctx context.Context, all []sdktrace.ReadOnlySpan) error {
	s.send(ctx, encodeSpans(all))
	return nil // the log has heard of it
}

func (s *spans) Shutdown(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// figures sends metrics, each time the sum since the start: what is lost once is in the next.
type figures struct{ *collector }

var _ sdkmetric.Exporter = (*figures)(nil)

func (f *figures) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (f *figures) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (f *figures) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	f.send(ctx, encodeMetrics(all))
	return nil
}

func (f *figures) ForceFlush(context.Context) error { return nil }

func (f *figures) Shutdown(context.Context) error {
	f.client.CloseIdleConnections()
	return nil
}
