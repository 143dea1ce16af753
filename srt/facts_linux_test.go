package srt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plain is a machine on which all is well, as an ordinary user meets it.
func plain() map[string]string {
	return map[string]string{
		"proc/self/ns/user": "", "proc/self/ns/mnt": "", "proc/self/ns/pid": "", "proc/self/ns/net": "",
		"proc/self/ns/ipc": "", "proc/self/ns/uts": "", "proc/self/ns/cgroup": "",
		"proc/sys/user/max_user_namespaces": "1000\n",
		"proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw\n23 22 0:22 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n" +
			"30 27 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"proc/self/cgroup":                            "0::/user.slice\n",
		"proc/self/status":                            "NoNewPrivs:\t0\nSeccomp:\t0\n",
		"proc/self/attr/current":                      "unconfined\n",
		"run/systemd/system/x":                        "",
		"sys/fs/cgroup/user.slice/unknown":            "",
		"sys/fs/cgroup/user.slice/cgroup.controllers": "cpu memory pids\n",
	}
}

// What a host says of itself is told, and with each fault what to do.
func TestFacts(t *testing.T) {
	t.Parallel()
	docker := "22 27 0:21 / /proc rw - proc proc rw\n31 22 0:31 / /proc/kcore rw - tmpfs tmpfs rw\n32 22 0:31 / /proc/asound ro - tmpfs tmpfs rw\n"
	for _, c := range []struct {
		name         string
		change       map[string]string // "" removes a file; "-" leaves it empty
		as           func(*host)
		fact         string
		state        FactState
		says, remedy string
	}{
		{"all is well", nil, nil, factUserns, FactAvailable, "max_user_namespaces=1000", ""},
		{"all is well", nil, nil, factNetns, FactAvailable, "built", ""},
		{"all is well", nil, nil, factProc, FactAvailable, "no part", ""},
		{"all is well", nil, nil, factLandlock, FactAvailable, "ABI 7, without sockets by path (9)", ""},
		{"all is well", nil, nil, factSeccomp, FactAvailable, "filters", ""},
		{"all is well", nil, nil, factServer, FactInfo, "user 1000; guests too", ""},
		{"all is well", nil, nil, factContainer, FactInfo, "no sign of one", ""},
		{"v2 without delegation", nil, nil, factCgroup, FactMissing, "v2 at /sys/fs/cgroup/user.slice with cpu, memory, pids", "systemd-run --user --scope -p Delegate=yes"},
		{"of root", nil, func(h *host) { h.uid, h.admin = 0, true }, factCgroup, FactMissing, "v2", "mcp-sandbox.service"},
		{"v1", map[string]string{
			"proc/self/cgroup":    "4:memory:/a\n3:cpu,cpuacct:/\n8:pids:/\n1:name=systemd:/\n",
			"proc/self/mountinfo": "40 30 0:40 / /sys/fs/cgroup/memory rw - cgroup c rw,memory\n41 30 0:41 / /sys/fs/cgroup/pids rw - cgroup c rw,pids\n",
		}, nil, factCgroup, FactMissing, "v1 with memory, pids;", "systemd"},
		{"no cgroups", map[string]string{"proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw\n", "run/systemd/system/x": ""}, nil, factCgroup, FactMissing, "none is mounted", "watchdog"},
		{"not built in", map[string]string{"proc/self/ns/user": ""}, nil, factUserns, FactMissing, "not built", "CONFIG_USER_NS"},
		{"not built in", map[string]string{"proc/self/ns/uts": ""}, nil, factOtherns, FactMissing, "not built", ""},
		{"none allowed", map[string]string{"proc/sys/user/max_user_namespaces": "0\n"}, nil, factUserns, FactMissing, "max_user_namespaces=0", "sysctl -w user.max_user_namespaces="},
		{"Debian's switch", map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, nil, factUserns, FactMissing, "unprivileged_userns_clone=0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"Debian's switch, of root", map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, func(h *host) { h.uid, h.admin = 0, true }, factUserns, FactAvailable, "", ""},
		{"Ubuntu", map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, nil, factUserns, FactMissing, "this program is unconfined", "packaging/apparmor/mcp-sandbox"},
		{"Ubuntu with the profile", map[string]string{
			"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/apparmor/current": "mcp-sandbox (unconfined)\n",
		}, nil, factUserns, FactAvailable, "", ""},
		{"Ubuntu, of root", map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, func(h *host) { h.uid, h.admin = 0, true }, factUserns, FactAvailable, "", ""},
		{"Docker's /proc", map[string]string{"proc/self/mountinfo": docker, ".dockerenv": "-"}, nil, factProc, FactMissing, "/proc/kcore, /proc/asound", "systempaths=unconfined"},
		{"Docker's filter", map[string]string{"proc/self/status": "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n", ".dockerenv": "-"}, nil, factContainer, FactInfo, "Docker; a seccomp filter stands over the server (1)", ""},
		{"no_new_privs", map[string]string{"proc/self/status": "NoNewPrivs:\t1\n"}, nil, factServer, FactInfo, "no_new_privs", ""},
		{"root in a container", nil, func(h *host) { h.uid = 0 }, factServer, FactInfo, "root without CAP_SYS_ADMIN", ""},
		{"no Landlock", nil, func(h *host) { h.landlock = func() (int, error) { return 0, errors.New("off") } }, factLandlock, FactMissing, "off", "lsm="},
		{"no seccomp", nil, func(h *host) { h.seccomp = func() error { return errors.New("none") } }, factSeccomp, FactMissing, "none", "CONFIG_SECCOMP_FILTER"},
	} {
		t.Run(c.name+", "+c.fact, func(t *testing.T) {
			t.Parallel()
			files := plain()
			for name, text := range c.change {
				if files[name] = strings.TrimSuffix(text, "-"); text == "" {
					delete(files, name)
				}
			}
			h := host{root: written(t, files), uid: 1000, landlock: func() (int, error) { return 7, nil }, seccomp: func() error { return nil }}
			if c.as != nil {
				c.as(&h)
			}
			facts := h.facts(&native{memory: "memory: RLIMIT_DATA and watchdog"})
			i := slices.IndexFunc(facts, func(f Fact) bool { return f.Name == c.fact })
			if i < 0 {
				t.Fatalf("no %s in %v", c.fact, facts)
			}
			f := facts[i]
			if f.State != c.state || !strings.Contains(f.Detail, c.says) || !strings.Contains(f.Remedy, c.remedy) || c.remedy == "" && f.Remedy != "" {
				t.Errorf("%+v; want %s, %q, %q", f, c.state, c.says, c.remedy)
			}
		})
	}
}

// This very machine is told too, whatever it is.
func TestFactsOfThisHost(t *testing.T) {
	for _, f := range Facts() {
		t.Logf("%s: %s: %s", f.Name, f.State, f.Detail)
		if f.Detail == "" || f.State == FactActive {
			t.Errorf("%+v", f)
		}
	}
}

// What is active must be seen to be: a guest that stands in the server's own namespaces,
// or keeps a right, proves nothing.
func TestTestimony(t *testing.T) {
	t.Parallel()
	all := []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}
	ours := func(name string) string { return name + ":[1]" }
	good := func() testimony {
		g := testimony{
			Status:     map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000", "CapPrm": "0", "CapInh": "0", "CapAmb": "0"},
			Namespaces: map[string]string{}, Landlock: "holds", UID: 1000, Processes: []int{1, 2, 3},
		}
		for _, n := range all {
			g.Namespaces[n] = n + ":[2]"
		}
		return g
	}
	names := func(t testimony) (names []string) {
		for _, f := range t.facts(ours) {
			names = append(names, f.Name)
		}
		return names
	}
	if got := names(good()); len(got) != 9 {
		t.Errorf("%q", got)
	}
	for name, c := range map[string]struct {
		worsen func(*testimony)
		lacks  string
	}{
		"the server's user namespace":  {func(g *testimony) { g.Namespaces["user"] = "user:[1]" }, factUserns},
		"the server's network":         {func(g *testimony) { g.Namespaces["net"] = "net:[1]" }, factNetns},
		"the server's host name":       {func(g *testimony) { g.Namespaces["uts"] = "uts:[1]" }, factOtherns},
		"no word of mounts":            {func(g *testimony) { delete(g.Namespaces, "mnt") }, factMountns},
		"the host's processes":         {func(g *testimony) { g.Processes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9} }, factProc},
		"a /proc without PID 1":        {func(g *testimony) { g.Processes = nil }, factProc},
		"the server's PIDs, own /proc": {func(g *testimony) { g.Namespaces["pid"] = "pid:[1]" }, factProc},
		"a capability":                 {func(g *testimony) { g.Status["CapEff"] = "0000000000200000" }, factIdentity},
		"privileges to be gained":      {func(g *testimony) { g.Status["NoNewPrivs"] = "0" }, factIdentity},
		"root":                         {func(g *testimony) { g.UID = 0 }, factIdentity},
		"no word of privileges":        {func(g *testimony) { g.Status = nil }, factIdentity},
		"no filter":                    {func(g *testimony) { g.Status["Seccomp"] = "0" }, factSeccomp},
		"no Landlock":                  {func(g *testimony) { g.Landlock = "" }, factLandlock},
	} {
		g := good()
		c.worsen(&g)
		if slices.Contains(names(g), c.lacks) {
			t.Errorf("%s: %s is called active", name, c.lacks)
		}
	}
}

// A wall proves what it is made of: the native one everything, whoever runs the server.
func TestProve(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		l, err := New(t.Context(), Config{Wall: WallNative, native: testNative()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		facts, err := l.Prove(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range facts {
			names = append(names, f.Name)
			if f.State != FactActive {
				t.Errorf("%+v", f)
			}
		}
		want := []string{factUserns, factMountns, factPIDns, factNetns, factOtherns, factProc, factIdentity, factLandlock, factSeccomp, factRlimits, factWatchdog}
		if l.wall.limitsMemory() {
			want[len(want)-1] = factCgroup
		}
		if !slices.Equal(names, want) {
			t.Errorf("%q; want %q", names, want)
		}
		if left, _ := os.ReadDir(filepath.Join(l.runtime.path)); len(left) > 1 {
			t.Errorf("left behind: %v", left)
		}
	})
}
