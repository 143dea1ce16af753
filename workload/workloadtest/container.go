package workloadtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"mcp-sandbox/runner"
)

// What the published image has: its interpreter, and its variables.
const (
	imagePython = "/opt/venv/bin/python"
	imagePath   = "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"
)

// maxVariable is what the kernel takes as one string of an environment, its final
// NUL included.
const maxVariable = 128 << 10

// start starts a workload's container.
func (e *Emulator) start(ctx context.Context, w *workload, stdout, stderr io.Writer) (Running, error) {
	env := e.environment(w)
	for _, v := range env {
		if len(v)+1 > maxVariable { // also where this machine's kernel would take it
			return nil, fmt.Errorf("workloadtest: a variable of %d bytes: %w", len(v), syscall.E2BIG)
		}
	}
	argv := w.container.Entrypoint
	if len(argv) == 0 {
		argv = e.cfg.Cluster.Command
	}
	if len(argv) == 0 {
		argv = []string{imagePython, "-c", runner.Source}
	}
	if argv[0] == imagePython || argv[0] == imagePython+"3" {
		argv = append([]string{e.cfg.Python}, argv[1:]...)
	}
	return e.cfg.Start(ctx, Process{Argv: argv, Env: env, Memory: w.memory, Port: cmp.Or(w.container.Port, 8080), Stdout: stdout, Stderr: stderr})
}

// environment is a container's: what was declared, and what the platform and the
// image add.
func (e *Emulator) environment(w *workload) []string {
	env := []string{
		"PATH=" + imagePath,
		"PYTHONUNBUFFERED=1",
		"WORKLOAD_ID=" + w.id,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", // nobody listens
		"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20emulated-collector-token",
	}
	if e.cfg.Cluster.InjectToken {
		env = append(env, "DATAROBOT_ENDPOINT=http://127.0.0.1:9/api/v2", "DATAROBOT_API_TOKEN=emulated-injected-token")
	}
	for _, v := range w.container.EnvironmentVars {
		switch v.Source {
		case "", "string":
			env = append(env, v.Name+"="+v.Value)
		case "api-key":
			env = append(env, cmp.Or(v.Name, "DATAROBOT_API_TOKEN")+"=emulated-injected-token")
		case "dr-credential":
			env = append(env, v.Name+"=emulated-credential")
		}
	}
	return env
}

// probe is a ProbeConfig.
type probe struct {
	Path                string `json:"path"`
	Port                int    `json:"port"`
	InitialDelaySeconds *int   `json:"initialDelaySeconds"`
	PeriodSeconds       int    `json:"periodSeconds"`
	TimeoutSeconds      int    `json:"timeoutSeconds"`
	FailureThreshold    int    `json:"failureThreshold"`
}

// usualProbe is the platform's for a field that was not given, in seconds.
const usualProbe = 30

// watch sees a container's process from its start to its end.
func (e *Emulator) watch(ctx context.Context, w *workload, p Running) {
	if e.cfg.Cluster.OOM {
		e.change(w, func() { w.pod.oom = true })
		p.Kill()
		return
	}
	if w.container.ReadinessProbe == nil {
		e.isReady(w, true)
	}
	live := make(chan struct{})
	go func() {
		defer close(live)
		if l := w.container.LivenessProbe; l != nil {
			e.probeForEver(ctx, p, *l, func(ok bool) {
				if !ok {
					p.Terminate()
				}
			})
		}
	}()
	if r := w.container.ReadinessProbe; r != nil {
		e.probeForEver(ctx, p, *r, func(ok bool) { e.isReady(w, ok) })
	}
	<-live
}

func (e *Emulator) isReady(w *workload, ready bool) {
	e.change(w, func() { w.pod.ready = ready })
	if ready {
		e.enter(w, running)
	}
}

// probeForEver asks a container as often as the probe says, and tells of each change.
func (e *Emulator) probeForEver(ctx context.Context, p Running, probe probe, tell func(ok bool)) {
	client := &http.Client{Transport: e.transport(p), Timeout: e.probeTimeout(probe)}
	defer client.CloseIdleConnections()
	initial := usualProbe
	if probe.InitialDelaySeconds != nil {
		initial = *probe.InitialDelaySeconds
	}
	wait, failures, was := time.Duration(initial)*time.Second, 0, false
	for e.clock.sleep(ctx, wait) == nil {
		wait = time.Duration(cmp.Or(probe.PeriodSeconds, usualProbe)) * time.Second
		ok := ask(ctx, client, probe.Path)
		if ok {
			failures = 0
		} else {
			failures++
		}
		switch {
		case ok && !was:
			was = true
			tell(true)
		case failures == cmp.Or(probe.FailureThreshold, 3):
			was = false
			tell(false)
		}
	}
}

// probeTimeout is a probe's, but never so short that a busy machine could not keep it.
func (e *Emulator) probeTimeout(p probe) time.Duration {
	return max(e.clock.scale(time.Duration(cmp.Or(p.TimeoutSeconds, usualProbe))*time.Second), time.Second)
}

func ask(ctx context.Context, client *http.Client, path string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://container"+path, nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode >= 200 && answer.StatusCode < 400
}

// transport leads to a container, whatever host a request names.
func (e *Emulator) transport(p Running) *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) },
		DisableCompression: true,
		MaxIdleConns:       4,
		IdleConnTimeout:    10 * time.Second,
	}
}
