package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// host is what facts are read from: this machine, or in tests a tree of files with the
// answers of a kernel.
type host struct {
	root     string // where its /proc, /sys and /run lie
	uid      int
	admin    bool // CAP_SYS_ADMIN
	release  string
	landlock func() (int, error)
	seccomp  func() error
}

func thisHost() host {
	return host{
		root: "/", uid: os.Geteuid(), admin: capable(unix.CAP_SYS_ADMIN), release: kernelRelease(),
		landlock: landlockABI, seccomp: seccompFilters,
	}
}

// facts are told in one order. n is nil where it could not be had.
func (h host) facts(n *native) []Fact {
	facts := []Fact{h.userns()}
	for _, ns := range []struct {
		name  string
		files []string
	}{
		{factMountns, []string{"mnt"}}, {factPIDns, []string{"pid"}}, {factNetns, []string{"net"}}, {factOtherns, []string{"ipc", "uts", "cgroup"}},
	} {
		facts = append(facts, h.namespace(ns.name, ns.files...))
	}
	return append(facts, h.ownProc(), h.landlockFact(), h.seccompFact(), h.cgroup(n), h.kernel(), h.server(), h.container())
}

// read is a file's text, trimmed; ok is false where there is none.
func (h host) read(name string) (text string, ok bool) {
	b, err := os.ReadFile(filepath.Join(h.root, name))
	return strings.TrimSpace(string(b)), err == nil
}

func (h host) has(name string) bool {
	_, err := os.Lstat(filepath.Join(h.root, name))
	return err == nil
}

func missing(name, detail, remedy string) Fact { return Fact{name, FactMissing, detail, remedy} }

// userns looks at the settings that refuse user namespaces. What a container's filter
// refuses shows at the first start alone.
func (h host) userns() Fact {
	if !h.has("proc/self/ns/user") {
		return missing(factUserns, "not built into this kernel", "a kernel with CONFIG_USER_NS=y")
	}
	most, ok := h.read("proc/sys/user/max_user_namespaces")
	if ok && most == "0" {
		return missing(factUserns, "user.max_user_namespaces=0", "sysctl -w user.max_user_namespaces=15000")
	}
	if v, ok := h.read("proc/sys/kernel/unprivileged_userns_clone"); ok && v == "0" && !h.admin {
		return missing(factUserns, "kernel.unprivileged_userns_clone=0", "sysctl -w kernel.unprivileged_userns_clone=1")
	}
	if v, ok := h.read("proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && v != "0" && !h.admin {
		if profile := h.profile(); !strings.HasPrefix(profile, "mcp-sandbox") {
			return missing(factUserns, "AppArmor gives them no rights (kernel.apparmor_restrict_unprivileged_userns="+v+", and this program is "+profile+")",
				"install the profile packaging/apparmor/mcp-sandbox, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
		}
	}
	if most == "" {
		most = "without a limit"
	}
	return Fact{factUserns, FactAvailable, "user.max_user_namespaces=" + most, ""}
}

// profile is the AppArmor profile that this program runs under.
func (h host) profile() string {
	for _, name := range []string{"proc/self/attr/apparmor/current", "proc/self/attr/current"} {
		if text, ok := h.read(name); ok && text != "" {
			return strings.TrimRight(text, "\x00\n")
		}
	}
	return "unconfined"
}

func (h host) namespace(name string, files ...string) Fact {
	for _, f := range files {
		if !h.has("proc/self/ns/" + f) {
			return missing(name, "not built into this kernel", "")
		}
	}
	return Fact{name, FactAvailable, "built into this kernel", ""}
}

// ownProc looks whether parts of /proc are covered: the kernel gives a whole one only to
// whom it shows a whole one.
func (h host) ownProc() Fact {
	mounts, ok := h.read("proc/self/mountinfo")
	if !ok {
		return missing(factProc, "there is no /proc", "mount one")
	}
	var covered []string
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at := unescape(f[4])
		// The last is a mount over a directory that is always empty, which hides nothing.
		if below, ok := strings.CutPrefix(at, "/proc/"); ok && below != "sys/fs/binfmt_misc" && !slices.Contains(covered, at) {
			covered = append(covered, at)
		}
	}
	if len(covered) > 0 {
		return missing(factProc, "parts of /proc are covered, so that the kernel gives no fresh one: "+shortened(covered, 4),
			"docker run --security-opt systempaths=unconfined; procMount: Unmasked in Kubernetes")
	}
	return Fact{factProc, FactAvailable, "no part of /proc is covered", ""}
}

