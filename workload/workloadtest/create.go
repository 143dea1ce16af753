package workloadtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxBody is what a request's body may have: beyond it a cluster's own store
// refuses objects.
const maxBody = 3 << 20

// createRequest is CreateWorkloadRequest, once its shape has been checked.
type createRequest struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Importance  string         `json:"importance"`
	ArtifactID  string         `json:"artifactId"`
	Artifact    *inputArtifact `json:"artifact"`
	Runtime     *runtime       `json:"runtime"`

	rawRuntime json.RawMessage
}

type inputArtifact struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Spec        json.RawMessage `json:"spec"`
}

type spec struct {
	ContainerGroups []struct {
		Name       string      `json:"name"`
		Containers []container `json:"containers"`
	} `json:"containerGroups"`
}

type container struct {
	Name            string           `json:"name"`
	ImageURI        string           `json:"imageUri"`
	Build           json.RawMessage  `json:"imageBuildConfig"`
	Primary         bool             `json:"primary"`
	Port            int              `json:"port"`
	Entrypoint      []string         `json:"entrypoint"`
	EnvironmentVars []variable       `json:"environmentVars"`
	ReadinessProbe  *probe           `json:"readinessProbe"`
	LivenessProbe   *probe           `json:"livenessProbe"`
	SecurityContext *securityContext `json:"securityContext"`
}

type variable struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	Value  string `json:"value"`
}

type securityContext struct {
	AllowPrivilegeEscalation bool `json:"allowPrivilegeEscalation"`
	Capabilities             struct {
		Add []string `json:"add"`
	} `json:"capabilities"`
	SeccompProfile struct {
		Type string `json:"type"`
	} `json:"seccompProfile"`
}

type runtime struct {
	ContainerGroups []groupRuntime `json:"containerGroups"`
}

type groupRuntime struct {
	Name            string          `json:"name"`
	ReplicaCount    *int            `json:"replicaCount"`
	Autoscaling     json.RawMessage `json:"autoscaling"`
	ResourceBundles []string        `json:"resourceBundles"`
	Containers      []struct {
		Name               string `json:"name"`
		ResourceAllocation *struct {
			Memory json.RawMessage `json:"memory"`
		} `json:"resourceAllocation"`
	} `json:"containers"`
}

func (e *Emulator) createWorkload(c call) answer {
	body, err := io.ReadAll(io.LimitReader(c.Body, maxBody+1))
	switch {
	case err != nil:
		return detail(http.StatusBadRequest, "The request could not be read.")
	case len(body) > maxBody:
		return detail(http.StatusRequestEntityTooLarge, "Request entity too large.")
	}
	req, refused := parseCreate(body)
	if refused != nil {
		return *refused
	}
	return e.admit(c, req)
}

// parseCreate holds a body to the schema.
func parseCreate(body []byte) (*createRequest, *answer) {
	refuse := func(a answer) (*createRequest, *answer) { return nil, &a }
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil || d.More() {
		return refuse(detail(http.StatusBadRequest, "The request is not valid JSON."))
	}
	if faults := createShape().check(tree, nil, nil); faults != nil {
		return refuse(invalid(faults...))
	}
	var req createRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return refuse(detail(http.StatusBadRequest, "The request is not valid: "+err.Error()))
	}
	if raw, ok := tree.(object)["runtime"]; ok {
		req.rawRuntime, _ = json.Marshal(raw) // was JSON
	}
	if (req.ArtifactID == "") == (req.Artifact == nil) {
		return refuse(invalid(fault{kind: "value_error", msg: "Value error, exactly one of artifactId and artifact must be given", input: object{}}))
	}
	return &req, nil
}

// primary finds the container that runs, and what is wrong with the others.
func (s spec) primary() (*container, []fault) {
	var found *container
	var faults []fault
	for g, group := range s.ContainerGroups {
		primaries := 0
		for i := range group.Containers {
			c := &group.Containers[i]
			at := []any{"artifact", "spec", "containerGroups", g, "containers", i}
			add := func(msg string) {
				faults = append(faults, fault{at: at, kind: "value_error", msg: "Value error, " + msg})
			}
			if c.ImageURI == "" && c.Build == nil {
				add("imageUri or imageBuildConfig is required")
			}
			if c.Primary {
				primaries++
				if c.Port == 0 {
					add("port is required on the primary container")
				}
				if found == nil {
					found = c
				}
			} else if c.Port != 0 {
				add("port is allowed on the primary container only")
			}
		}
		if primaries != 1 {
			faults = append(faults, fault{at: []any{"artifact", "spec", "containerGroups", g}, kind: "value_error", msg: "Value error, exactly one container must be primary"})
		}
	}
	if len(s.ContainerGroups) == 0 {
		faults = append(faults, fault{at: []any{"artifact", "spec", "containerGroups"}, kind: "value_error", msg: "Value error, a container group is required"})
	}
	return found, faults
}

