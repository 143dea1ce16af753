package srt

import (
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt/egress"
)

func TestPolicyString(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Policy
		want   string
	}{
		{"zero", Policy{}, `workspace: none
read-only: /usr, a few files of /etc
private: /tmp (64 MiB, 16384 files), /dev/shm (16 MiB, 16384 files), /proc, /dev without terminals
programs: from read-only places alone
network: loopback alone
limits: memory 256 MiB, 64 tasks, 256 open files, files of 64 MiB
identity: an unprivileged user without capabilities, who can gain none`},
		{"full", Policy{
			Workspace: Mount{Host: "/srv/job", Writable: true},
			Mounts:    []Mount{{Host: "/srv/data", Guest: "/data"}, {Host: "/srv/out", Guest: "/out", Writable: true}},
			ReadOnly:  []string{"/usr/local", "/opt/py/lib", "/opt/py"},
			AllowExec: true,
			Memory:    2 << 30, Disk: 1 << 30, Shm: 64 * mib, FileSize: 1000, Tasks: 256, OpenFiles: 512, Inodes: 100,
		}, `workspace: /srv/job at /workspace, writable
mount: /srv/data at /data, read-only
mount: /srv/out at /out, writable
read-only: /usr, a few files of /etc, /opt/py
private: /tmp (1 GiB, 100 files), /dev/shm (64 MiB, 100 files), /proc, /dev without terminals
programs: from read-only places, the workspace, mounts and /tmp
network: loopback alone
limits: memory 2 GiB, 256 tasks, 512 open files, files of 1000 bytes
identity: an unprivileged user without capabilities, who can gain none`},
		{"network", Policy{Network: network(t, "example.org", "*.Bücher.example:8443")}, `workspace: none
read-only: /usr, a few files of /etc
private: /tmp (64 MiB, 16384 files), /dev/shm (16 MiB, 16384 files), /proc, /dev without terminals
programs: from read-only places alone
network: loopback alone; through the server's proxy there: example.org, *.xn--bcher-kva.example:8443
limits: memory 256 MiB, 64 tasks, 256 open files, files of 64 MiB
identity: an unprivileged user without capabilities, who can gain none`},
		{"commands", Policy{
			Workspace: Mount{Host: "/srv/job"}, Mounts: []Mount{{Host: "/srv/data", Guest: "/data"}},
			Programs: []Shown{{selfExe, guestWarden, true}, {"/usr/bin/ls", "/usr/bin/ls", true}, {"/usr/share/zoneinfo", "/usr/share/zoneinfo", false}},
			Shm:      mib,
		}, `workspace: /srv/job at /workspace, read-only
mount: /srv/data at /data, read-only
read-only: 2 programs and libraries, 1 files or directories of data, nothing else of the system
private: /tmp (64 MiB, 16384 files), /dev/shm (1 MiB, 16384 files), /dev without terminals; no /proc
programs: those alone
network: none, and no sockets
limits: memory 256 MiB, 64 tasks, 256 open files, files of 64 MiB
identity: an unprivileged user without capabilities, who can gain none`},
	} {
		if got := tt.policy.String(); got != tt.want {
			t.Errorf("%s:\n%s\nwant:\n%s", tt.name, got, tt.want)
		}
		if err := tt.policy.withDefaults().validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func network(t testing.TB, allow ...string) egress.Rules {
	t.Helper()
	rules, err := egress.ParseRules(allow, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestPolicyFaults(t *testing.T) {
	for _, tt := range []struct {
		policy Policy
		want   string // part of the error
	}{
		{Policy{Workspace: Mount{Host: "relative"}}, "workspace"},
		{Policy{Workspace: Mount{Host: "/a/../b"}}, "workspace"},
		{Policy{Workspace: Mount{Host: "/a", Guest: "elsewhere"}}, "workspace"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/usr/lib/x"}}}, "belongs to the wall"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/proc"}}}, "belongs to the wall"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/etc/passwd"}}}, "belongs to the wall"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/"}}}, "belongs to the wall"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/tmp"}}}, "belongs to the wall"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "data"}}}, "not absolute"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/data/"}}}, "not absolute"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/d"}, {Host: "/b", Guest: "/d"}}}, "taken"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/workspace"}}}, "taken"},
		{Policy{Mounts: []Mount{{Host: "/a", Guest: "/opt"}}, ReadOnly: []string{"/opt"}}, "taken"},
		{Policy{ReadOnly: []string{"/"}}, "belongs to the wall"},
		{Policy{ReadOnly: []string{"/etc"}}, "belongs to the wall"},
		{Policy{ReadOnly: []string{"/proc/1"}}, "belongs to the wall"},
		{Policy{ReadOnly: []string{"opt"}}, "not an absolute"},
		{Policy{ReadOnly: []string{"/opt/a\x00b"}}, "not an absolute"},
		{Policy{Programs: []Shown{}, AllowExec: true}, "executes nothing else"},
		{Policy{Programs: []Shown{}, ReadOnly: []string{"/opt/py"}}, "shows no prefixes"},
		{Policy{Programs: []Shown{}, Workspace: Mount{Host: "/w", Writable: true}}, "must not be writable"},
		{Policy{Programs: []Shown{}, Mounts: []Mount{{Host: "/a", Guest: "/d", Writable: true}}}, "must not be writable"},
		{Policy{Programs: []Shown{{Host: "usr", Guest: "/usr/bin/x"}}}, "not absolute"},
		{Policy{Programs: []Shown{{Host: "/usr/bin/x", Guest: "/usr/bin/../x"}}}, "not absolute"},
		{Policy{Programs: []Shown{{Host: "/usr/bin/x", Guest: "/tmp/x"}}}, "belongs to the wall"},
		{Policy{Programs: []Shown{{Host: "/usr", Guest: "/"}}}, "belongs to the wall"},
		{Policy{Programs: []Shown{{Host: "/etc/passwd", Guest: "/etc/passwd"}}}, "belongs to the wall"},
		{Policy{Programs: []Shown{{Host: "/x", Guest: "/opt/bin/x"}}, Mounts: []Mount{{Host: "/a", Guest: "/opt"}}}, "which commands need"},
		{Policy{Programs: []Shown{{Host: "/x", Guest: "/workspace/x"}}, Workspace: Mount{Host: "/w"}}, "which commands need"},
		{Policy{Programs: []Shown{}, Network: network(t, "example.org")}, "has no network"},
		{Policy{Memory: -1}, "memory"},
		{Policy{Memory: 1 << 20}, "memory"},
		{Policy{Tasks: 1}, "tasks"},
		{Policy{OpenFiles: -5}, "open files"},
		{Policy{Disk: -1}, "negative"},
	} {
		err := tt.policy.withDefaults().validate()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.policy, err, tt.want)
		}
	}
	both := Policy{Memory: 1, Tasks: 1}.withDefaults().validate()
	if s := both.Error(); !strings.Contains(s, "memory") || !strings.Contains(s, "tasks") {
		t.Errorf("not all faults together: %v", both)
	}
}

