package workloadtest

import (
	"net/http"
	"time"
)

func (e *Emulator) proton(c call, w *workload) object {
	return object{
		"id": w.proton, "name": w.name, "createdAt": stamp(w.created), "updatedAt": stamp(w.updated), "creator": object{"id": userID(w.user)},
		"status": w.status, "artifactId": w.artifact.id, "workloadId": w.id, "runtime": w.runtime,
		"endpoint": e.endpoint(c, w) + "?protonId=" + w.proton, "role": "active",
		"deployedImages": object{w.container.Name: w.container.ImageURI},
	}
}

func (e *Emulator) listProtons(c call) answer {
	q, bad := listQuery(c)
	if bad != nil {
		return *bad
	}
	return e.with(c, func(w *workload) answer {
		return pageOf(c, q, []*workload{w}, func(w *workload) object { return e.proton(c, w) })
	})
}

// withProton answers with what f makes of the proton that a request names.
func (e *Emulator) withProton(c call, f func(w *workload) answer) answer {
	return e.with(c, func(w *workload) answer {
		if c.PathValue("pid") != w.proton {
			return detail(http.StatusNotFound, "Proton not found")
		}
		return f(w)
	})
}

func (e *Emulator) readProton(c call) answer {
	return e.withProton(c, func(w *workload) answer {
		p := e.proton(c, w)
		p["statusDetails"] = object{"logTail": w.tail(30), "conditions": []object{}}
		return answer{status: http.StatusOK, body: p}
	})
}

func (e *Emulator) statusDetails(c call) answer {
	cluster := e.cfg.Cluster
	if cluster.DetailsMissing {
		return detail(http.StatusNotFound, "Not Found")
	}
	return e.withProton(c, func(w *workload) answer {
		if cluster.DetailsEmpty || !w.pod.reported {
			return answer{status: http.StatusNoContent}
		}
		replica := object{
			"name": "lrs-" + w.proton + "-6945b6ddd7-6mhh8", "status": "running", "address": "10.0.0.12", "nodeAddress": "10.0.1.7",
			"startedAt": utc(w.pod.began), "conditions": w.conditions(), "containers": []object{w.containerStatus()},
		}
		if w.pod.pending != "" || w.pod.reason == "ContainerCreating" {
			replica["status"] = "pending"
		}
		if w.pod.pending != "" {
			replica["address"], replica["nodeAddress"], replica["containers"] = nil, nil, []object{}
		}
		if cluster.DetailsOld {
			older(replica)
		}
		return answer{status: http.StatusOK, body: object{
			"overallStatus": object{
				"state": w.status, "summary": "Workload is in state " + w.status + " based on pod states", "lastUpdated": utc(w.updated),
			},
			"replicas": []object{replica},
		}}
	})
}

// utc is a time as Kubernetes writes it, or nil.
func utc(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// conditions are the pod's. The mutex is held.
func (w *workload) conditions() []object {
	since := utc(w.updated)
	condition := func(kind string, value bool, reason, message string) object {
		return object{"type": kind, "value": value, "lastTransitionTime": since, "reason": reason, "message": message}
	}
	if w.pod.pending != "" {
		return []object{condition("PodScheduled", false, w.pod.pending, "0/3 nodes are available: 3 Insufficient cpu.")}
	}
	reason, message := "", ""
	if !w.pod.ready {
		reason, message = "ContainersNotReady", "containers with unready status: ["+w.containerName()+"]"
	}
	return []object{
		condition("PodReadyToStartContainers", true, "", ""),
		condition("Initialized", true, "", ""),
		condition("Ready", w.pod.ready, reason, message),
		condition("ContainersReady", w.pod.ready, reason, message),
		condition("PodScheduled", true, "", ""),
	}
}

// containerStatus is the container's. The mutex is held.
func (w *workload) containerStatus() object {
	o := object{
		"name": w.containerName(), "status": "waiting", "startedAt": utc(w.pod.started), "ready": w.pod.ready, "restartCount": w.pod.restarts,
		"image": w.container.ImageURI, "reason": w.pod.reason, "exitCode": nil, "message": w.pod.message, "lastState": nil,
	}
	if w.pod.process != nil {
		o["status"] = "running"
	}
	last := w.pod.last
	if last == nil {
		return o
	}
	o["lastState"] = object{
		"status": "terminated", "reason": last.reason, "exitCode": last.code, "message": "",
		"startedAt": utc(last.started), "finishedAt": utc(last.done),
	}
	if w.pod.process == nil && w.pod.reason == "" { // it has just ended
		o["status"], o["reason"], o["exitCode"] = "terminated", last.reason, last.code
	}
	return o
}

// older makes a replica's status as spec 11.5 has it.
func older(replica object) {
	conditions := []object{}
	for _, c := range replica["conditions"].([]object) {
		conditions = append(conditions, object{"type": c["type"], "met": c["value"], "since": c["lastTransitionTime"]})
	}
	replica["conditions"] = conditions
	for _, c := range replica["containers"].([]object) {
		for _, newer := range []string{"reason", "exitCode", "message", "lastState"} {
			delete(c, newer)
		}
	}
}
