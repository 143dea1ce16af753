package workloadtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// logsMax is the most rows of a page.
const logsMax = 1000

// logQuery is what is asked of the logs.
type logQuery struct {
	url.Values
	limit, offset int
	level         int
	from, until   time.Time
}

// severity is the order of levels; a query's is the least one.
var severity = map[string]int{"debug": 0, "info": 1, "warn": 2, "warning": 2, "error": 3, "critical": 4}

func (e *Emulator) parseLogQuery(c call) (logQuery, *answer) {
	q := logQuery{Values: c.URL.Query(), limit: e.cfg.Logs.Limit}
	refuse := func(status int, format string, args ...any) (logQuery, *answer) {
		a := detail(status, fmt.Sprintf(format, args...))
		return q, &a
	}
	for name := range q.Values {
		if !slices.Contains([]string{"limit", "offset", "level", "startTime", "endTime", "includes", "excludes", "spanId", "traceId", "searchKeys", "searchValues"}, name) {
			return refuse(http.StatusBadRequest, "Unknown parameter: %s", name)
		}
	}
	var err error
	if s := q.Get("limit"); s != "" {
		if q.limit, err = strconv.Atoi(s); err != nil || q.limit < 1 || q.limit > logsMax {
			return refuse(http.StatusUnprocessableEntity, "limit must be an integer from 1 to %d", logsMax)
		}
	}
	if s := q.Get("offset"); s != "" {
		if q.offset, err = strconv.Atoi(s); err != nil || q.offset < 0 {
			return refuse(http.StatusUnprocessableEntity, "offset must be an integer from 0")
		}
	}
	if s := q.Get("level"); s != "" {
		var ok bool
		if q.level, ok = severity[strings.ToLower(s)]; !ok {
			return refuse(http.StatusUnprocessableEntity, "level is not one of debug, info, warn, warning, error, critical")
		}
	}
	for name, to := range map[string]*time.Time{"startTime": &q.from, "endTime": &q.until} {
		if s := q.Get(name); s != "" {
			if *to, err = time.Parse(time.RFC3339Nano, s); err != nil {
				return refuse(http.StatusUnprocessableEntity, "%s must be a time by RFC 3339", name)
			}
		}
	}
	if len(q.Values["searchKeys"]) != len(q.Values["searchValues"]) {
		return refuse(http.StatusUnprocessableEntity, "searchKeys and searchValues must be parallel")
	}
	return q, nil
}

func (q logQuery) wants(r row) bool {
	has := func(part string) bool { return strings.Contains(r.message, part) }
	return severity[strings.ToLower(r.level)] >= q.level &&
		(q.from.IsZero() || !r.at.Before(q.from)) && (q.until.IsZero() || !r.at.After(q.until)) &&
		!slices.ContainsFunc(q.Values["excludes"], has) &&
		!slices.ContainsFunc(q.Values["includes"], func(part string) bool { return !has(part) }) &&
		!q.Has("spanId") && !q.Has("traceId") // no row has any
}

// withLogs finds a workload whose logs are there: they outlive it.
func (e *Emulator) withLogs(c call) *workload {
	if w, _ := e.findHeld(c); w != nil {
		return w
	}
	for _, w := range e.deleted {
		if w.id == c.PathValue("id") && w.user == c.user {
			return w
		}
	}
	return nil
}

func (e *Emulator) readLogs(c call) answer {
	q, bad := e.parseLogQuery(c)
	if bad != nil {
		return *bad
	}
	e.mu.Lock()
	w := e.withLogs(c)
	var rows []row
	if w != nil {
		rows = e.visible(w, q)
	}
	e.mu.Unlock()
	if w == nil {
		return detail(http.StatusNotFound, "Workload not found")
	}
	return e.logPage(c, q, rows)
}

// visible are the rows that can be read by now, in the order in which they are given.
func (e *Emulator) visible(w *workload, q logQuery) []row {
	logs, moment := e.cfg.Logs, time.Now()
	var rows []row
	for _, r := range w.rows {
		if logs.Never || r.visible.After(moment) || !q.wants(r) {
			continue
		}
		rows = append(rows, r)
		if logs.Duplicate {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	if !logs.OldestFirst {
		slices.Reverse(rows)
	}
	return rows
}

func (e *Emulator) logPage(c call, q logQuery, rows []row) answer {
	logs := e.cfg.Logs
	from := min(q.offset, len(rows))
	to := min(from+q.limit, len(rows))
	data := []any{}
	for _, r := range rows[from:to] {
		record := object{"timestamp": rowStamp(r.at), "level": r.level, "message": r.message, "spanId": nil, "traceId": nil}
		if r.trace != "" {
			record["stacktrace"] = r.trace
		}
		data = append(data, record)
	}
	var next *string
	if to < len(rows) || logs.EmptyPage && (to > from || q.offset > 0) {
		values := c.URL.Query()
		values.Set("limit", strconv.Itoa(q.limit))
		values.Set("offset", strconv.Itoa(max(to-logs.Overlap, from+1, q.offset)))
		if logs.EmptyPage && to == len(rows) {
			values.Set("offset", strconv.Itoa(q.offset+q.limit))
		}
		base := logs.NextBase
		if base == "" {
			base = c.base()
		}
		s := base + c.URL.Path + "?" + values.Encode()
		next = &s
	}
	return answer{status: http.StatusOK, body: object{"count": len(data), "next": next, "previous": nil, "data": data}}
}

func (e *Emulator) deleteLogs(c call) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.withLogs(c)
	if w == nil {
		return detail(http.StatusNotFound, "Workload not found")
	}
	w.rows = nil
	return answer{status: http.StatusNoContent}
}
