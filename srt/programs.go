package srt

import (
	"fmt"
	"maps"
	"slices"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/srt/egress"
)

const (
	// guestWarden is where the wall for commands shows this very binary: it is that wall's
	// first process.
	guestWarden = "/run/mcp-sandbox/warden"

	// selfExe is this very binary as the kernel knows it, also when the file on disk has
	// been replaced since.
	selfExe = "/proc/self/exe"
)

// applets are the commands that this very binary is, called by their names: on Debian the
// programs are scripts, and a script's interpreter could do anything.
var applets = map[string]string{"which": "/usr/bin/which", "shasum": "/usr/bin/shasum"}

// searched are the directories where a program is looked for. It is not PATH, which says
// what the person who started the server likes to run, and not /usr/local, where a build
// of somebody's own would be another program than the one whose options the rules know.
var searched = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"}

// searchedToo is where else a program is looked for that the operator named.
const searchedToo = "/usr/local/bin"

// Missing is a command of the list that this machine does not have, or a helper.
type Missing struct {
	Command string // as it is typed; "" = a helper, which commands of the list start by themselves
	Program string // the executable's name
	Package string // the Debian package that has it; "" = not known
	Reason  string // why it can't be used
}

// String says what is missing and, where it is known, what to install.
func (m Missing) String() string {
	name := m.Command
	if name == "" {
		name = m.Program
	}
	s := fmt.Sprintf("%s (%s", name, m.Reason)
	if m.Package != "" {
		s += fmt.Sprintf("; the package %s has it", m.Package)
	}
	return s + ")"
}

// programs are what the wall for commands shows of this machine's system: the executables
// of a list, their libraries, and the data that they read. It is immutable.
type programs struct {
	shown []Shown           // sorted by guest path
	paths map[string]string // program name → guest path
	have  []string          // commands that can run, sorted
	lack  []Missing         // in the order of the list, then helpers
}

// findPrograms looks for the executables of all commands of list, and for what they need. No
// program is executed. What is not found is no error: see missing.
func findPrograms(list *allowlist.List) (*programs, error) {
	usual, err := allowlist.New(allowlist.Options{})
	if err != nil {
		return nil, fmt.Errorf("the list of commands: %w", err)
	}
	f, err := newFinder("")
	if err != nil {
		return nil, fmt.Errorf("look for the programs of commands: %w", err)
	}
	w := wanted{program: list.Program, helpers: list.Helpers()}
	for _, command := range list.Commands() {
		if slices.Contains(usual.Commands(), command) {
			w.commands = append(w.commands, command)
		} else {
			w.further = append(w.further, command)
		}
	}
	return f.programs(w), nil
}

// wanted are the names to be looked for.
type wanted struct {
	commands []string                    // of the list
	program  func(command string) string // the executable of one of them
	further  []string                    // that the operator allowed besides
	helpers  []string
}

// programs looks for all that is wanted.
func (f *finder) programs(w wanted) *programs {
	p := &programs{paths: map[string]string{}}
	f.show(Shown{Host: selfExe, Guest: guestWarden, Exec: true})
	one := func(command, program string, as kind) {
		if guest, ok := applets[program]; ok && as == ofList {
			f.show(Shown{Host: selfExe, Guest: guest, Exec: true})
			p.paths[program] = guest
		} else if guest, err := f.program(program, as); err == nil {
			p.paths[program] = guest
			if command != "" && command != program {
				f.alias(guest, command)
			}
		} else {
			p.lack = append(p.lack, Missing{command, program, packageOf(program), err.Error()})
			return
		}
		if command != "" {
			p.have = append(p.have, command)
		}
	}
	for _, c := range w.commands {
		one(c, w.program(c), ofList)
	}
	for _, c := range w.further {
		one(c, c, ofOperator)
	}
	for _, h := range w.helpers {
		if p.paths[h] == "" {
			one("", h, ofList)
		}
	}
	f.data(p.paths)
	slices.Sort(p.have)
	p.shown = f.all()
	return p
}

