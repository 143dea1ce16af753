package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// contestant is one way to have a Python that remembers. All of them run the
// same interpreter with the same packages.
type contestant interface {
	// open starts a session with an expression, and returns when that is answered.
	open(expression string) (contender, answer, error)
	pid() int // of what serves all sessions; 0 = nothing does
	end() error
}

// contender is a session of a contestant.
type contender interface {
	run(code string) (answer, error)
	// kill has code end its own interpreter by SIGKILL, gives an expression to what
	// comes after it, and times both together.
	kill(expression string) (answer, error)
	stored() int64 // bytes in memory that belong to no process
	close() error
}

// answer is the last expression's value, a whole number, and how long a caller waited
// for it.
type answer struct {
	value string
	took  time.Duration
}

const killItself = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"

// ours is the product as it is shipped, over stdio; what is timed begins with the
// writing of a request and ends with a decoded result.
type ours struct{ server *peer }

func newOurs(binary, python, checkpoint string) (contestant, error) {
	p, err := startPeer(exec.Command(binary, "serve", "--log-level", "error", "--python", python, "--checkpoint", checkpoint))
	if err != nil {
		return nil, err
	}
	return ours{p}, nil
}

func (o ours) pid() int   { return o.server.cmd.Process.Pid }
func (o ours) end() error { return o.server.end() }

func (o ours) open(expression string) (contender, answer, error) {
	begin := time.Now()
	r, err := o.tool("execute_python", map[string]any{"session_id": "new", "code": expression})
	a := answer{string(r.Output), time.Since(begin)}
	if err == nil && (!r.Success || r.State != "new") {
		err = fmt.Errorf("%+v", r)
	}
	return oursOpen{o, r.SessionID}, a, err
}

func (o ours) tool(name string, arguments map[string]any) (reply, error) {
	var a struct {
		Result struct {
			StructuredContent *reply `json:"structuredContent"`
		} `json:"result"`
		Error any `json:"error"`
	}
	err := o.server.ask(map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}}, &a)
	if err == nil && a.Result.StructuredContent == nil {
		err = fmt.Errorf("%s: %v", name, a.Error)
	}
	if err != nil {
		return reply{}, err
	}
	return *a.Result.StructuredContent, nil
}

type oursOpen struct {
	ours
	id string
}

func (o oursOpen) call(code string) (reply, error) {
	return o.tool("execute_python", map[string]any{"session_id": o.id, "code": code, "timeout_s": 280})
}

func (o oursOpen) run(code string) (answer, error) {
	begin := time.Now()
	r, err := o.call(code)
	a := answer{string(r.Output), time.Since(begin)}
	if err == nil && !r.Success {
		err = fmt.Errorf("%+v", r)
	}
	return a, err
}

func (o oursOpen) kill(expression string) (answer, error) {
	begin := time.Now()
	died, err := o.call(killItself)
	if err == nil && died.Status != "crash" {
		err = fmt.Errorf("%+v", died)
	}
	if err != nil {
		return answer{}, err
	}
	a, err := o.run(expression)
	a.took = time.Since(begin)
	return a, err
}

func (o oursOpen) stored() int64 { return 0 }

func (o oursOpen) close() error {
	_, err := o.tool("reset_session", map[string]any{"session_id": o.id, "close": true})
	return err
}

// ipykernel is driven by test/rivals/kernels.py, which says how, and which times
// the calls itself.
type ipykernel struct {
	driver *peer
	opened *atomic.Int64
}

func newIPykernel(python, scratch string) (contestant, error) {
	script, err := filepath.Abs("../../test/rivals/kernels.py")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, "-B", script)
	cmd.Dir = scratch
	cmd.Env = append(os.Environ(), "JUPYTER_RUNTIME_DIR="+scratch, "JUPYTER_CONFIG_DIR="+scratch, "JUPYTER_DATA_DIR="+scratch, "IPYTHONDIR="+scratch)
	p, err := startPeer(cmd)
	if err != nil {
		return nil, err
	}
	return ipykernel{p, new(atomic.Int64)}, nil
}

