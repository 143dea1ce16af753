package workloadtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// artifact is what a workload was made from. It outlives it.
type artifact struct {
	id, name, kind, description string
	user                        string
	spec                        json.RawMessage // as it was sent
	created                     time.Time
	usedBy                      int // protons that are not gone
}

func (a *artifact) record() object {
	return object{
		"id": a.id, "name": a.name, "type": a.kind, "status": "draft", "version": nil, "description": a.description,
		"artifactRepositoryId": nil, "spec": a.spec, "createdAt": stamp(a.created), "updatedAt": stamp(a.created),
	}
}

// brief is how a workload's record shows it.
func (a *artifact) brief() object {
	return object{"id": a.id, "name": a.name, "type": a.kind, "status": "draft", "version": nil, "artifactRepositoryId": nil}
}

func (e *Emulator) listArtifacts(c call) answer {
	q, bad := listQuery(c, "search", "status", "type")
	if bad != nil {
		return *bad
	}
	e.mu.Lock()
	var found []*artifact
	for _, a := range e.artifacts {
		if a.user != c.user || q.Has("status") && q.Get("status") != "draft" || q.Has("type") && q.Get("type") != a.kind ||
			!matches(q.Get("search"), a.name, a.description, a.id) {
			continue
		}
		found = append(found, a)
	}
	e.mu.Unlock()
	slices.SortFunc(found, func(a, b *artifact) int { return newerFirst(a.created, b.created, a.id, b.id) })
	return pageOf(c, q, found, (*artifact).record)
}

// matches is the search of both lists: any part of any of the texts, whatever its case.
func matches(search string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(search))
	})
}

func newerFirst(a, b time.Time, idA, idB string) int {
	if c := b.Compare(a); c != 0 {
		return c
	}
	return strings.Compare(idB, idA)
}

func (e *Emulator) ownArtifact(c call) *artifact {
	if a := e.artifacts[c.PathValue("id")]; a != nil && a.user == c.user {
		return a
	}
	return nil
}

func (e *Emulator) readArtifact(c call) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.ownArtifact(c)
	if a == nil {
		return detail(http.StatusNotFound, "Artifact not found")
	}
	return answer{status: http.StatusOK, body: a.record()}
}

func (e *Emulator) deleteArtifact(c call) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.ownArtifact(c)
	switch {
	case a == nil:
		return detail(http.StatusNotFound, "Artifact not found")
	case a.usedBy > 0:
		return detail(http.StatusConflict, "Artifact is in use by a proton and can't be deleted.")
	}
	delete(e.artifacts, a.id)
	return answer{status: http.StatusNoContent}
}
