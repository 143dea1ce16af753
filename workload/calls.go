package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The calls of the API that are used here, one function each.

const (
	readAttempts = 4 // of a call that only reads
	pageSize     = 100
	maxPages     = 100
	logPageSize  = 1000
	maxLogPages  = 10
	maxLogPage   = 32 << 20 // bytes
	maxLog       = 32 << 20 // bytes of text on all pages, of which code may write as much as it likes
)

func workloadPath(id string, more string) string {
	return "workloads/" + url.PathEscape(id) + "/" + more
}

// record reads a workload, once: those who wait for it ask again anyway.
func (c *client) record(ctx context.Context, id string) (record, error) {
	var r workloadRecord
	err := c.do(ctx, call{method: http.MethodGet, path: workloadPath(id, ""), out: &r})
	return r.record, err
}

// statusDetails reads what the platform saw of a workload's replicas; nil = it
// has not looked yet. protonID may be "": then it is asked for.
func (c *client) statusDetails(ctx context.Context, id, protonID string) (*snapshot, error) {
	if protonID == "" {
		var err error
		if protonID, err = c.proton(ctx, id); err != nil || protonID == "" {
			return nil, err
		}
	}
	var w *wireSnapshot
	err := c.do(ctx, call{method: http.MethodGet, path: workloadPath(id, "protons/"+url.PathEscape(protonID)+"/statusDetails"), out: &w, attempts: 2})
	if err != nil || w == nil {
		return nil, err
	}
	return w.snapshot(), nil
}

// proton is the deployment of a workload that counts: the active, else the newest.
func (c *client) proton(ctx context.Context, id string) (string, error) {
	var l listing
	if err := c.do(ctx, call{method: http.MethodGet, path: workloadPath(id, "protons"), out: &l, attempts: 2}); err != nil {
		return "", err
	}
	var best record
	for _, p := range l.records {
		if p.Role == "active" {
			return p.ID, nil
		}
		if best.ID == "" || p.CreatedAt.After(best.CreatedAt) {
			best = p
		}
	}
	return best.ID, nil
}

// logs reads all rows that there are, newest first, without those that the
// growing of the log shows twice. cut says that there are more than are read.
func (c *client) logs(ctx context.Context, id string) (rows []row, cut bool, err error) {
	seen := map[string]bool{}
	offset, size := 0, 0
	for page := range maxLogPages {
		var p logPage
		query := url.Values{"limit": {strconv.Itoa(logPageSize)}, "offset": {strconv.Itoa(offset)}}
		if err := c.do(ctx, call{method: http.MethodGet, path: "otel/workload/" + url.PathEscape(id) + "/logs/", query: query, out: &p, max: maxLogPage}); err != nil {
			return rows, true, err
		}
		for _, r := range p.rows {
			if page == 0 || !seen[r.key()] {
				rows = append(rows, r)
				size += len(r.Message) + len(r.Stacktrace)
			}
		}
		for _, r := range p.rows { // after: rows that are alike on one page are real
			seen[r.key()] = true
		}
		if err := c.checkNext("logs", p.next); err != nil {
			return rows, true, err
		}
		offset += p.count
		if p.count == 0 || p.next == "" && p.count < logPageSize { // some installs tell of no next page
			return rows, false, nil
		}
		if size > maxLog {
			break
		}
	}
	return rows, true, nil
}

// checkNext refuses an address of the next page that lies elsewhere. It is never
// asked: the offset says the same.
func (c *client) checkNext(what, next string) error {
	if next == "" {
		return nil
	}
	u, err := c.base.Parse(next)
	if err != nil || !sameOrigin(u, c.base) {
		return &APIError{Op: "GET " + what, Code: "origin", Detail: "the next page lies at another origin, where the token does not go"}
	}
	return nil
}

