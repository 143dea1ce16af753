package srt

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"mcp-sandbox/srt/egress"
)

// guestWorkspace is where a guest finds its workspace, whatever the host calls it, in a root
// that the wall has made.
const guestWorkspace = "/workspace"

// Policy says what the code inside may see and use. It is a plain value, safe to
// copy and to share once made. Its zero value is the strictest: no workspace,
// nothing writable but a small private /tmp and /dev/shm, no program from a
// writable place, and of the network loopback alone.
type Policy struct {
	Workspace Mount   // Guest may be left out and is /workspace then; no Host means no workspace
	Mounts    []Mount // further places of the host that the operator named

	// ReadOnly are host paths shown at the same place, read-only and executable:
	// an interpreter's prefixes. /usr and a few files of /etc are always there.
	ReadOnly []string

	// Programs, where it is not nil, is all of the host's system that is shown, instead of
	// /usr and the files of /etc: a root in which nothing else could be executed. There is
	// no /proc in it, nothing but the private /tmp and /dev/shm can be written, and no socket
	// can be made.
	Programs []Shown

	// AllowExec lets programs and compiled modules be loaded from the workspace,
	// the mounts and /tmp, and memfd_create be called. Python needs it (a workspace may
	// hold a venv or an extension module); a wall for commands does not.
	AllowExec bool

	// Network is what the server's proxy, which listens inside, connects the guest to. No rules:
	// there is none, and nothing listens. The guest's interfaces are loopback alone, always.
	Network egress.Rules

	// Tmp, where it is not "", is a directory that takes the place of the private /tmp: behind a
	// wall that makes no root of its own it is one of the host's, which the wall makes for the
	// guest and takes away with it. The limits of /tmp are then the watchdog's to hold.
	Tmp string

	sharesHost bool // there are no namespaces: what the kernel finds by number or name may be the host's
	supervisor int  // its number inside; 0 is 1
	sharesIPC  bool // the wall gives no namespace for System V objects and message queues

	countsSegments bool // System V memory counts against the session; where it does not, there is none

	Memory    int64 // bytes for the session; 0: 256 MiB
	Disk      int64 // bytes of the private /tmp; 0: 64 MiB
	Shm       int64 // bytes of /dev/shm; 0: 16 MiB
	FileSize  int64 // bytes of the largest file; 0: as Disk
	Tasks     int   // processes and threads together, the supervisor's included; 0: 64
	OpenFiles int   // descriptors of one process; 0: 256
	Inodes    int   // files and directories in /tmp, and again in /dev/shm; 0: 16384
}

// Mount is one place of the host made visible inside.
type Mount struct {
	Host     string // for New: a path; resolved to an absolute one without symbolic links
	Guest    string // absolute
	Writable bool

	held *os.File // Host as New found it; nil: whatever lies there
}

// Shown is one file or directory of the host's system in a root of programs.
type Shown struct {
	Host  string // what a link leads to is shown; or selfExe, this very binary
	Guest string
	Exec  bool // a program or a library; data can't be executed
}

const (
	mib = 1 << 20

	// Below these the wall's own first process, a Go program, could not finish its work
	// once the limits are set, and would fail without a usable reason.
	minMemory    = 128 * mib
	minTasks     = 16
	minOpenFiles = 64
)

// withDefaults returns p with every zero limit replaced and paths cleaned.
func (p Policy) withDefaults() Policy {
	defaultTo := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	defaultTo(&p.Memory, 256*mib)
	defaultTo(&p.Disk, 64*mib)
	defaultTo(&p.Shm, 16*mib)
	defaultTo(&p.FileSize, p.Disk)
	if p.Tasks == 0 {
		p.Tasks = 64
	}
	if p.OpenFiles == 0 {
		p.OpenFiles = 256
	}
	if p.Inodes == 0 {
		p.Inodes = 16384
	}
	if p.Workspace.Guest == "" {
		p.Workspace.Guest = guestWorkspace
	}
	p.ReadOnly = outermost(p.ReadOnly)
	return p
}

