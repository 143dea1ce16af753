package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
)

// observeFlags say what is put down of each call.
type observeFlags struct {
	AuditLog     string `name:"audit-log" placeholder:"FILE" type:"path" help:"File that gets a line of JSON for each call: who ran what, and how it ended. Neither inputs nor output."`
	AuditMaxSize size   `name:"audit-max-size" default:"100MiB" help:"At this size the audit log is renamed to FILE.1, FILE.2, … (${default})."`
	AuditKeep    int    `name:"audit-keep" default:"9" help:"How many of these are kept (${default})."`
}

const leastAudit = 64 << 10 // bytes: several of the longest lines

func (f observeFlags) check(shown []string) error {
	var errs []error
	if f.AuditMaxSize < leastAudit {
		errs = append(errs, errors.New("--audit-max-size must be 64KiB at least"))
	}
	if f.AuditKeep < 0 {
		errs = append(errs, errors.New("--audit-keep must not be below 0"))
	}
	if f.AuditLog != "" {
		errs = append(errs, f.checkPlace(shown))
	}
	return errors.Join(errs...)
}

// checkPlace refuses a log that the code inside could read, or forge.
func (f observeFlags) checkPlace(shown []string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(f.AuditLog))
	if err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	for _, place := range shown {
		real, err := filepath.EvalSymlinks(place)
		if err != nil {
			continue // the flag that names it says so
		}
		if rel, err := filepath.Rel(real, filepath.Join(dir, filepath.Base(f.AuditLog))); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return fmt.Errorf("--audit-log: %s lies in %s, which the code is shown", f.AuditLog, place)
		}
	}
	return nil
}

// open begins the audit log; nil if there is to be none.
func (f observeFlags) open(log *slog.Logger) (*auditLog, error) {
	if f.AuditLog == "" {
		return nil, nil
	}
	file, err := openRotated(f.AuditLog, int64(f.AuditMaxSize), f.AuditKeep)
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	return newAuditLog(file, log), nil
}
