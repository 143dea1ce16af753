package srt

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mcp-sandbox/sandbox/kernel"
)

// Interpreter is the Python that sessions run.
type Interpreter struct {
	Path     string   // sys.executable, absolute
	Version  string   // such as 3.11.7
	Packages []string // installed distributions, "name version", sorted
	Prefixes []string // directories it needs to see, besides /usr
	base     string   // the interpreter that a virtual environment is made of; Path if it is none
	pip      string   // the wheel of pip that it brings along; "" = none
	code     []string // directories that it executes code of
	compiled map[string][]byte
}

//go:embed interpreter.py
var interpreterProbe string

const interpreterTimeout = 30 * time.Second

// safeInterpreter is findInterpreter for cfg. It refuses a Python that code inside
// could have changed: it is run outside the wall here, and what the next session
// mounts depends on where its prefixes lead.
func safeInterpreter(ctx context.Context, cfg Config) (Interpreter, error) {
	name := cfg.Python
	if name == "" {
		name = "python3"
	}
	if path, err := exec.LookPath(name); err == nil { // or findInterpreter tells
		for _, p := range beforeItRuns(path) {
			if err := cfg.outOfReach(p); err != nil {
				return Interpreter{}, err
			}
		}
	}
	i, err := findInterpreter(ctx, cfg.Python, cfg.PythonEnv)
	for _, p := range append(slices.Clone(i.Prefixes), i.code...) {
		if err == nil {
			err = cfg.outOfReach(p)
		}
	}
	return i, err
}

// outOfReach refuses what the server runs or reads outside the wall, if code inside can
// change it.
func (c *Config) outOfReach(path string) error {
	const mend = "keep the interpreter or virtual environment, and the workspace and writable mounts, apart"
	writable := c.writable()
	if within(path, writable...) {
		return fmt.Errorf("%s lies where code inside can write, and the server runs it outside: %s", path, mend)
	}
	for _, w := range writable {
		if within(w, path) {
			return fmt.Errorf("%s, which code inside can write, lies in %s, which the interpreter is made of: %s", w, path, mend)
		}
	}
	return nil
}

// beforeItRuns is what decides what a program at path executes: itself, what it
// is a link to, and where a virtual environment says that its Python is at home.
func beforeItRuns(path string) []string {
	dir, _ := resolved(filepath.Dir(path))
	real, _ := resolved(path)
	all := []string{filepath.Join(dir, filepath.Base(path)), real}
	for _, bin := range []string{dir, filepath.Dir(real)} {
		for _, folder := range []string{bin, filepath.Dir(bin)} {
			settings, err := os.ReadFile(filepath.Join(folder, "pyvenv.cfg"))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(settings)) {
				key, value, _ := strings.Cut(line, "=")
				if strings.EqualFold(strings.TrimSpace(key), "home") {
					home, _ := resolved(strings.TrimSpace(value))
					all = append(all, home)
				}
			}
		}
	}
	return all
}

// findInterpreter runs python, or else python3 of PATH, to learn what it really
// is: what stands on PATH may be a shell script that chooses one. In the same
// run the kernel's sources are compiled by it, once for all sessions.
//
// env is the environment of that run, which is outside the wall: a version
// manager's shim needs its user's HOME and PATH to choose.
func findInterpreter(ctx context.Context, python string, env []string) (Interpreter, error) {
	name := python
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path) // it is run in another directory
	}
	if err != nil {
		if python == "" {
			return Interpreter{}, errors.New("python3 is not on PATH: install it (Debian, Ubuntu: apt install python3; Fedora: dnf install python3), or name one by --python")
		}
		return Interpreter{}, fmt.Errorf("no interpreter at %q: %w", python, err)
	}
	ctx, cancel := context.WithTimeout(ctx, interpreterTimeout)
	defer cancel()
	in, err := json.Marshal(kernel.Sources())
	if err != nil {
		return Interpreter{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-I", "-S", "-c", interpreterProbe)
	cmd.Dir = "/"
	cmd.Env = append([]string{}, env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = apartFromUs() // a shim may have children, and they end with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // who holds its output is still in its group
		_ = cmd.Cancel()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return Interpreter{}, fmt.Errorf("%s does not run: %w%s", path, err, lastLine(stderr.String()))
	}
	return decodeInterpreter(path, stdout.Bytes())
}

func decodeInterpreter(path string, out []byte) (Interpreter, error) {
	var told struct {
		Executable     string            `json:"executable"`
		Base           string            `json:"base"`
		Pip            string            `json:"pip"`
		Implementation string            `json:"implementation"`
		Version        [3]int            `json:"version"`
		Prefixes       []string          `json:"prefixes"`
		Code           []string          `json:"code"`
		Packages       []string          `json:"packages"`
		Compiled       map[string]string `json:"compiled"`
	}
	if err := json.Unmarshal(out, &told); err != nil {
		return Interpreter{}, fmt.Errorf("%s does not answer like Python 3: %w", path, err)
	}
	if told.Implementation != "cpython" || told.Version[0] != 3 || told.Version[1] < 9 {
		return Interpreter{}, fmt.Errorf("%s is %s %d.%d; CPython 3.9 or later is needed", path, told.Implementation, told.Version[0], told.Version[1])
	}
	i := Interpreter{
		Path:     told.Executable,
		base:     cmp.Or(told.Base, told.Executable),
		pip:      told.Pip,
		Version:  fmt.Sprintf("%d.%d.%d", told.Version[0], told.Version[1], told.Version[2]),
		Packages: told.Packages,
		code:     told.Code,
		compiled: map[string][]byte{},
	}
	for name, text := range told.Compiled {
		code, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return Interpreter{}, fmt.Errorf("%s: compiled %s: %w", path, name, err)
		}
		i.compiled[name] = code
	}
	slices.Sort(i.Packages)
	var err error
	i.Prefixes, err = prefixes(told.Prefixes)
	return i, err
}

// prefixes returns the directories that a wall must show besides those it
// always shows. One that would show a person's whole home, or the whole
// machine, is refused.
func prefixes(dirs []string) ([]string, error) {
	dirs = outermost(dirs)
	home, err := os.UserHomeDir()
	for _, d := range dirs {
		if slices.Contains(tooBroad, d) || within(d, kernelDirs...) || err == nil && within(home, d) {
			return nil, fmt.Errorf("the interpreter's prefix is %s, and %w: use a virtual environment or another --python", d, ErrBroad)
		}
	}
	return dirs, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if s == "" {
		return ""
	}
	return ": " + s
}
