package workloadtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"time"
)

// pod is what runs of a workload: its container, attempt after attempt.
type pod struct {
	began    time.Time
	reported bool   // statusDetails have it
	pending  string // the reason why no node takes it; ""
	reason   string // why the container waits; ""
	message  string
	errored  bool // it was, and that sticks

	started  time.Time       // of the attempt that runs; zero = none does
	process  Running         // of that
	gateway  *http.Transport // to that
	ready    bool
	oom      bool // it is being killed for its memory
	restarts int
	last     *ending
}

// ending is how an attempt ended.
type ending struct {
	code          int
	reason        string
	started, done time.Time
}

// life is the goroutine of a workload: it goes through the states, runs the
// container again and again, and, when ctx ends, sees to its end.
func (e *Emulator) life(ctx context.Context, w *workload) {
	ttl := time.AfterFunc(e.clock.scale(e.cfg.Cluster.TTL), func() { e.change(w, func() { e.remove(w) }) })
	report := time.AfterFunc(e.clock.scale(e.cfg.Cluster.Report), func() { e.change(w, func() { w.pod.reported = true }) })
	defer ttl.Stop()
	defer report.Stop()
	if e.prepare(ctx, w) == nil && e.pull(ctx, w) == nil {
		e.restartForEver(ctx, w)
	}
	<-ctx.Done()
	e.change(w, func() {
		w.artifact.usedBy--
		w.pod = pod{last: w.pod.last, reported: w.pod.reported}
		w.status = stopped
		close(w.gone)
	})
}

func (e *Emulator) change(w *workload, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	w.updated = now()
}

// enter is a state's beginning. Errored may stick, and an end that was asked for is not
// undone.
func (e *Emulator) enter(w *workload, status string) {
	e.change(w, func() {
		if w.status == stopping {
			return
		}
		if status == errored {
			w.pod.errored = true
		}
		if w.pod.errored && !e.cfg.Cluster.ErroredRecovers {
			status = errored
		}
		w.status = status
	})
}

// prepare is what comes before the image is pulled.
func (e *Emulator) prepare(ctx context.Context, w *workload) error {
	e.change(w, func() { w.pod.began = now() })
	if err := e.clock.sleep(ctx, e.cfg.Cluster.Submitted); err != nil {
		return err
	}
	switch {
	case !w.resources:
		const text = "ResourceBundleInferenceError: At least one resource signal is required. Provide resourceBundles in runtime.containerGroups or resourceAllocation on runtime containers."
		e.change(w, func() { e.event(w, "Workload Errored", text) })
		e.enter(w, errored)
		return errors.New("nothing says what the container needs")
	case e.cfg.Cluster.Unschedulable, w.replicas == 0: // scaled to zero is as good as no node
		e.change(w, func() { w.pod.pending = "Unschedulable" })
		return errors.New("no node takes the pod")
	}
	e.enter(w, provisioning)
	return e.clock.sleep(ctx, e.cfg.Cluster.Provisioning)
}

// pull is the image's arrival, which may fail some times.
func (e *Emulator) pull(ctx context.Context, w *workload) error {
	e.enter(w, launching)
	e.waits(w, "ContainerCreating", "")
	for range e.cfg.Cluster.PullFailures {
		e.enter(w, errored)
		e.waits(w, "ErrImagePull", "failed to pull and unpack image")
		e.platformRow(w, "ERROR", "Image pull failed reason=ErrImagePull")
		if err := e.clock.sleep(ctx, e.cfg.Cluster.PullRetry); err != nil {
			return err
		}
		e.waits(w, "ImagePullBackOff", "Back-off pulling image")
	}
	return e.clock.sleep(ctx, e.cfg.Cluster.Pull)
}

// waits says why the container does not run.
func (e *Emulator) waits(w *workload, reason, message string) {
	e.change(w, func() { w.pod.reason, w.pod.message = reason, message })
}

// restartForEver is what a cluster does with a container, whether it ends well or not.
func (e *Emulator) restartForEver(ctx context.Context, w *workload) {
	for restart := 0; ; restart++ {
		if e.backOff(ctx, w, restart) != nil {
			return
		}
		e.attempt(ctx, w)
		if ctx.Err() != nil {
			return
		}
	}
}

