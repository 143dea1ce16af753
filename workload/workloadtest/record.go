package workloadtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// record is WorkloadFormatted. The mutex is held.
func (e *Emulator) record(c call, w *workload) object {
	owner := object{"id": userID(w.user), "email": "user@example.com", "fullName": "A User"}
	r := object{
		"id": w.id, "name": w.name, "description": w.description, "importance": w.importance,
		"status": w.status, "type": w.artifact.kind, "endpoint": e.endpoint(c, w),
		"artifactId": w.artifact.id, "artifact": w.artifact.brief(), "protonId": w.proton,
		"createdAt": stamp(w.created), "updatedAt": stamp(w.updated),
		"runtime": w.runtime, "replacement": nil, "requestStats": nil, "lastResponse": nil,
		"creator": owner, "owners": []object{owner}, "permissions": []string{"CAN_VIEW", "CAN_UPDATE", "CAN_DELETE"}, "tags": []object{},
		"statusDetails": nil, "exitCode": nil,
	}
	if e.cfg.Cluster.WorkloadID {
		r["workloadId"] = w.id
	}
	if last := w.pod.last; e.cfg.Cluster.LegacyExitCode && last != nil {
		r["exitCode"] = last.code
	}
	if e.cfg.Cluster.LogTail && w.status != submitted && w.status != provisioning {
		r["statusDetails"] = object{"logTail": w.tail(30), "conditions": []object{}}
	}
	return r
}

// endpoint is where the caller finds the workload's container.
func (e *Emulator) endpoint(c call, w *workload) string {
	base := e.cfg.Cluster.EndpointBase
	if base == "" {
		base = c.base()
	}
	return base + prefix + "/endpoints/workloads/" + w.id + "/"
}

// query is that of a list, whose limits have been checked.
type query struct {
	url.Values
	offset, limit int
}

// The most rows of a page, and those of one whose request names no limit.
const (
	pageMax   = 100
	pageUsual = 10
)

// listQuery reads the query of a list which knows some names besides those of all lists.
func listQuery(c call, names ...string) (query, *answer) {
	q := query{Values: c.URL.Query(), limit: pageUsual}
	refuse := func(name, msg string) (query, *answer) {
		a := invalidIn("query", fault{at: []any{name}, kind: "value_error", msg: msg, input: q.Get(name)})
		return q, &a
	}
	for name := range q.Values {
		if !slices.Contains(append(names, "offset", "limit", "orderBy"), name) {
			return refuse(name, "Extra inputs are not permitted")
		}
	}
	for _, n := range []struct {
		name     string
		to       *int
		min, max int
	}{{"offset", &q.offset, 0, 1 << 30}, {"limit", &q.limit, 1, pageMax}} {
		if !q.Has(n.name) {
			continue
		}
		v, err := strconv.Atoi(q.Get(n.name))
		if err != nil || v < n.min || v > n.max {
			return refuse(n.name, fmt.Sprintf("Input should be an integer from %d to %d", n.min, n.max))
		}
		*n.to = v
	}
	if len(q.Get("search")) > 100 {
		return refuse("search", "String should have at most 100 characters")
	}
	return q, nil
}

// pageOf is one page of a list.
func pageOf[T any](c call, q query, all []T, record func(T) object) answer {
	from := min(q.offset, len(all))
	to := min(from+q.limit, len(all))
	data := []any{}
	for _, one := range all[from:to] {
		data = append(data, record(one))
	}
	var next, previous *string
	at := func(offset int) *string {
		values := c.URL.Query()
		values.Set("offset", strconv.Itoa(offset))
		values.Set("limit", strconv.Itoa(q.limit))
		s := c.base() + c.URL.Path + "?" + values.Encode()
		return &s
	}
	if to < len(all) {
		next = at(to)
	}
	if from > 0 {
		previous = at(max(from-q.limit, 0))
	}
	return answer{status: http.StatusOK, body: envelope(data, len(all), next, previous)}
}
