package srt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// All may be read by default, so all is denied, and what is shown is named.
func TestSRTSettings(t *testing.T) {
	w := &srtWall{exe: "/opt/mcp-sandbox", dir: "/run/s/wall", tool: srtTool{Dir: "/opt/srt"}}
	p := Policy{
		Workspace: Mount{Host: "/home/me/job", Guest: "/home/me/job", Writable: true},
		Mounts:    []Mount{{Host: "/data", Guest: "/data"}, {Host: "/out", Guest: "/out", Writable: true}},
		ReadOnly:  []string{"/opt/py"}, Tmp: "/run/s/wall/1/tmp",
	}
	s, err := w.settings(p, "/run/s/wall/1")
	if err != nil {
		t.Fatal(err)
	}
	f := s.Filesystem
	if runtime.GOOS == "linux" && !slices.Equal(f.DenyRead, []string{"/", "/sys"}) {
		t.Errorf("not read: %q", f.DenyRead)
	}
	rest := slices.DeleteFunc(slices.Clone(f.AllowRead), func(path string) bool { return slices.Contains(present(systemReads), path) })
	want := []string{"/opt/py", "/opt/mcp-sandbox", "/opt/srt", "/run/s/wall/kernel", "/run/s/wall/1/pipes", "/run/s/wall/1/tmp", "/home/me/job", "/data", "/out"}
	if !slices.Equal(rest, want) {
		t.Errorf("read besides the system: %q, want %q", rest, want)
	}
	if want := []string{"/run/s/wall/1/tmp", "/run/s/wall/1/pipes", "/home/me/job", "/out"}; !slices.Equal(f.AllowWrite, want) {
		t.Errorf("written: %q, want %q", f.AllowWrite, want)
	}
	if !slices.Equal(f.DenyWrite, []string{"/data"}) || len(s.Network.AllowedDomains) > 0 {
		t.Errorf("%+v", s)
	}
	for _, path := range present(systemReads) {
		if within(path, "/etc/shadow", "/etc/passwd", "/home", "/root", "/run", "/tmp") {
			t.Errorf("%s is shown", path)
		}
	}

	file := filepath.Join(t.TempDir(), "settings.json")
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	info, e := os.Stat(file)
	if err != nil || e != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, %v", info.Mode(), err, e)
	}
	var keys map[string]map[string][]string
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for section, names := range map[string][]string{"network": {"allowedDomains", "deniedDomains"}, "filesystem": {"denyRead", "allowRead", "allowWrite", "denyWrite"}} {
		for _, name := range names { // one that is left out would have srt's default
			if keys[section][name] == nil {
				t.Errorf("%s.%s is not there: %s", section, name, text)
			}
		}
	}
	p.Workspace.Host = "/home/me/[a]"
	if _, err := w.settings(p, "/run/s/wall/1"); err == nil || !strings.Contains(err.Error(), "pattern") {
		t.Errorf("a name that is a pattern: %v", err)
	}
}

func TestSRTAdmits(t *testing.T) {
	w := &srtWall{}
	for want, cfg := range map[string]Config{
		"":                      {Workspace: "/w", Mounts: []Mount{{Host: "/data", Guest: "/data"}}},
		"--mount /data:/data":   {Mounts: []Mount{{Host: "/data", Guest: "/d"}}},
		"lies in the workspace": {Workspace: "/w", Mounts: []Mount{{Host: "/w/a", Guest: "/w/a"}}},
		"in the other":          {Mounts: []Mount{{Host: "/a", Guest: "/a"}, {Host: "/a/b", Guest: "/a/b"}}},
		"pattern":               {Workspace: "/w*"},
	} {
		err := w.admits(cfg, []string{"/opt/py"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// Each thing that srt lacks is named, with what to do.
func TestSRTTool(t *testing.T) {
	write := func(dir, name, says string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := func(dir string) {
		for _, h := range srtHelpers[runtime.GOOS] {
			write(dir, h[0], "")
		}
	}
	for name, tt := range map[string]struct {
		make func(dir string)
		want []string
	}{
		"no srt":     {all, []string{"srt is not on PATH", "npm install"}},
		"no helpers": {func(dir string) { write(dir, "srt", "echo 0.0.83") }, []string{"rg", "ripgrep"}},
		"an old one": {func(dir string) { all(dir); write(dir, "srt", "echo 0.0.78") }, []string{"0.0.78 is older than 0.0.83", "npm install"}},
		"an old node": {func(dir string) {
			all(dir)
			write(dir, "srt", "echo SyntaxError >&2; exit 1")
			write(dir, "node", "echo v20.19.0")
		}, []string{"needs Node 22.12.0", "v20.19.0"}},
		"a broken one":  {func(dir string) { all(dir); write(dir, "srt", "echo oh >&2; exit 1") }, []string{"oh"}},
		"the right one": {func(dir string) { all(dir); write(dir, "srt", "echo 0.1.0") }, nil},
	} {
		dir := t.TempDir()
		tt.make(dir)
		got, err := findSRT(t.Context(), Config{srt: srtConfig{Path: dir}})
		if len(tt.want) == 0 {
			if err != nil || got.Version != "0.1.0" || got.Path != filepath.Join(dir, "srt") {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		var layer *LayerError
		if !errors.As(err, &layer) || layer.Layer != layerSRT {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", name, err, part)
			}
		}
	}
	for _, v := range []struct {
		version, than string
		older         bool
	}{{"v22.12.0", "22.12.0", false}, {"22.11.9", "22.12.0", true}, {"24.0", "22.12.0", false}, {"22", "22.12.0", true}, {"23.0.0", "22.12.0", false}, {"0.0.83-beta", "0.0.83", false}, {"x", "1", true}, {"", "1", true}} {
		if olderThan(v.version, v.than) != v.older {
			t.Errorf("%q older than %q: %v", v.version, v.than, !v.older)
		}
	}
}

// Of walls that can't be raised each says why; and what was asked for is never weakened.
func TestNoWall(t *testing.T) {
	err := noWall([]string{"native", "srt"}, []error{infra(failed(layerUserns, errors.New("none"))), infra(failed(layerSRT, errors.New("no command")))})
	var known *sandbox.Error
	if !errors.As(err, &known) || known.Layer != layerUserns || known.Status != sandbox.StatusInfra {
		t.Errorf("%#v", err)
	}
	for _, part := range []string{"the wall native: userns: none", "the wall srt: srt: no command"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if got := (Config{Wall: WallLandlock}).candidates(); !slices.Equal(got, []string{WallLandlock}) {
		t.Errorf("by name: %v", got)
	}
	if got := (Config{}).candidates(); slices.Contains(got, WallLandlock) || !slices.Contains(got, WallSRT) {
		t.Errorf("auto: %v", got)
	}
	if CheckWall("none") == nil || CheckWall("") != nil || CheckWall("srt") != nil {
		t.Error("names of walls")
	}
}
