package sandboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mcp-sandbox/sandbox"
)

// A control is a place without a wall in which probes must succeed.
type control struct {
	name   string
	inputs map[string]any
	before string // Python that comes first
	user   bool   // as an unprivileged user, though the test is root
	leak   bool   // with a descriptor of a host directory inherited
}

// python runs probes, one process for all of them, and returns what each said.
// As root it has a mount namespace of its own, so that a mount that works
// mounts nothing on this host.
func (c control) python(t *testing.T, env EscapeEnv, ids ...string) map[string][2]string {
	t.Helper()
	inputs := env.inputs()
	inputs["spare_init"], inputs["no_dial"], inputs["hold_s"] = true, true, 0.05
	for k, v := range c.inputs {
		inputs[k] = v
	}
	encoded, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	fmt.Fprintf(&code, "import json as _json, sys\n%s\ninputs = _json.loads(%q)\n", c.before, encoded)
	code.WriteString(source("prelude"))
	families := map[string]bool{}
	for _, id := range ids {
		if f := strings.ToLower(id[:2]); !families[f] {
			families[f] = true
			code.WriteString("\n" + source(f))
		}
	}
	for _, id := range ids {
		fmt.Fprintf(&code, "%sprint('PROBE ' + _json.dumps([%q] + _return), flush=True)\n", call(id), id)
	}
	// The workspace lies beside the canary: on one file system, as a shared
	// workspace would. Both are open to the unprivileged user.
	work, err := os.MkdirTemp(filepath.Dir(env.CanaryFile), "work-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(work, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), systemPython(t), "-I", "-c", "import sys; exec(compile(sys.stdin.read(), 'probes', 'exec'))")
	cmd.Stdin = strings.NewReader(code.String())
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "TMPDIR="+work)
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		attr.Unshareflags = syscall.CLONE_NEWNS
		if c.user {
			attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
	}
	cmd.SysProcAttr = attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if c.leak {
		dir, err := os.Open("/etc")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd.ExtraFiles = []*os.File{dir}
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err = cmd.Run()
	said := map[string][2]string{}
	for line := range strings.Lines(out.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "PROBE "); ok {
			var v [3]string
			if err := json.Unmarshal([]byte(rest), &v); err != nil {
				t.Fatalf("%v: %q", err, rest)
			}
			said[v[0]] = [2]string{v[1], v[2]}
		}
	}
	if len(said) != len(ids) {
		t.Errorf("%s: %d of %d probes spoke (%v): %s", c.name, len(said), len(ids), err, stderr.String())
	}
	return said
}

// systemPython is an interpreter that an unprivileged user can start too.
func systemPython(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	p, err := exec.LookPath("python3")
	if err != nil {
		Require(t, false, "no python3 on PATH")
	}
	return p
}

func smallLimits() sandbox.Limits {
	return sandbox.Limits{Memory: 128 << 20, Tasks: 40, Disk: 8 << 20, Inodes: 500, Shm: 4 << 20, OpenFiles: 64}
}

// The Python that puts each control's world up.
const (
	// Raised by hand, the score may be lowered again to where it was.
	oomRaised = "open('/proc/self/oom_score_adj', 'w').write('100')"

	// A terminal of its own, whose other end is copied to standard output.
	onTerminal = `
import os, pty
_pid, _fd = pty.fork()
if _pid:
    try:
        while True:
            _b = os.read(_fd, 65536)
            if not _b: break
            os.write(1, _b)
    except OSError: pass
    os.waitpid(_pid, 0)
    os._exit(0)`

	// A /proc that has what this kernel's may lack, for this process alone.
	falseProc = `
import ctypes
if ctypes.CDLL(None, use_errno=True).mount(b"none", b"/proc", b"tmpfs", 0, None): raise OSError(ctypes.get_errno(), "mount")
for _n in ("sysrq-trigger", "kcore"): open("/proc/" + _n, "w").close()`
)