func (k ipykernel) pid() int   { return k.driver.cmd.Process.Pid }
func (k ipykernel) end() error { return k.driver.end() }

func (k ipykernel) open(expression string) (contender, answer, error) {
	s := ipykernelOpen{k, k.opened.Add(1)}
	a, err := s.do("open", expression)
	return s, a, err
}

type ipykernelOpen struct {
	ipykernel
	session int64
}

func (k ipykernelOpen) do(op, code string) (answer, error) {
	var a struct {
		Value   string  `json:"value"`
		Seconds float64 `json:"seconds"`
		Error   string  `json:"error"`
	}
	err := k.driver.ask(map[string]any{"op": op, "session": k.session, "code": code}, &a)
	if err == nil && a.Error != "" {
		err = fmt.Errorf("ipykernel: %s", a.Error)
	}
	return answer{a.Value, time.Duration(a.Seconds * float64(time.Second))}, err
}

func (k ipykernelOpen) run(code string) (answer, error)        { return k.do("run_code", code) }
func (k ipykernelOpen) kill(expression string) (answer, error) { return k.do("kill", expression) }

func (k ipykernelOpen) stored() int64 { return 0 }

func (k ipykernelOpen) close() error {
	_, err := k.do("close", "")
	return err
}

// repickler starts a fresh interpreter behind bubblewrap for each call. Nothing is
// between this benchmark and bubblewrap, the runner is compiled beforehand, and the
// namespace lies in memory, where /dev/shm has room for it.
type repickler struct {
	how, python, packages string
	runner                string // its directory
	states                string // directory of the namespaces
}

// newRepickler compiles the runner. how is plain or apart, as test/rivals/repickle.py says.
func newRepickler(how, python, scratch, states string) (contestant, error) {
	const compile = `import py_compile, sys, sysconfig
py_compile.compile(sys.argv[1], cfile=sys.argv[2], doraise=True)
print(sysconfig.get_path("purelib"), end="")`
	packages, err := exec.Command(python, "-c", compile, "../../test/rivals/repickle.py", filepath.Join(scratch, "repickle.pyc")).Output()
	if err != nil {
		return nil, err
	}
	return repickler{how, python, string(packages), scratch, states}, nil
}

func (r repickler) pid() int   { return 0 }
func (r repickler) end() error { return nil }

func (r repickler) open(expression string) (contender, answer, error) {
	dir, err := os.MkdirTemp(r.states, r.how)
	if err != nil {
		return nil, answer{}, err
	}
	s := repicklerOpen{r, dir}
	a, err := s.run(expression)
	return s, a, err
}

type repicklerOpen struct {
	repickler
	dir string
}

func (r repicklerOpen) start(code string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), peerPatience)
	defer cancel()
	// The wall has what ours has in namespaces: no network, no other processes, a
	// read-only root, a private /tmp, and one directory to write to.
	cmd := exec.CommandContext(ctx, "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--bind", r.dir, "/tmp/state", "--ro-bind", r.runner, "/tmp/run", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
		r.python, "-I", "-S", "/tmp/run/repickle.pyc", r.how, "/tmp/state/pickle", r.packages)
	cmd.Stdin = strings.NewReader(code)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("re-pickling: %w\n%s", err, stderr.String())
	}
	return out, err
}

func (r repicklerOpen) run(code string) (answer, error) {
	begin := time.Now()
	out, err := r.start(code)
	return answer{string(out), time.Since(begin)}, err
}

func (r repicklerOpen) kill(expression string) (answer, error) {
	begin := time.Now()
	_, err := r.start(killItself)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 128+int(syscall.SIGKILL) {
		return answer{}, fmt.Errorf("code that kills its interpreter: %w", err)
	}
	a, err := r.run(expression)
	a.took = time.Since(begin)
	return a, err
}

func (r repicklerOpen) stored() int64 {
	var total int64
	files, _ := filepath.Glob(filepath.Join(r.dir, "*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			total += (info.Size() + 4095) &^ 4095 // whole pages
		}
	}
	return total
}

func (r repicklerOpen) close() error { return os.RemoveAll(r.dir) }
