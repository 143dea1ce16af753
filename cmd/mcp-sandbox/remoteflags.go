package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
	"mcp-sandbox/workload"
)

// The account at DataRobot is named by variables that other tools of theirs read
// too. A token is never a flag: the arguments of a process are everybody's.
const (
	endpointEnv       = "DATAROBOT_ENDPOINT"
	publicEndpointEnv = "DATAROBOT_PUBLIC_API_ENDPOINT"
	tokenEnv          = "DATAROBOT_API_TOKEN"
)

// auto is the choice of a backend by what is configured.
const auto = "auto"

// remoteFlags say where execute_python runs, and what runs there.
type remoteFlags struct {
	PythonBackend string `name:"python-backend" default:"auto" help:"Where Python runs: local; workload, which is containers at $DATAROBOT_ENDPOINT with $DATAROBOT_API_TOKEN; or auto, which is workload where both are set, else local (${default})."`

	WorkloadMode                string        `name:"workload-mode" default:"auto" help:"Remote: session, a container for each session, which remembers; oneshot, one for each call; or auto, which is session (${default})."`
	WorkloadImage               string        `name:"workload-image" placeholder:"IMAGE" help:"Remote: image of the containers; usually the published one."`
	WorkloadAPIBase             string        `name:"workload-api-base" placeholder:"URL" help:"Remote: address of the API, or its path at the endpoint's host; usually /api/v2 there."`
	WorkloadProvisioningTimeout time.Duration `name:"workload-provisioning-timeout" default:"300s" help:"Remote: the longest wait for a container (${default})."`
	WorkloadSecurityContext     string        `name:"workload-security-context" default:"required" help:"Remote: whether containers are asked for with a strict security context: required, prefer (where the account may) or off (${default})."`
	WorkloadCPU                 float64       `name:"workload-cpu" default:"1" help:"Remote: cores of a container (${default})."`
	WorkloadMemory              size          `name:"workload-memory" default:"512MiB" help:"Remote: memory of a container (${default})."`
	WorkloadBare                bool          `name:"workload-bare" help:"Remote, oneshot: give code to the image's own runner as it is, whose output then comes from logs alone."`
	WorkloadAllowHTTP           bool          `name:"workload-allow-http" help:"Remote: let the token travel unencrypted to other machines."`
}

// callerTokenFlag is of the server alone: exec has one caller.
type callerTokenFlag struct {
	WorkloadCallerToken bool `name:"workload-caller-token" help:"Remote, with --transport http: run code with each caller's own DataRobot token, of the header X-DataRobot-Api-Token, and with no other."`
}

func (f remoteFlags) check() error {
	var errs []error
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"python-backend", f.PythonBackend, []string{auto, sandbox.BackendLocal, sandbox.BackendWorkload}},
		{"workload-mode", f.WorkloadMode, []string{"auto", "session", "oneshot"}},
		{"workload-security-context", f.WorkloadSecurityContext, []string{"required", "prefer", "off"}},
	} {
		if !slices.Contains(c.known, c.value) {
			errs = append(errs, fmt.Errorf("--%s must be one of %v; got %q", c.flag, c.known, c.value))
		}
	}
	if f.WorkloadProvisioningTimeout <= 0 || f.WorkloadCPU <= 0 || f.WorkloadMemory <= 0 {
		errs = append(errs, errors.New("--workload-provisioning-timeout, --workload-cpu and --workload-memory must be above 0"))
	}
	if f.WorkloadBare && f.WorkloadMode != "oneshot" {
		errs = append(errs, errors.New("--workload-bare needs --workload-mode oneshot"))
	}
	return errors.Join(errs...)
}

// backend is where Python runs, auto resolved. Half a configuration is told of:
// who has it may wonder why code runs here.
func (f remoteFlags) backend(callers bool, log *slog.Logger) string {
	if f.PythonBackend != auto {
		return f.PythonBackend
	}
	endpoint, token := os.Getenv(endpointEnv) != "", os.Getenv(tokenEnv) != "" || callers
	switch {
	case endpoint && token:
		return sandbox.BackendWorkload
	case endpoint:
		log.Warn("Python runs locally: " + endpointEnv + " is set, " + tokenEnv + " is not")
	}
	return sandbox.BackendLocal
}

// config is what the remote sandbox is to be.
func (f remoteFlags) config(callers bool, limits sandbox.Limits, who *instance, log *slog.Logger) workload.Config {
	return workload.Config{
		Endpoint: os.Getenv(endpointEnv), PublicEndpoint: os.Getenv(publicEndpointEnv), APIBase: f.WorkloadAPIBase,
		Token: os.Getenv(tokenEnv), CallerToken: callers,
		Image: f.WorkloadImage, Mode: workload.Mode(f.WorkloadMode), Bare: f.WorkloadBare,
		Security: workload.SecurityMode(f.WorkloadSecurityContext), Provisioning: f.WorkloadProvisioningTimeout,
		CPU: f.WorkloadCPU, Memory: int64(f.WorkloadMemory), Limits: limits,
		Instance: who.id, Dead: who.dead, Logger: log, DangerouslyAllowHTTP: f.WorkloadAllowHTTP,
	}
}

// described is what the tools' descriptions tell of it.
func (f remoteFlags) described() tools.Remote {
	image := f.WorkloadImage
	if image == "" {
		image = workload.DefaultImage
	}
	return tools.Remote{Image: image, Stateless: f.WorkloadMode == "oneshot"}
}
