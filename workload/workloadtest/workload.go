package workloadtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// workload is one of the API's workloads, from its record to its last process. Its
// fields are the emulator's mutex's, but for those that never change.
type workload struct {
	id, proton string // these never change, nor do the next ones
	user       string
	artifact   *artifact
	container  container
	runtime    json.RawMessage
	resources  bool // something says what it needs
	replicas   int
	memory     int64 // bytes that the container is allotted; 0: nothing was said
	created    time.Time

	name, description, importance string
	updated                       time.Time
	status                        string

	cancel  context.CancelFunc // ends the goroutine that is its life
	gone    chan struct{}      // closed when that has ended
	removed bool               // it has no record
	refused int                // DELETEs that were asked to retry

	pod    pod
	rows   []row
	events []object
}

// The states of a workload.
const (
	submitted    = "submitted"
	provisioning = "provisioning"
	launching    = "launching"
	running      = "running"
	stopping     = "stopping"
	stopped      = "stopped"
	errored      = "errored"
)

// admit makes a workload of a request whose shape is right, if the cluster lets it.
func (e *Emulator) admit(c call, req *createRequest) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return detail(http.StatusServiceUnavailable, "The server is going away.")
	}
	a, refused := e.artifactFor(c, req)
	if refused != nil {
		return *refused
	}
	var s spec
	if err := json.Unmarshal(a.spec, &s); err != nil {
		return detail(http.StatusBadRequest, "The artifact's spec is not valid: "+err.Error())
	}
	primary, faults := s.primary()
	if faults = append(faults, req.Runtime.checkNames(s)...); faults != nil {
		return invalid(faults...)
	}
	if refused := e.capacity(c, req); refused != nil {
		return *refused
	}
	if refused := e.cfg.Cluster.policy(primary); refused != nil {
		return *refused
	}
	w := &workload{
		id: newID(), proton: newID(), user: c.user, artifact: a, container: *primary,
		runtime: req.rawRuntime, resources: req.Runtime.resources(), replicas: req.Runtime.replicas(), memory: req.Runtime.memory(primary.Name), created: now(),
		name: req.Name, description: req.Description, importance: cmp.Or(req.Importance, "low"),
	}
	w.updated = w.created
	e.artifacts[a.id] = a
	e.workloads[w.id] = w
	e.created++
	e.begin(w)
	e.cfg.Log.Info("workload created", "id", w.id, "name", w.name)
	return answer{status: http.StatusCreated, body: e.record(c, w)}
}

// artifactFor finds the artifact that a request names, or makes the one that it has.
func (e *Emulator) artifactFor(c call, req *createRequest) (*artifact, *answer) {
	if req.Artifact != nil {
		return &artifact{
			id: newID(), name: req.Artifact.Name, kind: cmp.Or(req.Artifact.Type, "service"), description: req.Artifact.Description,
			user: c.user, spec: req.Artifact.Spec, created: now(),
		}, nil
	}
	refuse := func(text string) (*artifact, *answer) {
		return nil, &answer{status: http.StatusUnprocessableEntity, body: object{
			"detail": []object{{"path": "artifactId", "message": text, "code": "invalid"}},
		}}
	}
	a := e.artifacts[req.ArtifactID]
	switch {
	case a == nil || a.user != c.user:
		return refuse("Artifact not found")
	case a.usedBy > 0:
		return refuse("A draft artifact supports one active workload at a time")
	}
	return a, nil
}

// capacity holds a request to the cluster's caps, and its name to be new.
func (e *Emulator) capacity(c call, req *createRequest) *answer {
	refuse := func(status int, format string, args ...any) *answer {
		a := detail(status, fmt.Sprintf(format, args...))
		return &a
	}
	if limit, n := e.cfg.Cluster.Replicas, req.Runtime.replicas(); limit > 0 && n > limit {
		return refuse(http.StatusForbidden, "Requested replicas (%d) exceeds the maximum allowed (%d).", n, limit)
	}
	active := 0
	for _, w := range e.workloads {
		if w.user != c.user {
			continue
		}
		if w.name == req.Name {
			return refuse(http.StatusConflict, "A workload with the name '%s' already exists.", req.Name)
		}
		if w.status != stopped {
			active++
		}
	}
	if limit := e.cfg.Cluster.Limit; limit > 0 && active >= limit {
		return refuse(http.StatusForbidden, "Concurrent workloads (%d) exceeds the maximum allowed (%d).", active+1, limit)
	}
	return nil
}

// begin starts a workload's life. The mutex is held.
func (e *Emulator) begin(w *workload) {
	ctx, cancel := context.WithCancel(e.ctx)
	w.cancel, w.gone, w.status, w.pod = cancel, make(chan struct{}), submitted, pod{}
	w.artifact.usedBy++
	e.live.Go(func() { e.life(ctx, w) })
}

// remove takes a workload's record away and ends it; the logs stay. The mutex is held.
func (e *Emulator) remove(w *workload) {
	if w.removed {
		return
	}
	w.removed = true
	delete(e.workloads, w.id)
	e.deleted = append(e.deleted, w)
	if len(e.deleted) > maxDeleted {
		e.deleted = slices.Delete(e.deleted, 0, maxDeleted/10)
	}
	w.cancel()
	e.cfg.Log.Info("workload deleted", "id", w.id, "name", w.name)
}