// outermost drops what lies below another path of the list or in a directory that is
// shown in any case, so that no place is mounted twice.
func outermost(paths []string) []string {
	sorted := slices.Clone(paths)
	for i := range sorted {
		if path.IsAbs(sorted[i]) {
			sorted[i] = path.Clean(sorted[i])
		}
	}
	slices.Sort(sorted)
	var kept []string
	for _, p := range sorted {
		if within(p, systemDirs...) || within(p, kept...) {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// systemDirs are shown to every guest, read-only and executable.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// etc are the files of the host that programs need and anyone may know. Never shadow,
// never a private key, never the host's users: passwd and group are our own.
var etc = []string{
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/alternatives", // numpy's libblas goes through it
	"/etc/fonts", "/var/cache/fontconfig", "/etc/matplotlibrc",
	"/etc/localtime", "/etc/mime.types", "/etc/protocols", "/etc/services",
	"/etc/python3*",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/crypto-policies",
	"/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted",
}

// reserved are the places that the wall itself fills; nothing of the operator's may be
// mounted on or below them, since it would replace part of the wall.
var reserved = append([]string{"/proc", "/sys", "/dev", "/etc"}, systemDirs...)

// Nobody's names, and no service that would look for others. HOME is /tmp, so that the
// caches which libraries leave there don't litter the workspace.
var ownFiles = map[string]string{
	"/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
		"sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"/etc/group":         "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
	"/etc/hostname":      hostname + "\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
}

const hostname = "sandbox"

// within reports whether p is one of dirs or lies below one.
func within(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return p == d || strings.HasPrefix(p, strings.TrimSuffix(d, "/")+"/")
	})
}

// tmp is where the guest finds its private temporary files.
func (p Policy) tmp() string {
	if p.Tmp != "" {
		return p.Tmp
	}
	return "/tmp"
}

// bare reports whether p is for a root of programs alone.
func (p Policy) bare() bool { return p.Programs != nil }

// shown are the places of the host that the guest sees under names of its own.
func (p Policy) shown() []Mount {
	if p.Workspace.Host == "" {
		return p.Mounts
	}
	return append([]Mount{p.Workspace}, p.Mounts...)
}

// validate returns all faults of p together. It expects the defaults to be filled in.
func (p Policy) validate() error {
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }

	if !clean(p.Workspace.Guest) {
		fault("workspace at %q: not an absolute, clean path", p.Workspace.Guest)
	}
	if p.Workspace.Host != "" && !clean(p.Workspace.Host) {
		fault("workspace %q is not an absolute, clean path", p.Workspace.Host)
	}
	seen := []string{p.Workspace.Guest}
	for _, m := range p.Mounts {
		switch {
		case !clean(m.Host) || !clean(m.Guest):
			fault("mount %q at %q: not absolute, clean paths", m.Host, m.Guest)
		case m.Guest == "/" || m.Guest == "/tmp" || within(m.Guest, reserved...):
			fault("mount %q at %q: that place belongs to the wall", m.Host, m.Guest)
		case slices.Contains(seen, m.Guest):
			fault("mount %q at %q: that place is taken", m.Host, m.Guest)
		}
		seen = append(seen, m.Guest)
	}
	for _, r := range p.ReadOnly {
		switch {
		case !clean(r):
			fault("read-only %q is not an absolute, clean path", r)
		case r == "/" || r == "/tmp" || within(r, "/proc", "/sys", "/dev", "/etc"):
			fault("read-only %q: that place belongs to the wall", r)
		case slices.Contains(seen, r):
			fault("read-only %q: that place is taken", r)
		}
	}
	p.validatePrograms(fault)
	p.validateLimits(fault)
	return errors.Join(faults...)
}

// validatePrograms holds a root of programs to what it is for: nothing of the operator's can
// be written or executed there, and nothing may hide a program.
func (p Policy) validatePrograms(fault func(string, ...any)) {
	if !p.bare() {
		return
	}
	if !p.Network.Empty() {
		fault("a root of programs has no network, and the policy allows %v", p.Network)
	}
	if p.AllowExec || len(p.ReadOnly) > 0 {
		fault("a root of programs executes nothing else, and shows no prefixes")
	}
	for _, m := range p.shown() {
		if m.Writable {
			fault("%s at %s must not be writable in a root of programs", m.Host, m.Guest)
		}
	}
	for _, s := range p.Programs {
		switch {
		case !clean(s.Host) || !clean(s.Guest):
			fault("program %q at %q: not absolute, clean paths", s.Host, s.Guest)
		case within(s.Guest, "/proc", "/sys", "/dev", "/tmp", "/var/tmp") || s.Guest == "/" || ownFiles[s.Guest] != "":
			fault("program %q at %q: that place belongs to the wall", s.Host, s.Guest)
		}
		for _, m := range p.shown() {
			if within(s.Guest, m.Guest) || within(m.Guest, s.Guest) {
				fault("mount %q at %q: %s, which commands need, lies there", m.Host, m.Guest, s.Guest)
			}
		}
	}
}

