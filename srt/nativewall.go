package srt

import "os"

var _ wall = (*native)(nil)

func (*native) name() string { return WallNative }

// admits: the native wall gives all that can be asked for, each mount at a place of its own.
func (*native) admits(cfg Config, prefixes []string) error {
	return checkMountPoints(cfg.Mounts, prefixes)
}

// places of the root that the wall makes are the same for every guest.
func (*native) places(workspace string) places {
	at := places{Kernel: guestKernel, Warden: guestWarden, Tmp: "/tmp", Scratch: []string{"/tmp", "/dev/shm"}}
	if workspace != "" {
		at.Workspace = guestWorkspace
	}
	return at
}

func (*native) pipe(_ places, _ string, serverReads bool) (server, guest *os.File, err error) {
	r, w, err := os.Pipe()
	if serverReads {
		return r, w, err
	}
	return w, r, err
}

func (*native) concedes() []string { return []string{} }

func (*native) lesser(Config) []string { return nil }

func (n *native) describe(p Policy) string { return p.String() + "\nlimits held: " + n.limits() }