// list reads all workloads or artifacts that a query finds.
func (c *client) list(ctx context.Context, collection string, query url.Values) ([]record, error) {
	var all []record
	seen := map[string]bool{}
	offset := 0
	for range maxPages {
		q := url.Values{"limit": {strconv.Itoa(pageSize)}, "offset": {strconv.Itoa(offset)}}
		for name, values := range query {
			q[name] = values
		}
		var l listing
		if err := c.do(ctx, call{method: http.MethodGet, path: collection + "/", query: q, out: &l, attempts: readAttempts}); err != nil {
			return all, err
		}
		for _, r := range l.records {
			if r.ID != "" && !seen[r.ID] {
				seen[r.ID] = true
				all = append(all, r)
			}
		}
		if err := c.checkNext(collection, l.next); err != nil {
			return all, err
		}
		offset += l.count
		if l.count == 0 || l.next == "" && l.count < pageSize {
			return all, nil
		}
	}
	return all, nil
}

// listing is a page of records.
type listing struct {
	records []record
	count   int // of what was on the page, readable or not
	next    string
}

func (l *listing) UnmarshalJSON(b []byte) error {
	var fields struct {
		Data loose[[]loose[record]]
		Next loose[string]
	}
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	if !fields.Data.ok {
		return errors.New("data is no list")
	}
	*l = listing{records: list(fields.Data), count: len(fields.Data.v), next: fields.Next.v}
	return nil
}

// named finds the workloads of exactly this name.
func (c *client) named(ctx context.Context, collection, name string) ([]record, error) {
	found, err := c.list(ctx, collection, url.Values{"search": {name}})
	var exact []record
	for _, r := range found {
		if r.Name == name {
			exact = append(exact, r)
		}
	}
	return exact, err
}

// account is whose the token is, and what they may.
type account struct {
	UID          string
	MaxWorkloads int // at once; 0 = no limit
}

func (c *client) account(ctx context.Context) (account, error) {
	var a struct {
		UID    loose[string]
		Limits loose[struct{ MaxConcurrentWorkloads loose[int] }]
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "account/info/", out: &a, attempts: readAttempts})
	return account{a.UID.v, max(0, a.Limits.v.MaxConcurrentWorkloads.v)}, err
}

// errUnknownEntitlement is the answer to a name that the platform does not
// know, which says nothing of what the account may.
var errUnknownEntitlement = errors.New("the platform does not know this entitlement")

// entitled asks whether the account has an entitlement.
func (c *client) entitled(ctx context.Context, name string) (bool, error) {
	type flag struct {
		Name string `json:"name"`
	}
	in := struct {
		Entitlements []flag `json:"entitlements"`
	}{[]flag{{name}}}
	var out struct {
		Entitlements loose[[]loose[struct {
			Name  loose[string]
			Value loose[bool]
		}]]
	}
	err := c.do(ctx, call{method: http.MethodPost, path: "entitlements/evaluate/", in: in, out: &out, attempts: readAttempts})
	if statusOf(err) == http.StatusUnprocessableEntity {
		return false, fmt.Errorf("%w: %s: %w", errUnknownEntitlement, name, err)
	}
	for _, e := range list(out.Entitlements) {
		if e.Name.v == name {
			return e.Value.v, err
		}
	}
	if err == nil {
		err = fmt.Errorf("the answer on entitlement %s does not name it", name)
	}
	return false, err
}

// remove deletes a workload and then its artifact, until ctx ends. Either id may
// be "". What is gone already is as good as removed.
func (c *client) remove(ctx context.Context, id, artifactID string) error {
	if id != "" {
		if err := c.delete(ctx, workloadPath(id, "")); err != nil {
			return err // the artifact could not be deleted before it
		}
	}
	if artifactID == "" {
		return nil
	}
	return c.delete(ctx, "artifacts/"+url.PathEscape(artifactID)+"/")
}

// delete asks until it is done: a conflict means that the platform is not done
// with it yet.
func (c *client) delete(ctx context.Context, path string) error {
	for attempt := 0; ; attempt++ {
		err := c.do(ctx, call{method: http.MethodDelete, path: path})
		status := statusOf(err)
		if err == nil || status == http.StatusNotFound || status == http.StatusGone {
			return nil
		}
		if !retryable(err) && status != http.StatusConflict {
			return err
		}
		if c.clock.sleep(ctx, backoff(attempt, err)+50*time.Millisecond) != nil {
			return err
		}
	}
}
