package srt

import (
	"fmt"
	"strings"
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
	return &LayerError{Layer: layer, Err: err}
}