// imitated makes the named system calls answer as told, whatever the kernel
// has: it proves that a probe makes the call that it says, by numbers from
// another source. domain, if not 0, makes every socket of this family work.
func imitated(errno int, domain int, numbers ...int) string {
	return fmt.Sprintf(`
import ctypes, struct
def _filter(errno, domain, numbers):
    ret, ld, jeq = 0x06, 0x20, 0x15
    prog = []
    for n in numbers:
        prog += [(ld, 0, 0, 0), (jeq, 0, 1, n), (ret, 0, 0, 0x50000 | errno)]
    if domain:
        prog += [(ld, 0, 0, 0), (jeq, 0, 3, %d), (ld, 0, 0, 16), (jeq, 0, 1, domain), (ret, 0, 0, 0x50000 | errno)]
    prog += [(ret, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in prog))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(prog), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, fprog): raise OSError(ctypes.get_errno(), "seccomp")
_filter(%d, %d, %s)`, syscall.SYS_SOCKET, errno, domain, strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "))
}

// lacking are probes that this very kernel may have no means to let succeed:
// then its answer must say so, and another control stands for them.
var lacking = map[string][]string{
	"KN-03": {"ENOENT"},       // no sysrq: see "a false /proc"
	"SY-07": {"ENOSYS"},       // no kexec: see "imitated calls"
	"SY-08": {"ENOSYS"},       // no modules: see "imitated calls"
	"SY-13": {"ENOSYS"},       // no port access: see "imitated calls"
	"SY-20": {"ENOSYS"},       // no secret memory
	"SY-23": {"ENOSYS"},       // no x32: see "imitated calls"
	"NT-05": {"EAFNOSUPPORT"}, // no AF_ALG: see "imitated sockets"
	"NT-06": {"EAFNOSUPPORT"},
}

// elsewhere are probes that a plain process as root can't let succeed, each
// with the control that does.
var elsewhere = map[string]string{
	"ID-05": "root gains nothing by set-uid: an unprivileged user",
	"PR-09": "a process that was started well inherits nothing: a descriptor leaked",
	"PR-15": "needs CAP_SYS_RESOURCE, which also a root may lack: imitated calls",
	"FS-07": "the host's null device is real: a false one",
	"TT-02": "tests have no terminal: one of its own",
	"LM-15": "judged by the bystander alone",
	"MT-10": "shows nothing where nothing is bound",
}

// Every probe of what a wall denies succeeds where there is no wall, so that a
// denial behind one means something.
func TestProbesCanSucceed(t *testing.T) {
	Require(t, os.Getuid() == 0, "without root, most of what the probes try is refused by the kernel anyway")
	env := Bait(t, smallLimits())
	t.Run("no wall, as root", func(t *testing.T) {
		families, last := map[string][]string{}, []string{}
		for _, p := range Probes() {
			switch f := p.ID[:2]; {
			case f == "PX" || elsewhere[p.ID] != "":
			case p.ID == "MT-05": // takes /proc away from those after it
				last = append(last, p.ID)
			default:
				families[f] = append(families[f], p.ID)
			}
		}
		families["MT"] = append(families["MT"], last...)
		for _, ids := range families {
			got := control{name: ids[0]}.python(t, env, ids...)
			for _, id := range ids {
				succeeds(t, id, got[id])
			}
		}
	})
	x32 := 0x40000000
	for _, c := range []struct {
		control
		want Verdict
		ids  []string
	}{
		{control{name: "no wall, as a user", user: true}, Allowed,
			[]string{"ID-01", "ID-05", "PR-01", "PR-03", "PR-04", "PR-05", "NS-01", "NS-04", "NS-06", "MT-07", "FS-01", "FS-04", "FS-13", "SY-01", "SY-02", "SY-04", "SY-14", "SY-15", "NT-03", "NT-08", "NT-09", "NT-10"}},
		{control{name: "a user is refused what is root's", user: true}, Denied,
			[]string{"ID-03", "ID-04", "PR-06", "PR-12", "MT-01", "MT-03", "MT-08", "SY-05", "SY-09", "SY-11", "SY-21", "NT-01", "NT-02"}},
		{control{name: "a descriptor leaked", leak: true}, Allowed, []string{"PR-09", "MT-07"}},
		{control{name: "a score that was raised by hand", before: oomRaised, user: true}, Allowed, []string{"PR-13"}},
		{control{name: "a false null device", inputs: map[string]any{"dev_null": env.CanaryFile}}, Allowed, []string{"FS-07"}},
		{control{name: "a terminal", before: onTerminal}, Allowed, []string{"TT-02"}},
		{control{name: "a false /proc", before: falseProc}, Allowed, []string{"KN-03", "KN-04"}},
		{control{name: "a closed workspace", user: true, before: "import os; os.chdir('/')"}, Denied, []string{"FS-02", "FS-12"}},
		{control{name: "clone3 answered by EPERM", before: imitated(int(syscall.EPERM), 0, sysClone3)}, Failed, []string{"NS-06"}},
		{control{name: "no threads", before: imitated(int(syscall.EPERM), 0, sysClone3)}, Denied, []string{"NS-07"}},
		{control{name: "imitated calls", before: imitated(0, 0, imitable...)}, Allowed, []string{"SY-07", "SY-08"}},
		{control{name: "imitated ports and x32", before: imitated(0, 0, sysIopl, sysIoperm, x32|syscall.SYS_GETPID, x32|syscall.SYS_GETUID)}, Allowed, []string{"SY-13", "SY-23"}},
		{control{name: "imitated limits", before: imitated(0, 0, sysPrlimit)}, Allowed, []string{"PR-15"}},
		{control{name: "imitated sockets", before: imitated(0, syscall.AF_ALG)}, Allowed, []string{"NT-05"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasSuffix(c.name, "x32") && sysIopl == 0 {
				t.Skip("of x86_64 alone")
			}
			for id, v := range c.python(t, env, c.ids...) {
				t.Logf("%s: %s, %s", id, v[0], v[1])
				if Verdict(v[0]) != c.want {
					t.Errorf("%s: %s, want %s: %s", id, v[0], c.want, v[1])
				}
			}
		})
	}
}

func succeeds(t *testing.T, id string, v [2]string) {
	t.Helper()
	t.Logf("%s: %s, %s", id, v[0], v[1])
	if Verdict(v[0]) == Allowed {
		return
	}
	if why := lacking[id]; Verdict(v[0]) == Denied && len(why) > 0 && strings.Contains(v[1], why[0]) {
		t.Logf("%s: this kernel has no such thing", id)
		return
	}
	if Verdict(v[0]) == None {
		return
	}
	t.Errorf("%s does not succeed without a wall, so that its failure behind one proves nothing: %s, %s", id, v[0], v[1])
}

// The table names every probe once, and each name has its function.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Probes() {
		if seen[p.ID] {
			t.Errorf("%s twice", p.ID)
		}
		seen[p.ID] = true
		def := "def " + strings.ToLower(strings.ReplaceAll(p.ID, "-", "_")) + "():"
		if strings.Count(p.Code, def) != 1 {
			t.Errorf("%s: %q is there %d times", p.ID, def, strings.Count(p.Code, def))
		}
		if p.Try == "" || p.Want == "" {
			t.Errorf("%s is not filled in", p.ID)
		}
	}
	// The families of the list that the wall was specified by.
	for family, n := range map[string]int{"ID": 6, "PR": 14, "NS": 6, "MT": 8, "FS": 9, "KN": 6, "SY": 23, "TT": 2, "NT": 12} {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprintf("%s-%02d", family, i); !seen[id] {
				t.Errorf("%s is missing", id)
			}
		}
	}
}