// checkNames holds a runtime to the names of its artifact.
func (r *runtime) checkNames(s spec) []fault {
	if r == nil {
		return nil
	}
	var faults []fault
	for g, group := range r.ContainerGroups {
		at := []any{"runtime", "containerGroups", g}
		i := slices.IndexFunc(s.ContainerGroups, func(of struct {
			Name       string      `json:"name"`
			Containers []container `json:"containers"`
		}) bool {
			return cmp.Or(of.Name, "default") == cmp.Or(group.Name, "default")
		})
		if i < 0 {
			faults = append(faults, fault{at: at, kind: "value_error", msg: "Value error, no such container group: " + group.Name})
			continue
		}
		if group.ReplicaCount != nil && len(group.Autoscaling) > 0 && string(group.Autoscaling) != "null" {
			faults = append(faults, fault{at: at, kind: "value_error", msg: "Value error, replicaCount and autoscaling exclude each other"})
		}
		if len(group.ResourceBundles) > 1 {
			faults = append(faults, fault{at: at, kind: "value_error", msg: "Value error, one resource bundle at most"})
		}
		for _, c := range group.Containers {
			if !slices.ContainsFunc(s.ContainerGroups[i].Containers, func(of container) bool { return of.Name == c.Name }) {
				faults = append(faults, fault{at: at, kind: "value_error", msg: "Value error, no such container: " + c.Name})
			}
		}
	}
	return faults
}

// resources reports whether anything says what a container needs.
func (r *runtime) resources() bool {
	return r != nil && slices.ContainsFunc(r.ContainerGroups, func(g groupRuntime) bool {
		if len(g.ResourceBundles) > 0 {
			return true
		}
		for _, c := range g.Containers {
			if c.ResourceAllocation != nil {
				return true
			}
		}
		return false
	})
}

// memory is what a container is allotted, in bytes; strings count in thousands.
func (r *runtime) memory(container string) int64 {
	if r == nil {
		return 0
	}
	for _, g := range r.ContainerGroups {
		for _, c := range g.Containers {
			if c.Name == container && c.ResourceAllocation != nil {
				return bytesOf(c.ResourceAllocation.Memory)
			}
		}
	}
	return 0
}

func bytesOf(raw json.RawMessage) int64 {
	s := strings.Trim(string(raw), `"`)
	unit := int64(1)
	for i, suffix := range []string{"KB", "MB", "GB", "TB"} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = number, int64(math.Pow10(3*(i+1)))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0
	}
	return n * unit
}

// replicas is how many are asked for; without a word, and without autoscaling, a
// cluster may make it none.
func (r *runtime) replicas() int {
	n := 0
	if r != nil {
		for _, g := range r.ContainerGroups {
			if g.ReplicaCount != nil {
				n = max(n, *g.ReplicaCount)
			}
		}
	}
	return n
}

// policy is what the cluster refuses of a container.
func (c Cluster) policy(of *container) *answer {
	refuse := func(a answer) *answer { return &a }
	sc := of.SecurityContext
	switch {
	case slices.Contains(c.RefusedImages, of.ImageURI):
		return refuse(detail(http.StatusUnprocessableEntity, fmt.Sprintf("Image URI '%s' is not permitted on this cluster.", of.ImageURI)))
	case c.RefuseEntry && len(of.Entrypoint) > 0:
		return refuse(invalid(fault{at: []any{"artifact", "spec", "containerGroups", 0, "containers", 0, "entrypoint"}, kind: "value_error", msg: "Value error, entrypoint is not permitted on this cluster"}))
	case sc == nil:
		return nil
	case !c.Flags[flagSecurity]:
		return refuse(detail(http.StatusForbidden, "securityContext requires the entitlement "+flagSecurity+"."))
	case sc.AllowPrivilegeEscalation || len(sc.Capabilities.Add) > 0 || sc.SeccompProfile.Type == "Unconfined":
		return refuse(detail(http.StatusForbidden, "Only an MLOps Admin may weaken the security context."))
	}
	return nil
}