// maxDeleted is how many workloads' logs outlive them.
const maxDeleted = 1000

// find is the workload that a request names, or the 404 that says that there is none.
// What it returns is read under the mutex.
func (e *Emulator) find(c call) (*workload, *answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.findHeld(c)
}

func (e *Emulator) findHeld(c call) (*workload, *answer) {
	if w := e.workloads[c.PathValue("id")]; w != nil && w.user == c.user {
		return w, nil
	}
	a := detail(http.StatusNotFound, "Workload not found")
	return nil, &a
}

// with answers with what f makes of the workload that a request names.
func (e *Emulator) with(c call, f func(w *workload) answer) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, missing := e.findHeld(c)
	if missing != nil {
		return *missing
	}
	return f(w)
}

func (e *Emulator) readWorkload(c call) answer {
	return e.with(c, func(w *workload) answer {
		if !e.seenAfter(w, e.cfg.Cluster.RecordLag) {
			return detail(http.StatusNotFound, "Workload not found")
		}
		return answer{status: http.StatusOK, body: e.record(c, w)}
	})
}

// seenAfter reports whether a workload is so old that a part of the platform has heard of it.
func (e *Emulator) seenAfter(w *workload, lag time.Duration) bool {
	return time.Since(w.created) >= e.clock.scale(lag)
}

func (e *Emulator) readSettings(c call) answer {
	return e.with(c, func(w *workload) answer {
		return answer{status: http.StatusOK, body: object{"artifactId": w.artifact.id, "runtime": w.runtime}}
	})
}

func (e *Emulator) patchWorkload(c call) answer {
	var patch struct {
		Name, Description, Importance *string
	}
	d := json.NewDecoder(io.LimitReader(c.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&patch); err != nil {
		return invalid(fault{kind: "extra_forbidden", msg: err.Error()})
	}
	return e.with(c, func(w *workload) answer {
		for _, f := range []struct {
			field *string
			sent  *string
		}{{&w.name, patch.Name}, {&w.description, patch.Description}, {&w.importance, patch.Importance}} {
			if f.sent != nil {
				*f.field = *f.sent
			}
		}
		w.updated = now()
		return answer{status: http.StatusOK, body: e.record(c, w)}
	})
}

func (e *Emulator) deleteWorkload(c call) answer {
	return e.with(c, func(w *workload) answer {
		if w.refused < e.cfg.Cluster.DeleteRetries {
			w.refused++
			return detail(http.StatusBadGateway, "Failed to stop the proton of the workload, please retry")
		}
		e.remove(w)
		return answer{status: http.StatusNoContent}
	})
}

func (e *Emulator) stopWorkload(c call) answer {
	return e.with(c, func(w *workload) answer {
		switch w.status {
		case stopped:
			return operation(http.StatusOK, c, w)
		case stopping:
			return detail(http.StatusConflict, "Workload must finish its current transition first.")
		}
		w.status, w.updated = stopping, now()
		w.cancel()
		return operation(http.StatusAccepted, c, w)
	})
}

func (e *Emulator) startWorkload(c call) answer {
	return e.with(c, func(w *workload) answer {
		switch w.status {
		case running:
			return operation(http.StatusOK, c, w)
		case stopped:
			w.updated = now()
			e.begin(w)
			return operation(http.StatusAccepted, c, w)
		}
		return detail(http.StatusConflict, "Workload must finish its current transition first.")
	})
}

// operation is WorkloadOperationResponse.
func operation(status int, c call, w *workload) answer {
	return answer{status: status, body: object{
		"status": w.status, "workloadId": w.id, "trackVia": c.base() + prefix + "/workloads/" + w.id + "/",
	}}
}

func (e *Emulator) listWorkloads(c call) answer {
	q, bad := listQuery(c, "search", "status", "createdBy", "ids", "artifactId", "artifactStatus", "importance", "repositoryId",
		"tagKeys", "tagValues", "serviceStats", "enclave")
	if bad != nil {
		return *bad
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []*workload
	for _, w := range e.workloads {
		if w.user == c.user && e.seenAfter(w, e.cfg.Cluster.ListLag) && w.matches(q) {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b *workload) int { return newerFirst(a.created, b.created, a.id, b.id) })
	if q.Get("orderBy") == "createdAt" {
		slices.Reverse(found)
	}
	return pageOf(c, q, found, func(w *workload) object { return e.record(c, w) })
}

func (w *workload) matches(q query) bool {
	ids := q.Values["ids"]
	if len(ids) == 1 {
		ids = strings.Split(ids[0], ",")
	}
	return matches(q.Get("search"), w.name, w.description, w.id) &&
		(!q.Has("status") || slices.Contains(q.Values["status"], w.status)) &&
		(!q.Has("ids") || slices.Contains(ids, w.id)) &&
		(!q.Has("artifactId") || q.Get("artifactId") == w.artifact.id) &&
		(!q.Has("artifactStatus") || q.Get("artifactStatus") == "draft") &&
		(!q.Has("importance") || q.Get("importance") == w.importance) &&
		(!q.Has("createdBy") || q.Get("createdBy") == userID(w.user))
}
