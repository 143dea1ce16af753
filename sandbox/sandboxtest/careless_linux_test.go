package sandboxtest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// careless is a backend that does what the probes of the family PX look for: it
// believes the first frame that comes, ends the direct child alone, and starts
// the next interpreter in a workspace that the last one has prepared. It is not
// safe for concurrent use.
type careless struct {
	python, script, dir string

	cmd *exec.Cmd
	in  *os.File
	out *os.File
}

var _ sandbox.Session = (*careless)(nil)

const nobody = 65534

func (c *careless) start() error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inR.Close()
	defer outW.Close()
	c.cmd = exec.Command(c.python, c.script)
	c.cmd.Dir = c.dir
	c.cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + c.dir, "PYTHONPATH=" + c.dir}
	c.cmd.ExtraFiles = []*os.File{inR, outW}
	// The probes plant files wherever they may write: nowhere on this machine.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	c.in, c.out = inW, outR
	return c.cmd.Start()
}

func (c *careless) stop() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.in.Close()
		c.out.Close()
		c.cmd = nil
	}
}

func (c *careless) Run(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	res := sandbox.Result{Status: sandbox.StatusOK, State: sandbox.StateKept, Backend: "careless", Code: req.Code}
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return res, err
		}
		res.State = sandbox.StateNew
	}
	body, err := json.Marshal(map[string]any{"code": req.Code, "inputs": req.Inputs})
	if err != nil {
		return res, err
	}
	if _, err := c.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		c.stop()
		return res, err
	}
	_ = c.out.SetReadDeadline(time.Now().Add(2 * time.Second))
	var head [4]byte
	if _, err := io.ReadFull(c.out, head[:]); err != nil {
		c.stop()
		return res, err
	}
	reply := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c.out, reply); err != nil {
		c.stop()
		return res, err
	}
	var v struct {
		Status      sandbox.Status
		Error       string
		Output      json.RawMessage
		ReturnValue json.RawMessage `json:"return_value"`
	}
	if err := json.Unmarshal(reply, &v); err != nil {
		c.stop()
		return res, err
	}
	res.Status, res.Error, res.Output, res.ReturnValue = v.Status, v.Error, v.Output, v.ReturnValue
	res.ExitCode = res.Status.ExitCode()
	return res, nil
}

func (c *careless) Reset(context.Context) error { c.stop(); return nil }

func (c *careless) Close() error { c.stop(); return nil }

// The judge of the family PX finds fault with a backend that deserves it, so
// that its silence about another one means something.
func TestCarelessBackendIsFoundOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("there is no wall around this backend: only root can take away its right to write this machine's files")
	}
	code, err := os.ReadFile("testdata/careless.py")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(open(t), "careless.py") // where nobody can read it, and plant nothing beside it
	if err := os.WriteFile(script, code, 0o644); err != nil {
		t.Fatal(err)
	}
	python := systemPython(t)
	bait := Bait(t, smallLimits())
	// The others pass here too: this backend kills on Close (PX-09), loads no
	// state (PX-15), reads no marker (PX-16), and a takeover that Reset ends
	// (PX-07) or that keeps its promises (PX-21) is no fault.
	caught := []string{"PX-01", "PX-02", "PX-03", "PX-04", "PX-05", "PX-06", "PX-08", "PX-10", "PX-11", "PX-12", "PX-13", "PX-19", "PX-20"}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 2)
	for _, p := range Probes() {
		if !slices.Contains(caught, p.ID) {
			continue
		}
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			dir := open(t)
			if err := os.Chown(dir, nobody, nobody); err != nil {
				t.Error(err)
			}
			env := bait
			env.CanaryValue += p.ID // which marks the processes that it leaves
			got, detail := wreck(t, func(*testing.T) sandbox.Session { return &careless{python: python, script: script, dir: dir} }, nil, p, env)
			t.Logf("%s: %s, %.300s", p.ID, got, detail)
			if got != Allowed {
				t.Errorf("%s (%s) finds no fault with a careless backend: %s, %s", p.ID, p.Try, got, detail)
			}
			for _, pid := range hostProcesses("probe-" + env.CanaryValue) {
				if f, err := os.FindProcess(pid); err == nil {
					_ = f.Kill()
				}
			}
		})
	}
	wg.Wait()
}

// open makes a directory that others can reach, as they can't reach t.TempDir.
func open(t *testing.T) string {
	dir, err := os.MkdirTemp("", "careless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A planted link would be followed by a server that does not use os.Root.
func TestPlantedLinkWouldBeFollowed(t *testing.T) {
	env := Bait(t, smallLimits())
	dir := t.TempDir()
	if err := os.Symlink(env.CanaryFile, filepath.Join(dir, "probe-link")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "probe-link")); err != nil || string(b) != env.CanaryValue {
		t.Fatalf("the bait can't be read through a link: %v", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := &Fake{}
	s, err := f.Open(t.Context(), sandbox.Spec{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if fault := links(&fakeFiles{&fakeSession{fake: f, root: root}}, env); fault != "" {
		t.Error(fault)
	}
	if fault := links(s, env); fault != "" {
		t.Error(fault)
	}
	if strings.Contains(dir, env.CanaryValue) {
		t.Error("the directory gives the canary away")
	}
}
