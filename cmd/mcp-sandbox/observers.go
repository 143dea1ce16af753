package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
)

// observers are all that hear of calls: the audit log, and telemetry.
type observers struct {
	telemetry *telemetry
	audit     *auditLog // nil = none
	flush     time.Duration
	log       *slog.Logger
}

// How long the last lines and figures may take to be written and sent, once the
// sessions are closed: a client over stdio sends SIGKILL two seconds after SIGTERM.
const (
	flushTime    = 500 * time.Millisecond
	webFlushTime = 3 * time.Second
)

// observe opens what the flags and the environment ask for. Whoever has it closes it.
func (f serveFlags) observe(ctx context.Context, log *slog.Logger) (*observers, error) {
	o := &observers{flush: flushTime, log: log}
	if f.overHTTP() {
		o.flush = webFlushTime
	}
	var err error
	if o.audit, err = f.observeFlags.open(log); err != nil {
		return nil, err
	}
	if o.telemetry, err = newTelemetry(ctx, f.overHTTP(), os.Getenv, log); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// join has the tools tell of each call.
func (o *observers) join(cfg *tools.Config, sessions *sandbox.Sessions) error {
	instruments, err := o.telemetry.instruments(sessions.Stats)
	if err != nil {
		return err
	}
	cfg.Instruments = instruments
	if o.audit != nil {
		cfg.Record = o.audit.record
	}
	return nil
}

// metrics is a route of HTTP; nil where there is none.
func (o *observers) metrics() http.Handler { return o.telemetry.metrics(o.log) }

// close writes and sends what is left.
func (o *observers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), o.flush)
	defer cancel()
	if o.audit != nil {
		if err := o.audit.close(ctx); err != nil {
			o.log.Error("ended in disorder", "err", err)
		}
	}
	if o.telemetry != nil {
		o.telemetry.close(ctx, o.log)
	}
}
