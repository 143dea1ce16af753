package workload

// SecurityContext is what a container may do, in the words of Kubernetes and of
// the API. Ordinary users can only tighten it: Add, AllowPrivilegeEscalation
// and a profile of Unconfined need an administrator's role. Who the process
// runs as is the platform's to say.
type SecurityContext struct {
	ReadOnlyRootFilesystem   bool            `json:"readOnlyRootFilesystem"`
	AllowPrivilegeEscalation bool            `json:"allowPrivilegeEscalation"`
	Capabilities             *Capabilities   `json:"capabilities,omitempty"` // nil = not sent
	SeccompProfile           *SeccompProfile `json:"seccompProfile,omitempty"`
}

// Capabilities are those added to and taken from what the container runtime
// gives. An empty list is not sent.
type Capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

// SeccompProfile filters system calls.
type SeccompProfile struct {
	Type             string `json:"type"`                       // RuntimeDefault, Unconfined or Localhost
	LocalhostProfile string `json:"localhostProfile,omitempty"` // with Localhost alone
}

// DefaultSecurityContext is the strictest that an ordinary user may ask for: a
// root that can't be written, no capabilities, the runtime's filter of system
// calls, and no way to gain privileges.
func DefaultSecurityContext() SecurityContext {
	return SecurityContext{
		ReadOnlyRootFilesystem: true,
		Capabilities:           &Capabilities{Drop: []string{"ALL"}},
		SeccompProfile:         &SeccompProfile{Type: "RuntimeDefault"},
	}
}

// wire is what is sent of s: without capabilities where both lists are empty.
func (s SecurityContext) wire() *SecurityContext {
	if c := s.Capabilities; c != nil && len(c.Add)+len(c.Drop) == 0 {
		s.Capabilities = nil
	}
	return &s
}
