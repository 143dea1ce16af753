package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt/egress"
)

// settingsText is a file with these entries besides those that must be there.
func settingsText(network, filesystem, top string) string {
	return fmt.Sprintf(`{"network": {"allowedDomains": [], "deniedDomains": []%s},
		"filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []%s}%s}`, network, filesystem, top)
}

func TestParseSettings(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string // of the error; none = there is none
	}{
		{"the least", settingsText("", "", ""), nil},
		{"nothing", "", []string{"no JSON"}},
		{"no object", "[]", []string{"the file: expected an object"}},
		{"keys that are missing", "{}", []string{"network: the key is missing", "filesystem.denyWrite: the key is missing"}},
		{"two faults, each by its path", settingsText(`, "allow": []`, `, "denyWrites": []`, ""), []string{"network.allow: no such key", "filesystem.denyWrites: no such key"}},
		{"at the top", settingsText("", "", `, "sandbox": true`), []string{"sandbox: no such key"}},
		{"twice", settingsText(`, "allowedDomains": ["x.org"]`, "", ""), []string{"network.allowedDomains: the key stands there twice"}},
		{"a list that is none", `{"network": {"allowedDomains": "x", "deniedDomains": null}, "filesystem": {"denyRead": [1], "allowWrite": [""], "denyWrite": [{"path": "x"}]}}`,
			[]string{"network.allowedDomains: expected a list", "network.deniedDomains: expected a list", "filesystem.denyRead[0]: expected a path",
				"filesystem.allowWrite[0]: is empty", "filesystem.denyWrite[0]: expected a path"}},
		{"a literal", strings.Replace(settingsText("", "", ""), `"denyRead": []`, `"denyRead": [{"path": "a*b", "literal": true}]`, 1), nil},
		{"a literal that is none", strings.Replace(settingsText("", "", ""), `"denyRead": []`, `"denyRead": [{"path": "a", "literal": false}, {"path": "a", "literal": true, "x": 1}]`, 1),
			[]string{"filesystem.denyRead[0].literal: expected true", "filesystem.denyRead[1].x: no such key"}},
		{"another's home", strings.Replace(settingsText("", "", ""), `"denyRead": []`, `"denyRead": ["~root/x"]`, 1), []string{"denyRead[0]: the homes of others"}},
		{"credentials", settingsText("", "", `, "credentials": {"files": [{"path": "~/.netrc", "mode": "deny"}], "envVars": [{"name": "TOKEN", "mode": "hide"}]}`),
			[]string{`credentials.envVars[0].mode: expected "deny" or "mask"`}},
		{"a range", settingsText(`, "deniedResolvedAddresses": ["10.1.0.0/16", "x"]`, "", ""), []string{"deniedResolvedAddresses[1]: expected an address"}},
		{"too much", strings.Repeat(" ", MaxSettings+1), []string{"more than 1 MiB"}},
	} {
		_, err := ParseSettings([]byte(tt.text), "/home/me", "/work")
		if len(tt.want) == 0 && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", tt.name, err, want)
			}
		}
	}
}

// Every key is either what walls do in any case, or honoured by some, or refused by name.
func TestSettingsAsk(t *testing.T) {
	for text, walls := range map[string][]string{
		settingsText(`, "allowLocalBinding": true`, "", ""):                                {WallNative, WallSRT},
		settingsText(`, "allowLocalBinding": false, "strictAllowlist": true`, "", ""):      {WallNative, WallSRT, WallLandlock},
		settingsText(`, "requireHostMatch": true`, "", ""):                                 {WallNative, WallSRT, WallLandlock},
		settingsText(`, "allowUnixSockets": [], "allowMachLookup": []`, "", ""):            {WallNative, WallSRT, WallLandlock},
		settingsText(`, "allowUnixSockets": ["/run/docker.sock"]`, "", ""):                 {},
		settingsText(`, "allowAllUnixSockets": true`, "", ""):                              {},
		settingsText(`, "httpProxyPort": 3128`, "", ""):                                    {},
		settingsText(`, "tlsTerminate": {}`, "", ""):                                       {},
		settingsText(`, "deniedResolvedAddresses": ["10.0.0.0/8", "fd00::1"]`, "", ""):     {WallNative, WallSRT, WallLandlock},
		settingsText(`, "deniedResolvedAddresses": ["8.0.0.0/8"]`, "", ""):                 {},
		settingsText("", `, "disabled": true`, ""):                                         {},
		settingsText("", `, "disabled": false, "allowGitConfig": true`, ""):                {WallNative, WallSRT, WallLandlock},
		settingsText("", `, "allowGitConfig": false`, ""):                                  {},
		settingsText("", "", `, "enableWeakerNestedSandbox": true`):                        {},
		settingsText("", "", `, "ignoreViolations": {"*": ["/x"]}`):                        {},
		settingsText("", "", `, "windows": {"backend": "mxc"}, "git": {}`):                 {},
		settingsText("", "", `, "git": {"safeDirectories": ["/x"]}`):                       {},
		settingsText("", "", `, "credentials": {"envVars": [{"name":"T","mode":"mask"}]}`): {},
		settingsText("", "", `, "bwrapPath": "/usr/bin/bwrap"`):                            {},
	} {
		s, err := ParseSettings([]byte(text), "/home/me", "/work")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, wall := range []string{WallNative, WallSRT, WallLandlock} {
			err := Config{Settings: s}.unhonoured(wall, nil)
			if can := slices.Contains(walls, wall); can != (err == nil) {
				t.Errorf("%s: the wall %s: %v", text, wall, err)
			}
		}
	}
}

