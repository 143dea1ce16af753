package workload

import "strings"

// snapshot is what the platform last saw of a proton's replicas: the only place
// with exit codes.
type snapshot struct {
	State    string // of all, lower case
	Replicas []replica
}

type replica struct {
	Status     string // pending, running, succeeded, failed, unknown
	Conditions []condition
	Containers []containerState
}

// condition is a fact about a pod, such as PodScheduled.
type condition struct {
	Type, Reason, Message string
	Met                   bool
}

// containerState is one container and how it last ended.
type containerState struct {
	Name         string
	Status       string // waiting, running, terminated
	Started      bool   // it has been seen running, now or before
	Ready        bool
	Restarts     int
	Reason       string // of waiting: CrashLoopBackOff, ErrImagePull, …
	Message      string
	Exited       bool // there is an exit code
	ExitCode     int  // of the last end
	ExitReason   string
	ExitMessage  string
	neverStarted bool
}

type wireContainer struct {
	Name, Status, StartedAt, Reason, Message loose[string]

	Ready        loose[bool]
	RestartCount loose[int]
	ExitCode     loose[int]
	LastState    loose[struct {
		Reason, Message, StartedAt loose[string]
		ExitCode                   loose[int]
	}]
}

type wireSnapshot struct {
	OverallStatus loose[struct{ State loose[string] }]
	Replicas      loose[[]loose[struct {
		Status     loose[string]
		Conditions loose[[]loose[struct {
			Type, Reason, Message loose[string]
			Value, Met            loose[bool]
		}]]
		Containers loose[[]loose[wireContainer]]
	}]]
}

func (w wireSnapshot) snapshot() *snapshot {
	s := &snapshot{State: strings.ToLower(w.OverallStatus.v.State.v)}
	for _, r := range list(w.Replicas) {
		out := replica{Status: strings.ToLower(r.Status.v)}
		for _, c := range list(r.Conditions) {
			out.Conditions = append(out.Conditions, condition{
				Type: c.Type.v, Reason: c.Reason.v, Message: c.Message.v, Met: c.Value.v || c.Met.v,
			})
		}
		for _, c := range list(r.Containers) {
			out.Containers = append(out.Containers, c.state())
		}
		s.Replicas = append(s.Replicas, out)
	}
	return s
}

func (w wireContainer) state() containerState {
	last := w.LastState.v
	c := containerState{
		Name: w.Name.v, Status: strings.ToLower(w.Status.v), Ready: w.Ready.v, Restarts: w.RestartCount.v,
		Reason: w.Reason.v, Message: clean(w.Message.v, maxDetail),
		Started: w.StartedAt.v != "" || last.StartedAt.v != "" || last.ExitCode.ok,
	}
	switch {
	case last.ExitCode.ok:
		c.Exited, c.ExitCode, c.ExitReason, c.ExitMessage = true, last.ExitCode.v, last.Reason.v, clean(last.Message.v, maxDetail)
	case w.ExitCode.ok:
		c.Exited, c.ExitCode, c.ExitReason, c.ExitMessage = true, w.ExitCode.v, w.Reason.v, c.Message
	}
	switch c.ExitReason {
	case "StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError", "RunContainerError":
		c.neverStarted = true // what has an exit code there is the runtime, not the guest
	}
	return c
}

// sandbox is the container that runs the guest, in the replica that got
// furthest. nil = none is told of.
func (s *snapshot) sandbox() *containerState {
	var best *containerState
	if s == nil {
		return nil
	}
	for i := range s.Replicas {
		for j := range s.Replicas[i].Containers {
			c := &s.Replicas[i].Containers[j]
			if best == nil || c.Exited && !best.Exited || c.Started && !best.Started {
				best = c
			}
		}
	}
	return best
}

// obstacle is what keeps the guest from running, in words; "" = nothing that
// the platform tells of. What is merely slow is no obstacle.
func (s *snapshot) obstacle() string {
	if s == nil {
		return ""
	}
	for _, r := range s.Replicas {
		for _, c := range r.Containers {
			if c.neverStarted {
				return join(c.ExitReason, c.ExitMessage)
			}
			switch c.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError":
				return join(c.Reason, c.Message)
			}
		}
		for _, c := range r.Conditions {
			switch {
			case c.Met, c.Reason == "", c.Reason == "ContainersNotReady", c.Reason == "PodCompleted":
			default:
				return join(c.Reason, clean(c.Message, maxDetail))
			}
		}
	}
	return ""
}

func join(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
