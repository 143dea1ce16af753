package srt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// pipWithoutChildren runs pip such that it can start no process. A package that comes as
// source, be it deep among what others need, can't run its code then: pip builds in a
// process of its own. pip's option --only-binary does not hold for what is named by its
// address. What pip else asks other programs, such as what system this is, it does without.
const pipWithoutChildren = `
import sys
def refuse(event, args, refused=("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")):
    if event in refused:
        raise PermissionError(1, "packages that come as source are not built here")
sys.addaudithook(refuse)
` + pipOfWheel

// pipOfWheel runs the pip whose wheel is the first argument. To install that pip first
// would take longer than most packages, and code inside has no use for it.
const pipOfWheel = `
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
`

// install makes the environment's directory and puts the packages into it. The interpreter
// below it runs without its start-up files, which a guest may be able to write; the new one
// has none until the installer, the last that runs in it, has done its work.
func (m *making) install(ctx context.Context) (tool string, err error) {
	uv, err := m.uv()
	if err != nil {
		return "", err
	}
	if uv == "" && m.base.pip == "" {
		return "", &LayerError{Layer: layerPackages, Err: fmt.Errorf("%s has no pip", m.base.base),
			Remedy: "apt install python3-venv, or install uv"}
	}
	if err := m.run(ctx, "venv", []string{m.base.base, "-I", "-S", "-m", "venv", "--without-pip", m.dir}); err != nil {
		return "", err
	}
	files, err := m.files()
	if err != nil {
		return "", err
	}
	tool, pip := "pip", pipWithoutChildren
	if m.DangerouslyBuild {
		pip = pipOfWheel
	}
	argv := []string{m.python(), "-I", "-c", pip, m.base.pip, "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile"}
	if uv != "" {
		tool, argv = "uv", []string{uv, "pip", "install", "--python", m.python(), "--no-progress", "--color", "never"}
	}
	if !m.DangerouslyBuild {
		argv = append(argv, "--only-binary", ":all:")
	}
	if err := m.run(ctx, tool, append(argv, files...)); err != nil {
		if !m.DangerouslyBuild && aboutSource(err.Error()) {
			err = &LayerError{Layer: layerPackages, Err: err, Remedy: "a package that is there only as source is not installed, " +
				"since that would run its code outside the wall, as the server's user: name another version, or allow it by --dangerously-build-packages"}
		}
		return "", err
	}
	// The interpreter can't do it later: it sees the environment read-only.
	m.Progress("compiling")
	compile := []string{m.base.base, "-I", "-S", "-m", "compileall", "-q", "-j", "0", filepath.Join(m.dir, "lib")}
	if err := m.run(ctx, "compileall", compile); ctx.Err() != nil {
		return "", err
	} // what can't be compiled, a template for instance, is no fault
	return tool, nil
}

// files are the installer's arguments for what is asked.
func (m *making) files() ([]string, error) {
	path, err := m.file("requirements.txt", m.asked.lines)
	args := []string{"-r", path}
	if err == nil && len(m.asked.constraints) > 0 {
		path, err = m.file("constraints.txt", m.asked.constraints)
		args = append(args, "-c", path)
	}
	return args, err
}

// uv is the uv of PATH; "" = there is none.
func (m *making) uv() (string, error) {
	path, err := lookIn(pathOf(m.Variables), "uv")
	if err != nil {
		return "", nil
	}
	for _, p := range beforeItRuns(path) {
		if err := m.cfg.outOfReach(p); err != nil {
			return "", err
		}
	}
	return path, nil
}

// aboutSource reports whether an installer's words are those for a package without a wheel.
func aboutSource(said string) bool {
	return slices.ContainsFunc([]string{
		"not built here", "No matching distribution found", "is disabled", "no wheels", "has no usable wheels", "only-binary",
	}, func(words string) bool { return strings.Contains(said, words) })
}

// installersOwn are the variables that are meant for pip and uv, or that both need. Others
// of theirs could make them install elsewhere, or more.
var installersOwn = []string{
	"HOME", "PATH", "LANG", "LC_ALL", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "NETRC",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
	"PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST", "PIP_CERT",
	"PIP_CLIENT_CERT", "PIP_PROXY", "PIP_RETRIES", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_CACHE_DIR", "PIP_NO_CACHE_DIR",
	"UV_CONFIG_FILE", "UV_NO_CONFIG", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX", "UV_FIND_LINKS",
	"UV_INDEX_STRATEGY", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_HTTP_TIMEOUT", "UV_CACHE_DIR", "UV_NO_CACHE",
	"UV_LINK_MODE", "UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS",
}

// environment is what the installer gets of the server's variables.
func (m *making) environment() []string {
	var env []string
	for _, v := range m.Variables {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(installersOwn, name) || slices.Contains(m.asked.variables, name) {
			env = append(env, v)
		}
	}
	return append(env, "TMPDIR="+m.work(), "PYTHONIOENCODING=utf-8")
}

// run runs one step to its end. Its lines are progress, and the last ones the error.
func (m *making) run(ctx context.Context, what string, argv []string) error {
	said := &told{tell: m.Progress}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = m.work(), m.environment()
	cmd.Stdout, cmd.Stderr = said, said // one writer: os/exec does not call it from two goroutines
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = apartFromUs()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = cmd.Cancel()
	}
	said.end()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && len(said.last) > 0:
		return fmt.Errorf("%s: %w:\n%s", what, err, strings.Join(said.last, "\n"))
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// told passes a program's lines on, one by one, and remembers the last. What is in them is
// partly the word of an index: nothing in it controls a terminal.
type told struct {
	tell func(string)
	rest []byte
	last []string
}

const (
	toldLine = 500 // bytes of a line
	toldLast = 15  // lines
)

// Write implements io.Writer.
func (t *told) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			t.rest = append(t.rest, rest[:min(len(rest), max(0, toldLine-len(t.rest)))]...)
			break
		}
		t.rest = append(t.rest, rest[:min(i, max(0, toldLine-len(t.rest)))]...)
		t.end()
		rest = rest[i+1:]
	}
	return len(b), nil
}

// end is the end of a line.
func (t *told) end() {
	line := strings.TrimRight(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, string(t.rest)), " ")
	t.rest = t.rest[:0]
	if line == "" {
		return
	}
	t.tell(line)
	if t.last = append(t.last, line); len(t.last) > toldLast {
		t.last = t.last[1:]
	}
}