// settle applies settings to a server's configuration.
func settle(t *testing.T, filesystem, home, dir string, cfg Config) (Config, error) {
	t.Helper()
	text := `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": ` + filesystem + `}`
	s, err := ParseSettings([]byte(text), home, dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Settings, cfg.Limits = s, sandbox.Limits{}
	cfg, err = cfg.resolve()
	shown := []string{"/usr", "/etc/localtime"}
	// No wall gives a part of a directory: what one of them refuses, all do.
	for _, wall := range []string{WallSRT, WallLandlock} {
		native, other := cfg.unhonoured(WallNative, shown), cfg.unhonoured(wall, shown)
		if fmt.Sprint(other) != strings.ReplaceAll(fmt.Sprint(native), "the wall "+WallNative, "the wall "+wall) {
			t.Errorf("%s: the wall %s says %v, and native %v", filesystem, wall, other, native)
		}
	}
	return cfg, errors.Join(err, cfg.unhonoured(WallNative, shown))
}

func TestSettingsOfFiles(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(base, "tmp"))
	home, work := filepath.Join(base, "home"), filepath.Join(base, "home", "work")
	for _, dir := range []string{"tmp", "home/.ssh", "home/.cache", "home/work/src", "home/work/build", "data"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(work, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(base, "data")
	files := func(denyRead, allowRead, allowWrite, denyWrite string) string {
		return fmt.Sprintf(`{"denyRead": [%s], "allowRead": [%s], "allowWrite": [%s], "denyWrite": [%s]}`, denyRead, allowRead, allowWrite, denyWrite)
	}
	at := Config{Workspace: work}
	for _, tt := range []struct {
		name, text string
		cfg        Config
		readOnly   bool     // the workspace
		mounts     []string // base at its end; ":rw" after what can be written
		want       []string // of the error
	}{
		{name: "nothing can be written", text: files("", "", "", ""), cfg: at, readOnly: true},
		{name: "the workspace as .", text: files("", "", `"."`, ""), cfg: at},
		{name: "by a tilde, and a tail", text: files("", "", `"~/work/**"`, ""), cfg: at},
		{name: "by a link", text: files("", "", `"`+base+`/link"`, ""), cfg: at},
		{name: "denied again", text: files("", "", `"."`, `"~"`), cfg: at, readOnly: true},
		{name: "a part is denied", text: files("", "", `"."`, `"build"`), cfg: at, want: []string{"filesystem.denyWrite[0]: the wall native can't honour it: build is about a part of"}},
		{name: "a part that is not there", text: files("", "", `"."`, `".env"`), cfg: at, want: []string{"denyWrite[0]"}},
		{name: "a pattern in a part", text: files("", "", `"."`, `"**/*.key"`), cfg: at, want: []string{"denyWrite[0]"}},
		{name: "a pattern elsewhere", text: files("", "", `"."`, `"~/.ssh/*"`), cfg: at},
		{name: "a part is allowed", text: files("", "", `"src"`, ""), cfg: at, readOnly: true, want: []string{"allowWrite[0]: it lies in the workspace"}},
		{name: "another directory", text: files("", "", `".", "`+data+`", "/tmp"`, ""), cfg: at, mounts: []string{"/data:rw"}},
		{name: "another one, denied", text: files("", "", `"`+data+`"`, `"`+data+`"`), mounts: []string{"/data"}},
		{name: "one that is not there", text: files("", "", `"`+base+`/none"`, ""), want: []string{"allowWrite[0]", "no such file"}},
		{name: "a home", text: files("", "", `"/home"`, ""), want: []string{"allowWrite[0]", "too much of this machine"}},
		{name: "a pattern can't be allowed", text: files("", "", `"*.txt"`, ""), want: []string{"allowWrite[0]: a pattern"}},
		{name: "a mount of the operator's", text: files("", "", "", ""), cfg: Config{Mounts: []Mount{{Host: data, Guest: "/d", Writable: true}}}, mounts: []string{"/data"}},
		{name: "reading", text: files("", `"`+data+`", "/usr/lib", "src"`, `"."`, ""), cfg: at, mounts: []string{"/data"}},
		{name: "what nobody sees is denied", text: files(`"~/.ssh", "~/.aws", "~/**/*.pem"`, "", "", ""), mounts: nil},
		{name: "the workspace is denied", text: files(`"~"`, "", `"."`, ""), cfg: at, want: []string{"denyRead[0]: the wall native can't honour it: ~ would hide"}},
		{name: "and allowed again", text: files(`"~"`, `"."`, `"."`, ""), cfg: at},
		{name: "a part of it is denied", text: files(`".env"`, `"."`, `"."`, ""), cfg: at, want: []string{"denyRead[0]"}},
		{name: "by a pattern", text: files(`"**/.env"`, `"."`, `"."`, ""), cfg: at, want: []string{"denyRead[0]"}},
		{name: "not a pattern", text: files(`{"path": "../*", "literal": true}`, "", `"."`, ""), cfg: at},
		{name: "all", text: files(`"/"`, "", "", ""), want: []string{"/ would hide /usr"}},
		{name: "of the system", text: files(`"/etc"`, "", "", ""), want: []string{"/etc would hide /etc/localtime"}},
	} {
		cfg, err := settle(t, tt.text, home, work, tt.cfg)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", tt.name, err, want)
			}
		}
		if len(tt.want) > 0 {
			continue
		}
		var mounts []string
		for _, m := range cfg.Mounts {
			text := strings.TrimPrefix(m.Host, base)
			if m.Writable {
				text += ":rw"
			}
			mounts = append(mounts, text)
		}
		if err != nil || cfg.WorkspaceReadOnly != tt.readOnly || !slices.Equal(mounts, tt.mounts) {
			t.Errorf("%s: read-only %v, mounts %v, %v", tt.name, cfg.WorkspaceReadOnly, mounts, err)
		}
	}
}

