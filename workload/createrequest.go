package workload

// The request that creates a workload with an artifact of its own. The API
// refuses fields that it does not know, so there are none but these.

type createRequest struct {
	Name        string       `json:"name"`                  // 1 to 5000 characters; see names.go
	Description string       `json:"description,omitempty"` // the owner's mark: there is no other place for it
	Importance  string       `json:"importance,omitempty"`  // low, moderate, high, critical; "" = low, which is evicted first
	Artifact    artifactSpec `json:"artifact"`
	Runtime     runtimeSpec  `json:"runtime"`
}

type artifactSpec struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Type        string         `json:"type"` // service
	Spec        containersSpec `json:"spec"`
}

type containersSpec struct {
	ContainerGroups []containerGroup `json:"containerGroups"`
}

type containerGroup struct {
	Name       string          `json:"name"`
	Containers []containerSpec `json:"containers"`
}

type containerSpec struct {
	Name            string           `json:"name"`
	ImageURI        string           `json:"imageUri"`
	Primary         bool             `json:"primary"`
	Port            int              `json:"port"` // 1024 to 65535
	Entrypoint      []string         `json:"entrypoint,omitempty"`
	EnvironmentVars []envVar         `json:"environmentVars,omitempty"`
	ReadinessProbe  *probeSpec       `json:"readinessProbe,omitempty"`
	SecurityContext *SecurityContext `json:"securityContext,omitempty"`
}

type envVar struct {
	Name  string `json:"name"`
	Value string `json:"value"` // see maxEnvString
}

// probeSpec is an HTTP probe; the platform's own times are half a minute each.
type probeSpec struct {
	Path                string `json:"path"`
	Port                int    `json:"port"`
	InitialDelaySeconds int    `json:"initialDelaySeconds"`
	PeriodSeconds       int    `json:"periodSeconds"`
	TimeoutSeconds      int    `json:"timeoutSeconds"`
	FailureThreshold    int    `json:"failureThreshold"`
}

type runtimeSpec struct {
	ContainerGroups []runtimeGroup `json:"containerGroups"`
}

type runtimeGroup struct {
	Name         string             `json:"name"`
	ReplicaCount int                `json:"replicaCount"` // always 1: left out, a cluster may scale to zero
	Containers   []runtimeContainer `json:"containers"`
}

type runtimeContainer struct {
	Name               string     `json:"name"`
	ResourceAllocation allocation `json:"resourceAllocation"` // always sent: without it nothing is scheduled
}

type allocation struct {
	CPU    float64 `json:"cpu"`    // cores
	Memory int64   `json:"memory"` // bytes, as a number: what strings mean differs
}

const (
	groupName     = "default"
	containerName = "sandbox"
	containerPort = 8080
)

// newCreateRequest is a request for one container, as yet without variables.
func (w *Workload) newCreateRequest(n names, description string) createRequest {
	return createRequest{
		Name:        n.workload,
		Description: description,
		Artifact: artifactSpec{
			Name: n.artifact, Description: description, Type: "service",
			Spec: containersSpec{ContainerGroups: []containerGroup{{Name: groupName, Containers: []containerSpec{{
				Name: containerName, ImageURI: w.cfg.Image, Primary: true, Port: containerPort,
			}}}}},
		},
		Runtime: runtimeSpec{ContainerGroups: []runtimeGroup{{
			Name: groupName, ReplicaCount: 1,
			Containers: []runtimeContainer{{Name: containerName, ResourceAllocation: allocation{CPU: w.cfg.CPU, Memory: w.cfg.Memory}}},
		}}},
	}
}

// container is the one container of the request.
func (r *createRequest) container() *containerSpec {
	return &r.Artifact.Spec.ContainerGroups[0].Containers[0]
}