// Neither filling in defaults nor mounting may change the caller's slices.
func TestPolicyIsAValue(t *testing.T) {
	p := Policy{Workspace: Mount{Host: "/w"}, Mounts: make([]Mount, 1, 4), ReadOnly: []string{"/opt/b/", "/opt/a"}}
	p.Mounts[0] = Mount{Host: "/m", Guest: "/m"}
	_, _ = p.withDefaults().shown(), p.String()
	if p.ReadOnly[0] != "/opt/b/" || p.Mounts[0].Host != "/m" || p.Workspace.Guest != "" {
		t.Errorf("changed to %+v", p)
	}
}

// What an operator may ask for is what the wall can be built with.
func TestLimitsHaveOneBound(t *testing.T) {
	least := sandbox.Limits{Tasks: minTasks, OpenFiles: minOpenFiles}
	if _, err := least.Resolve(); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		limits sandbox.Limits
		want   string
	}{
		{sandbox.Limits{Tasks: minTasks - 1}, "max-tasks: 15 is below the least that works, 16"},
		{sandbox.Limits{OpenFiles: minOpenFiles - 1}, "open files: 63 is below the least that works, 64"},
	} {
		if _, err := tt.limits.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v; want %q", err, tt.want)
		}
	}
	smallest, err := sandbox.Limits{Memory: minMemory, Tasks: minTasks, Disk: 1 << 20, Inodes: 100, Shm: 1 << 20, OpenFiles: minOpenFiles}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	l := &Local{cfg: Config{Limits: smallest}}
	l.programs = &programs{shown: []Shown{}}
	for _, p := range []Policy{l.policy("/w", (*native)(nil).places("/w")), l.commandPolicy("/w", (*native)(nil).places("/w"))} {
		if err := p.withDefaults().validate(); err != nil {
			t.Error(err)
		}
	}
}

// What a session's commands may see and use is never more than what its Python may.
func TestCommandPolicy(t *testing.T) {
	limits, err := sandbox.Limits{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	mounts := []Mount{{Host: "/srv/out", Guest: "/out", Writable: true}}
	l := &Local{
		cfg:      Config{Limits: limits, Mounts: mounts},
		python:   Interpreter{Prefixes: []string{"/opt/py"}},
		programs: &programs{shown: []Shown{{selfExe, guestWarden, true}}},
	}
	p, python := l.commandPolicy("/w", (*native)(nil).places("/w")).withDefaults(), l.policy("/w", (*native)(nil).places("/w")).withDefaults()
	if err := p.validate(); err != nil {
		t.Error(err)
	}
	if p.Workspace.Writable || p.Mounts[0].Writable || p.AllowExec || len(p.ReadOnly) > 0 || !p.bare() {
		t.Errorf("%+v", p)
	}
	if p.Memory > python.Memory || p.Shm > python.Shm || p.Disk > python.Disk || p.Tasks > python.Tasks || p.OpenFiles > python.OpenFiles {
		t.Errorf("%+v has more than %+v", p, python)
	}
	if !mounts[0].Writable || !python.Mounts[0].Writable || !python.Workspace.Writable {
		t.Error("the mounts of Python have changed")
	}
}