// shortened names the first of a list.
func shortened(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

func (h host) landlockFact() Fact {
	abi, err := h.landlock()
	if err != nil {
		return missing(factLandlock, err.Error(), "Linux 6.2 or later, with landlock in the kernel's lsm= parameter; in a container a seccomp profile that allows "+
			"landlock_*, such as packaging/docker/seccomp.json")
	}
	detail := fmt.Sprintf("ABI %d", abi)
	for _, step := range []struct {
		abi  int
		what string
	}{{4, "TCP (4)"}, {6, "signals and abstract sockets (6)"}, {9, "sockets by path (9)"}} {
		if abi < step.abi {
			detail += ", without " + step.what
		}
	}
	return Fact{factLandlock, FactAvailable, detail, ""}
}

func (h host) seccompFact() Fact {
	if err := h.seccomp(); err != nil {
		return missing(factSeccomp, err.Error(), "a kernel with CONFIG_SECCOMP_FILTER=y; in a container a seccomp profile that allows seccomp and prctl")
	}
	return Fact{factSeccomp, FactAvailable, "filters", ""}
}

// seccompFilters reports whether the kernel has filters: with no program at all it
// answers EFAULT then.
func seccompFilters() error {
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0); !errors.Is(err, syscall.EFAULT) {
		return fmt.Errorf("no filters: %v", err)
	}
	_, err := seccompFilter(Policy{})
	return err
}

func (h host) kernel() Fact { return Fact{factKernel, FactInfo, h.release, ""} }

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

// server tells as whom the server runs, and so as whom a guest does.
func (h host) server() Fact {
	detail := ""
	switch {
	case h.uid != 0:
		detail = fmt.Sprintf("user %d; guests too", h.uid)
	case h.admin:
		detail = fmt.Sprintf("root; guests are %d", nobody)
	default:
		detail = fmt.Sprintf("root without CAP_SYS_ADMIN; guests are %d", nobody)
	}
	status, _ := h.read("proc/self/status")
	if n, err := field(status, "NoNewPrivs:"); err == nil && n == 1 {
		detail += "; can gain no privileges (no_new_privs)"
	}
	if profile := h.profile(); profile != "unconfined" {
		detail += "; AppArmor profile " + profile
	}
	return Fact{factServer, FactInfo, detail, ""}
}

// container tells what else may stand between the server and the kernel.
func (h host) container() Fact {
	var signs []string
	for file, what := range map[string]string{"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/var/run/secrets/kubernetes.io": "Kubernetes"} {
		if h.has(file) {
			signs = append(signs, what)
		}
	}
	slices.Sort(signs)
	detail := "no sign of one"
	if len(signs) > 0 {
		detail = strings.Join(signs, ", ")
	}
	status, _ := h.read("proc/self/status")
	if n, err := field(status, "Seccomp:"); err == nil && n == unix.SECCOMP_MODE_FILTER {
		filters := ""
		if n, err := field(status, "Seccomp_filters:"); err == nil {
			filters = " (" + strconv.FormatInt(n, 10) + ")"
		}
		detail += "; a seccomp filter stands over the server" + filters + ", which may refuse what a wall needs"
	}
	return Fact{factContainer, FactInfo, detail, ""}
}
