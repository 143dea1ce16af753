package srt

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// The layers of the wall, as they are named in a [LayerError].
const (
	layerPolicy    = "policy"    // the policy or command asked for cannot be rendered
	layerUserns    = "userns"    // user namespaces, and with them every other namespace
	layerMounts    = "mounts"    // the root the guest sees
	layerProc      = "proc"      // a /proc of the guest's own
	layerWorkspace = "workspace" // the workspace, or another mount the operator asked for
	layerNetwork   = "network"   // loopback of the empty network namespace
	layerRlimits   = "rlimits"
	layerCgroup    = "cgroup"
	layerCaps      = "caps"
	layerLandlock  = "landlock"
	layerSeccomp   = "seccomp"
	layerExec      = "exec"     // starting the guest's program once the wall stands
	layerPackages  = "packages" // the environment of --requirements
)

// LayerError says which layer of the wall could not be raised. Nothing of the
// guest has run: a wall with a layer missing is never stood up.
type LayerError struct {
	Layer  string // one of the constants above
	Remedy string // what the operator can do, in a sentence; "" where nothing is known
	Err    error
}

func (e *LayerError) Error() string { return fmt.Sprintf("srt: %s: %s", e.Layer, e.cause()) }

// cause is what Error says, but for the layer.
func (e *LayerError) cause() string {
	if e.Remedy == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (%s)", e.Err, e.Remedy)
}

func (e *LayerError) Unwrap() error { return e.Err }

// unnamed is an error with a [LayerError] in it, told by somebody who names the layer.
type unnamed struct {
	error
	layer *LayerError
}

func (u unnamed) Error() string {
	return strings.Replace(u.error.Error(), u.layer.Error(), u.layer.cause(), 1)
}

func (u unnamed) Unwrap() error { return u.error }

// failed wraps err once, at the boundary of a layer; nil stays nil.
func failed(layer string, err error) error {
	if err == nil {
		return nil
	}
	return &LayerError{Layer: layer, Err: err, Remedy: callRemedy(layer, err)}
}

// callRemedy is the remedy where the kernel does not know a call that a layer is made of, or a
// filter answers in its place; "" where something else is wrong.
func callRemedy(layer string, err error) string {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSYS) {
		return ""
	}
	needs := map[string]string{
		layerMounts:    "the mount calls of Linux 5.12 and later",
		layerWorkspace: "the mount calls of Linux 5.12 and later",
		layerProc:      "the mount calls of Linux 5.12 and later",
		layerNetwork:   "leave to raise loopback in a network namespace of the wall's own",
		layerRlimits:   "prlimit",
		layerCaps:      "prctl and capset",
		layerLandlock:  "Linux 6.2 or later with landlock in its lsm= parameter, and the calls landlock_*",
		layerSeccomp:   "a kernel with CONFIG_SECCOMP_FILTER, and prctl(PR_SET_SECCOMP)",
		layerExec:      "clone, prctl and close_range",
	}[layer]
	if needs == "" {
		return ""
	}
	return "the wall needs " + needs + "; where a container's profile refuses that: " + containerRemedy
}

// containerRemedy is how containers are told to allow what the wall is made of.
const containerRemedy = "docker run --security-opt seccomp=packaging/docker/seccomp.json (or seccomp=unconfined) --security-opt apparmor=unconfined"
