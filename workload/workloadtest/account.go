package workloadtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
)

func (e *Emulator) account(c call) answer {
	return answer{status: http.StatusOK, body: object{
		"uid": userID(c.user), "email": "user@example.com", "orgId": userID("org"), "tenantId": userID("tenant"),
		"limits": object{
			"maxConcurrentWorkloads": e.cfg.Cluster.Limit,
			"maxWorkloadReplicas":    e.cfg.Cluster.Replicas,
		},
	}}
}

func (e *Emulator) entitlements(c call) answer {
	var asked struct {
		Entitlements []struct {
			Name string `json:"name"`
		} `json:"entitlements"`
	}
	body, err := io.ReadAll(io.LimitReader(c.Body, maxBody))
	if err != nil || json.Unmarshal(body, &asked) != nil {
		return detail(http.StatusBadRequest, "The request is not valid JSON.")
	}
	values := []object{}
	for i, a := range asked.Entitlements {
		value, known := e.cfg.Cluster.Flags[a.Name]
		if !known {
			return invalid(fault{at: []any{"entitlements", i, "name"}, kind: "value_error", msg: "Unknown entitlement: " + a.Name, input: a.Name})
		}
		values = append(values, object{"name": a.Name, "value": value})
	}
	return answer{status: http.StatusOK, body: object{"entitlements": values}}
}

func (e *Emulator) bundles(call) answer {
	data := []any{}
	for _, b := range []struct {
		id     string
		cpu    float64
		memory int64
	}{{"cpu.micro", 0.5, 512 << 20}, {"cpu.small", 1, 2 << 30}, {"cpu.medium", 2, 8 << 30}} {
		data = append(data, object{"id": b.id, "name": b.id, "cpuCount": b.cpu, "memoryBytes": b.memory, "gpuCount": 0})
	}
	return answer{status: http.StatusOK, body: envelope(data, len(data), nil, nil)}
}

// envelope is the shape of every list.
func envelope(data []any, total int, next, previous *string) object {
	return object{"count": len(data), "totalCount": total, "next": next, "previous": previous, "data": data}
}

// userID is the id of what a name stands for, always the same one.
func userID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:12])
}