func (p Policy) validateLimits(fault func(string, ...any)) {
	if p.Memory < minMemory {
		fault("memory of %d bytes is below %s", p.Memory, size(minMemory))
	}
	if p.Disk < 0 || p.Shm < 0 || p.FileSize < 0 || p.Inodes < 0 {
		fault("disk, shm, file size and inodes must not be negative")
	}
	if p.Tasks < minTasks {
		fault("%d tasks are below %d", p.Tasks, minTasks)
	}
	if p.OpenFiles < minOpenFiles {
		fault("%d open files are below %d", p.OpenFiles, minOpenFiles)
	}
}

// atWorkspace is validate for a wall whose root is always the same.
func (p Policy) atWorkspace() error {
	if p.Workspace.Guest != guestWorkspace {
		return fmt.Errorf("workspace must be at %s, not %q", guestWorkspace, p.Workspace.Guest)
	}
	if p.Tmp != "" {
		return fmt.Errorf("%s can't take the place of /tmp", p.Tmp)
	}
	return nil
}

func clean(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// String describes p to a person, a line for each subject.
func (p Policy) String() string {
	p = p.withDefaults()
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }

	p.linesOfPlaces(line)
	if p.bare() {
		p.linesOfPrograms(line)
	} else {
		p.linesOfSystem(line)
	}
	line("limits: memory %s, %d tasks, %d open files, files of %s", size(p.Memory), p.Tasks, p.OpenFiles, size(p.FileSize))
	line("identity: an unprivileged user without capabilities, who can gain none")
	return strings.TrimSuffix(b.String(), "\n")
}

func (p Policy) linesOfPlaces(line func(string, ...any)) {
	if p.Workspace.Host == "" {
		line("workspace: none")
	} else {
		line("workspace: %v", p.Workspace)
	}
	for _, m := range p.Mounts {
		line("mount: %v", m)
	}
}

func (p Policy) linesOfSystem(line func(string, ...any)) {
	line("read-only: %s", strings.Join(append([]string{"/usr", "a few files of /etc"}, p.ReadOnly...), ", "))
	line("private: /tmp (%s, %d files), /dev/shm (%s, %d files), /proc, /dev without terminals",
		size(p.Disk), p.Inodes, size(p.Shm), p.Inodes)
	if p.AllowExec {
		line("programs: from read-only places, the workspace, mounts and /tmp")
	} else {
		line("programs: from read-only places alone")
	}
	if p.Network.Empty() {
		line("network: loopback alone")
	} else {
		line("network: loopback alone; through the server's proxy there: %v", p.Network)
	}
}

func (p Policy) linesOfPrograms(line func(string, ...any)) {
	code := 0
	for _, s := range p.Programs {
		if s.Exec {
			code++
		}
	}
	line("read-only: %d programs and libraries, %d files or directories of data, nothing else of the system", code, len(p.Programs)-code)
	line("private: /tmp (%s, %d files), /dev/shm (%s, %d files), /dev without terminals; no /proc",
		size(p.Disk), p.Inodes, size(p.Shm), p.Inodes)
	line("programs: those alone")
	line("network: none, and no sockets")
}

// String shows the place on the host, the place inside, and what may be done there.
func (m Mount) String() string {
	mode := "read-only"
	if m.Writable {
		mode = "writable"
	}
	return fmt.Sprintf("%s at %s, %s", m.Host, m.Guest, mode)
}

// size renders bytes in the largest binary unit that divides them.
func size(n int64) string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of && n%u.of == 0 {
			return fmt.Sprintf("%d %s", n/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