// The domains become rules; a flag gives nothing that they don't.
func TestSettingsNetwork(t *testing.T) {
	for _, tt := range []struct{ allowed, denied, flags, want string }{
		{`"x.org"`, ``, "", "x.org"},
		{`"x.org", "*.y.org:8443"`, `"a.y.org"`, "x.org", "x.org, *.y.org:8443, but not a.y.org"},
		{``, ``, "", "none"},
		{`"x.org"`, `"*"`, "", "none"},
		{`"x.org"`, ``, "z.org", "error: z.org, which --allow-domain names"},
		{``, ``, "z.org", "error: z.org, which --allow-domain names"},
		{`"x.org"`, `"*:22"`, "", `error: "*:22"`},
		{`"https://x.org"`, ``, "", `error: "https://x.org"`},
	} {
		s, err := ParseSettings(fmt.Appendf(nil, `{"network": {"allowedDomains": [%s], "deniedDomains": [%s]}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}`, tt.allowed, tt.denied), "/h", "/d")
		if err != nil {
			t.Fatal(err)
		}
		var flags egress.Rules
		if tt.flags != "" {
			if flags, err = egress.ParseRules([]string{tt.flags}, nil); err != nil {
				t.Fatal(err)
			}
		}
		rules, err := s.Network(flags)
		if want, ok := strings.CutPrefix(tt.want, "error: "); ok {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, %v", tt, rules, err)
			}
			continue
		}
		again, e := s.Network(rules)
		if err != nil || e != nil || rules.String() != tt.want || again.String() != tt.want {
			t.Errorf("%+v: %v, then %v; %v, %v", tt, rules, again, err, e)
		}
	}
}

// Hostile bytes: an error or settings, no panic; and what was accepted gives no directory that
// no entry names.
func FuzzParseSettings(f *testing.F) {
	f.Add([]byte(settingsText("", "", "")))
	f.Add([]byte(settingsText(`, "tlsTerminate": {"excludeDomains": []}, "deniedResolvedAddresses": ["::/0"]`, `, "allowRead": ["~", {"path": "[", "literal": true}, "a[**"]`, `, "credentials": {}`)))
	f.Add([]byte(`{"network": {"allowedDomains": ["*.x.org:443"], "deniedDomains": ["*"]}, "filesystem": {"denyRead": ["/**"], "allowWrite": ["../..", "/tmp"], "denyWrite": ["~/**"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSettings(data, "/nonexistent/home", "/nonexistent/dir")
		if err != nil {
			return
		}
		cfg := Config{Settings: s, Workspace: "/nonexistent/dir"}
		if err := cfg.applySettings(); err != nil {
			return
		}
		for _, p := range slices.Concat(s.denyRead, s.denyWrite) {
			if at := s.find(p); !clean(at) {
				t.Fatalf("%q leads to %q", p.text, at)
			}
		}
		if !cfg.WorkspaceReadOnly && !covered("/nonexistent/dir", mustPermit(t, s)) {
			t.Fatal("the workspace can be written, and no entry says so")
		}
	})
}

func mustPermit(t *testing.T, s Settings) []permit {
	all, err := s.permitted(s.allowWrite)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
