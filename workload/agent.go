package workload

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"mcp-sandbox/sandbox/kernel"
)

//go:embed agent/*.py
var agentSources embed.FS

const (
	// bootChunk is how much of the agent one variable holds, in characters: the
	// kernel of the container's machine refuses a string of 128 KiB.
	bootChunk = 98_000
	// imagePython is the interpreter of the published image.
	imagePython = "/opt/venv/bin/python"
)

// agentLoader unpacks the agent and becomes it. It runs as an entrypoint's own
// program, or as the code of a stock runner.
//
// A container's first process does not hear SIGTERM unless it asks to, so that
// one that is deleted while it starts would hold its artifact for the platform's
// whole grace; hence the second line, until the agent has its own.
const agentLoader = `import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
import base64, json, zlib
n, s = 0, ""
while "DRX_BOOT_%d" % n in os.environ:
    s += os.environ.pop("DRX_BOOT_%d" % n)
    n += 1
bundle = json.loads(zlib.decompress(base64.b64decode(s), 31))
exec(compile(bundle["agent"]["main.py"], "<agent>", "exec"), {"bundle": bundle, "__name__": "agent"})
`

// way is how the agent gets to run in a container.
type way string

const (
	byEntrypoint way = "entrypoint"   // in place of the image's own program
	byRunner     way = "stock runner" // as code that the image's own program runs, and that never ends
)

// agentVars are the variables that hold the agent and the interpreter's side of
// the kernel. There is no secret in them: whoever may see a workload sees them.
func agentVars() ([]envVar, error) {
	agent, err := sourcesOf(agentSources, "agent")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]map[string]string{"agent": agent, "kernel": kernel.Sources()})
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	var vars []envVar
	for rest := base64.StdEncoding.EncodeToString(packed.Bytes()); rest != ""; {
		n := min(len(rest), bootChunk)
		vars = append(vars, envVar{Name: fmt.Sprintf("DRX_BOOT_%d", len(vars)), Value: rest[:n]})
		rest = rest[n:]
	}
	return vars, nil
}

func sourcesOf(files embed.FS, dir string) (map[string]string, error) {
	names, err := fs.Glob(files, dir+"/*.py")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		found[strings.TrimPrefix(name, dir+"/")] = string(b)
	}
	return found, nil
}

// fillAgent makes a request's container one of the agent's.
func fillAgent(r *createRequest, vars []envVar, by way, lease time.Duration) {
	c := r.container()
	r.Importance = "moderate" // what is low is evicted first, and with it the variables
	c.EnvironmentVars = append(c.EnvironmentVars, vars...)
	if lease > 0 {
		c.EnvironmentVars = append(c.EnvironmentVars, envVar{Name: "DRX_LEASE_S", Value: strconv.Itoa(int(lease.Seconds()))})
	}
	// No liveness probe: one that is wrong kills what is well.
	c.ReadinessProbe = &probeSpec{Path: "/healthz", Port: containerPort, InitialDelaySeconds: 1, PeriodSeconds: 2, TimeoutSeconds: 2, FailureThreshold: 3}
	switch by {
	case byEntrypoint:
		c.Entrypoint = []string{imagePython, "-I", "-u", "-c", agentLoader}
	case byRunner:
		c.EnvironmentVars = append(c.EnvironmentVars,
			envVar{Name: "DR_SANDBOX_CODE_B64", Value: base64.StdEncoding.EncodeToString([]byte(agentLoader))},
			envVar{Name: "DR_SANDBOX_TIMEOUT_SECS", Value: "0"}) // no alarm: it is to run on
	}
}
