package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// srtTool is the srt command as it was found.
type srtTool struct {
	Path    string // absolute
	Dir     string // of its package, which has a helper that runs inside
	Version string
	Env     string // PATH, by which it finds node, bwrap, socat and rg
}

const (
	// oldestSRT is what the wall was made and tried against. Older ones hide less.
	oldestSRT  = "0.0.83"
	oldestNode = "22.12.0" // with an older one, npm silently installs an older srt

	srtInstall = "npm install -g @anthropic-ai/sandbox-runtime@" + oldestSRT + ", with Node " + oldestNode + " or later"

	srtAnswer = 20 * time.Second // for --version
)

// srtHelpers are what srt needs besides Node, with Debian's packages.
var srtHelpers = map[string][][2]string{
	"linux":  {{"bwrap", "bubblewrap"}, {"socat", "socat"}, {"rg", "ripgrep"}, {"bash", "bash"}},
	"darwin": {{"rg", "ripgrep"}, {"bash", "bash"}},
}

// findSRT finds the command, and refuses one that is too old, or lacks something.
func findSRT(ctx context.Context, cfg Config) (srtTool, error) {
	t := srtTool{Path: cfg.srt.Command, Env: cfg.srt.Path}
	if t.Env == "" {
		t.Env = pathOf(cfg.PythonEnv)
	}
	if t.Path == "" {
		var err error
		if t.Path, err = lookIn(t.Env, "srt"); err != nil {
			return t, &LayerError{Layer: layerSRT, Err: err, Remedy: srtInstall}
		}
	}
	var faults, packages []string
	for _, h := range srtHelpers[runtime.GOOS] {
		if _, err := lookIn(t.Env, h[0]); err != nil {
			faults, packages = append(faults, h[0]), append(packages, h[1])
		}
	}
	if len(faults) > 0 {
		return t, &LayerError{Layer: layerSRT, Err: fmt.Errorf("srt needs %s, which PATH does not have", strings.Join(faults, ", ")),
			Remedy: "apt install " + strings.Join(packages, " ")}
	}
	var err error
	if t.Version, err = t.ask(ctx, t.Path, "--version"); err != nil {
		if node, e := lookIn(t.Env, "node"); e == nil {
			if v, e := t.ask(ctx, node, "--version"); e == nil && olderThan(v, oldestNode) {
				err = fmt.Errorf("it needs Node %s, and PATH has %s", oldestNode, v)
			}
		}
		return t, &LayerError{Layer: layerSRT, Err: fmt.Errorf("%s --version: %w", t.Path, err), Remedy: srtInstall}
	}
	if olderThan(t.Version, oldestSRT) {
		return t, &LayerError{Layer: layerSRT, Err: fmt.Errorf("srt %s is older than %s", t.Version, oldestSRT), Remedy: srtInstall}
	}
	real, err := filepath.EvalSymlinks(t.Path)
	if err != nil {
		return t, failed(layerSRT, err)
	}
	t.Dir = filepath.Dir(real) // of one that is a single file
	if filepath.Base(t.Dir) == "dist" {
		t.Dir = filepath.Dir(t.Dir)
	}
	return t, nil
}

// ask runs a program for one line.
func (t srtTool) ask(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, srtAnswer)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = []string{"PATH=" + t.Env, "HOME=/nonexistent"}, "/"
	cmd.SysProcAttr = apartFromUs()
	var errs strings.Builder
	cmd.Stderr = &limitedWriter{to: &errs, left: 500}
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(err, errors.New(strings.TrimSpace(errs.String())))
	}
	return strings.TrimSpace(string(out[:min(len(out), 100)])), nil
}

// limitedWriter takes all and passes on the beginning.
type limitedWriter struct {
	to   *strings.Builder
	left int
}

func (w *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.to.Write(b[:n])
	w.left -= n
	return len(b), nil
}

// pathOf is PATH of an environment.
func pathOf(env []string) string {
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok && path != "" {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// lookIn finds a program in the absolute directories of a PATH.
func lookIn(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("the command %s is not on PATH", name)
}

// olderThan compares versions such as v22.12.0 number by number. What is none is older.
func olderThan(version, than string) bool {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	have, want := strings.Split(version, "."), strings.Split(than, ".")
	for i := range want {
		if i >= len(have) {
			return true
		}
		h, err := strconv.Atoi(have[i])
		w, _ := strconv.Atoi(want[i])
		if err != nil || h < w {
			return true
		}
		if h > w {
			return false
		}
	}
	return false
}