// at is where a guest finds the programs: those that this very binary is have names of their
// own only in a root that we furnish.
func (p *programs) at(at places) map[string]string {
	if !at.Host {
		return p.paths
	}
	paths := maps.Clone(p.paths)
	for name, guest := range applets {
		if paths[name] == guest {
			paths[name] = at.Warden
		}
	}
	return paths
}

// missing are the commands and helpers that this machine does not have.
func (p *programs) missing() []Missing { return slices.Clone(p.lack) }

// available are the commands that can run, sorted.
func (p *programs) available() []string { return slices.Clone(p.have) }

// Commands are the commands that sessions can run, sorted, and what this machine
// lacks of the list. Without a list there are none.
func (l *Local) Commands() (available []string, missing []Missing) {
	if l.programs == nil {
		return nil, nil
	}
	return l.programs.available(), l.programs.missing()
}

// Limits of a wall for commands, where the session's own are higher.
const (
	commandMemory = 512 * mib // sort spills to /tmp, which counts too; nothing else on the list needs as much
	commandShm    = 1 * mib   // no program of the list shares memory; the place is there for one that looks
)

// commandPolicy is what a session's commands may see and use: what its Python sees, but
// read-only and noexec, and of the system nothing but the programs of the list.
func (l *Local) commandPolicy(workspace string, at places) Policy {
	p := l.policy(workspace, at)
	p.Workspace.Writable, p.AllowExec = false, false
	p.Mounts = slices.Clone(p.Mounts)
	for i := range p.Mounts {
		p.Mounts[i].Writable = false
	}
	p.ReadOnly = nil // the interpreter's prefixes
	p.Network = egress.Rules{}
	p.Programs = l.programs.shown
	p.Memory = min(p.Memory, commandMemory)
	p.Shm = min(p.Shm, commandShm)
	return p
}

// packages are the Debian packages of the programs of the list.
var packages = map[string][]string{
	"binutils": {"strings"},
	"bzip2":    {"bzip2"},
	"coreutils": {
		"cat", "cut", "date", "dir", "echo", "env", "head", "ls", "md5sum", "od", "printenv", "printf", "pwd", "sha256sum",
		"sort", "stat", "tail", "tr", "uname", "uniq", "wc",
	},
	"diffutils": {"cmp", "diff"},
	"file":      {"file"},
	"findutils": {"find"},
	"gawk":      {"gawk"},
	"grep":      {"grep"},
	"gzip":      {"gzip"},
	"jq":        {"jq"},
	"sed":       {"sed"},
	"tar":       {"tar"},
	"tree":      {"tree"},
	"unzip":     {"unzip"},
	"xxd":       {"xxd"},
	"xz-utils":  {"xz"},
	"zip":       {"zip"},
	"zstd":      {"zstd"},
}

// packageOf is the Debian package that has a program; "" = not known.
func packageOf(program string) string {
	for name, programs := range packages {
		if slices.Contains(programs, program) {
			return name
		}
	}
	return ""
}

// data shows the files that the programs found read besides their libraries.
func (f *finder) data(paths map[string]string) {
	for _, pattern := range []string{
		"/etc/ld.so.cache", "/etc/ld-musl-*.path", // where libraries are: the same places as on the host
		"/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8", // the commands' LANG
		"/etc/localtime", "/usr/share/zoneinfo", // date, ls -l, TZ=…
		"/usr/lib/os-release", // public, and often asked for; /etc/os-release is a link to it
	} {
		f.showData(pattern)
	}
	if paths["file"] == "" {
		return
	}
	for _, pattern := range []string{"/etc/magic", "/etc/magic.mime", "/usr/share/misc/magic.mgc", "/usr/share/file/misc/magic.mgc"} {
		f.showData(pattern)
	}
}