// backOff waits before a restart, the first of which is at once.
func (e *Emulator) backOff(ctx context.Context, w *workload, restart int) error {
	if restart == 0 {
		return ctx.Err()
	}
	var delay time.Duration
	if restart > 1 {
		delay = min(10*time.Second<<min(restart-2, 10), 300*time.Second)
		e.waits(w, "CrashLoopBackOff", fmt.Sprintf("back-off %ds restarting failed container=%s", delay/time.Second, w.containerName()))
	}
	if restart >= e.cfg.Cluster.ErroredFrom {
		e.enter(w, errored)
		e.platformRow(w, "ERROR", "Crash looping reason=CrashLoopBackOff")
	}
	if err := e.clock.sleep(ctx, delay); err != nil {
		return err
	}
	e.change(w, func() { w.pod.restarts++ })
	last := w.pod.last // no other goroutine writes it
	e.platformRow(w, "INFO", fmt.Sprintf("Running (recovered from termination) last_reason=%s last_exit_code=%d", last.reason, last.code))
	return nil
}

// attempt runs the container once, to its end or ctx's.
func (e *Emulator) attempt(ctx context.Context, w *workload) {
	began := now()
	stdout, stderr := e.lines(w, onStdout), e.lines(w, onStderr)
	p, err := e.start(ctx, w, stdout, stderr)
	if err != nil {
		e.cfg.Log.Debug("a container did not start", "workload", w.id, "error", err)
		e.change(w, func() { w.pod.last = startError(err, began) })
		return
	}
	e.change(w, func() {
		e.processes++
		w.pod.process, w.pod.gateway = p, e.transport(p)
		w.pod.started, w.pod.reason, w.pod.message = began, "", ""
	})
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		e.watch(watching, w, p)
	}()
	code := e.await(ctx, p)
	killed, _ := p.(interface{ OOMKilled() bool })
	stop()
	<-watched
	stdout.flush()
	stderr.flush()
	e.change(w, func() {
		e.processes--
		w.pod.oom = w.pod.oom || killed != nil && code != 0 && killed.OOMKilled()
		w.pod.last = w.pod.ended(code)
		w.pod.gateway.CloseIdleConnections()
		w.pod.process, w.pod.gateway, w.pod.started, w.pod.ready, w.pod.oom = nil, nil, time.Time{}, false, false
	})
}

func (p *pod) ended(code int) *ending {
	last := &ending{code: code, reason: "Error", started: p.started, done: now()}
	switch {
	case p.oom:
		last.code, last.reason = 137, "OOMKilled"
	case code == 0:
		last.reason = "Completed"
	}
	return last
}

// await returns how a process ended, which it is made to when ctx ends.
func (e *Emulator) await(ctx context.Context, p Running) int {
	ended := make(chan int, 1)
	go func() { ended <- p.Wait() }() // ends with the process
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	p.Terminate()
	grace := time.NewTimer(e.clock.scale(e.cfg.Cluster.Grace))
	defer grace.Stop()
	select {
	case code := <-ended:
		return code
	case <-grace.C:
	case <-e.ctx.Done():
	}
	p.Kill()
	return <-ended
}

// startError is how a container ends that could not be started.
func startError(err error, began time.Time) *ending {
	e := &ending{code: 128, reason: "StartError", started: began, done: now()}
	switch {
	case errors.Is(err, syscall.E2BIG):
	case errors.Is(err, fs.ErrNotExist):
		e.code = 127
	case errors.Is(err, fs.ErrPermission):
		e.code = 126
	}
	return e
}

// event is one of the workload's history. The mutex is held.
func (e *Emulator) event(w *workload, kind, message string) {
	w.events = append(w.events, object{
		"id": newID(), "workloadId": w.id, "timestamp": stamp(now()), "eventType": kind, "actorId": userID(w.user),
		"details": object{"message": message},
	})
}

func (e *Emulator) listEvents(c call) answer {
	q, bad := listQuery(c)
	if bad != nil {
		return *bad
	}
	return e.with(c, func(w *workload) answer {
		newest := make([]object, 0, len(w.events))
		for i := len(w.events) - 1; i >= 0; i-- {
			newest = append(newest, w.events[i])
		}
		return pageOf(c, q, newest, func(o object) object { return o })
	})
}

// containerName is what a pod calls the container.
func (w *workload) containerName() string {
	name := w.container.Name
	if name == "" {
		name = "default"
	}
	return "lrs-" + w.proton + "-" + name
}
