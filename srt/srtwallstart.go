package srt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The verbs of be-child for this wall.
const (
	verbKeep   = "keep"   // outside: the parent of srt, which ends all that srt leaves
	verbInside = "inside" // inside: closes what srt leaves open, and becomes the guest's program
)

// What lies in the directory of a cage.
const (
	cageSettings = "settings.json"
	cageLog      = "log"    // what srt says
	cageEmpty    = "empty"  // srt's working directory, where it may leave files of no size
	cageOwn      = "t"      // srt's temporary files; short, since sockets lie in it
	cageReport   = "report" // a pipe
)

// insideConfig is all the child inside is told, over its standard input, where nobody else
// reads: behind it is a bash, which is given its commands otherwise.
type insideConfig struct {
	Policy    Policy
	Path, Dir string
	Args, Env []string
	Streams   [2]string // named pipes for descriptors 1 and 2; "" = /dev/null
	Extra     []string  // named pipes for descriptors 3, 4, …; those that it reads end in readEnd
	Reads     []bool    // which of them it reads
	OOMFD     bool
	Proxy     bool // the server's proxy is to listen inside
	Report    string
	Kernel    string // the directory of the kernel's files
}

// start implements wall.
func (w *srtWall) start(ctx context.Context, p Policy, c command) (_ *cage, err error) {
	p = p.withDefaults()
	dir := filepath.Dir(p.Tmp)
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(dir))
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if c.Dir == "" {
		c.Dir = p.Tmp
	}
	if err := errors.Join(p.validate(), w.allows(p, c)); err != nil {
		return nil, failed(layerPolicy, err)
	}
	if err := w.same(p); err != nil {
		return nil, failed(layerWorkspace, err)
	}
	if err := w.furnish(dir, c); err != nil {
		return nil, failed(layerSRT, err)
	}
	settings, err := w.settings(p, dir)
	if err == nil {
		err = settings.write(filepath.Join(dir, cageSettings))
	}
	if err != nil {
		return nil, failed(layerSRT, err)
	}
	group, err := w.cgroups.create(p)
	if err != nil {
		return nil, failed(layerCgroup, err)
	}
	s := &srtStart{wall: w, dir: dir, group: group, command: c, config: insideConfig{
		Policy: p, Path: c.Path, Dir: c.Dir, Args: c.Args, Env: c.Env, OOMFD: c.OOMFD,
		Proxy:  !p.Network.Empty(),
		Report: filepath.Join(dir, "pipes", cageReport), Kernel: filepath.Join(w.dir, "kernel"),
	}}
	if err := s.name(); err != nil {
		return nil, errors.Join(failed(layerExec, err), group.remove())
	}
	cage, err := s.run(ctx)
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return cage, nil
}

// allows returns all that a command asks for and this wall can't give.
func (w *srtWall) allows(p Policy, c command) error {
	var faults []error
	if p.Tmp == "" || !within(p.Tmp, w.dir) {
		faults = append(faults, errors.New("a cage without a directory of its own"))
	}
	if !clean(c.Path) || !clean(c.Dir) {
		faults = append(faults, fmt.Errorf("path %q, directory %q: not absolute, clean paths", c.Path, c.Dir))
	}
	for _, m := range p.shown() {
		if m.Guest != m.Host {
			faults = append(faults, fmt.Errorf("%s can't be seen at %s", m.Host, m.Guest))
		}
	}
	if c.Sockets != nil {
		faults = append(faults, errors.New("sockets of the guest's network can't be had behind the wall srt"))
	}
	for name := range c.Files {
		if !within(name, filepath.Join(w.dir, "kernel")) {
			faults = append(faults, fmt.Errorf("file %q: not in the directory of the kernel's files", name))
		}
	}
	return errors.Join(faults...)
}

// same makes sure that what lies at the places to be shown, and at this binary's, is what
// is meant.
func (w *srtWall) same(p Policy) error {
	if is, err := os.Stat(w.exe); err != nil || !os.SameFile(is, w.is) {
		return errors.Join(fmt.Errorf("this binary, %s: %w", w.exe, errReplaced), err)
	}
	if err := plainDirectory(p.Workspace.Host); err != nil {
		return err
	}
	for _, m := range p.shown() {
		if m.held == nil {
			continue
		}
		saw, err := m.held.Stat()
		if err != nil {
			return err
		}
		if is, err := os.Lstat(m.Host); err != nil || !os.SameFile(saw, is) {
			return errors.Join(fmt.Errorf("%s: %w", m.Host, errReplaced), err)
		}
	}
	return nil
}

// furnish makes the directory of a cage, and what all of them share.
func (w *srtWall) furnish(dir string, c command) error {
	for _, name := range []string{"tmp", "pipes", cageEmpty, cageOwn} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, content := range c.Files {
		switch was, ok := w.kernel[path]; {
		case ok && was == string(content):
			continue
		case ok:
			return fmt.Errorf("%s is not to change", path)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o400); err != nil {
			return err
		}
		w.kernel[path] = string(content)
	}
	return os.MkdirAll(filepath.Join(w.dir, "kernel"), 0o700)
}

// srtStart is one start under way.
type srtStart struct {
	wall    *srtWall
	dir     string
	group   *cgroup
	command command
	config  insideConfig
}

// name takes the paths of the pipes, and which way they go.
func (s *srtStart) name() error {
	pipes := filepath.Join(s.dir, "pipes")
	one := func(f *os.File) (path string, reads bool, err error) {
		if filepath.Dir(f.Name()) != pipes {
			return "", false, fmt.Errorf("%s is no pipe of this cage's", f.Name())
		}
		reads, err = opensForReading(f)
		return f.Name(), reads, err
	}
	for i, f := range []*os.File{s.command.Stdout, s.command.Stderr} {
		if f == nil {
			continue
		}
		path, _, err := one(f)
		if err != nil {
			return err
		}
		s.config.Streams[i] = path
	}
	for _, f := range s.command.Extra {
		path, reads, err := one(f)
		if err != nil {
			return err
		}
		s.config.Extra, s.config.Reads = append(s.config.Extra, path), append(s.config.Reads, reads)
	}
	return nil
}

// run starts the keeper, which starts srt, and sees it through until be-child has executed
// the guest's program inside. On an error all is dead.
func (s *srtStart) run(ctx context.Context) (_ *cage, err error) {
	report, held, err := namedPipe(s.config.Report, true)
	if err != nil {
		return nil, failed(layerExec, err)
	}
	defer report.Close()
	defer held.Close() // an end of this one's own, or a read would find no writer and end
	cmd, config, e, err := s.spawn()
	if err != nil {
		return nil, failed(layerExec, err)
	}
	defer config.Close()
	cage := cageOf(cmd, kin{}, e, s.group, s.config.Policy.Memory)
	defer func() {
		if err != nil {
			err = errors.Join(err, cage.Kill(), e.clear())
		}
	}()
	// Neither a hang nor an early end must hold the caller.
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case <-started:
			return
		case <-ctx.Done():
		case <-cage.Done():
		}
		_ = config.SetWriteDeadline(time.Unix(1, 0)) // a closed one needs none
		_ = report.SetReadDeadline(time.Unix(1, 0))
	}()
	fail := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := s.send(config); err != nil {
		return nil, fail(s.early(cage, err))
	}
	number, socket, err := s.hello(report)
	if err != nil {
		return nil, fail(s.early(cage, err))
	}
	if err := s.place(cage, e, number); err != nil {
		return nil, fail(err)
	}
	if socket != 0 {
		if err := s.openProxy(cage, e, number, socket); err != nil {
			return nil, fail(failed(layerNetwork, err))
		}
	}
	held.Close()
	if _, err := config.Write([]byte{goAhead}); err != nil {
		return nil, fail(s.early(cage, err))
	}
	if err := s.receive(report, cage); err != nil {
		return nil, fail(err)
	}
	return cage, removeAll(filepath.Join(s.dir, "pipes")) // the guest can't reach them; and now nobody
}

// spawn starts the keeper. What it returns besides is the writing end of the standard input
// that srt hands on.
func (s *srtStart) spawn() (_ *exec.Cmd, config *os.File, _ *srtEnds, err error) {
	configR, config, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer configR.Close()
	lifeR, life, err := os.Pipe()
	if err != nil {
		config.Close()
		return nil, nil, nil, err
	}
	defer lifeR.Close()
	log, err := os.OpenFile(filepath.Join(s.dir, cageLog), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		defer log.Close()
		w := s.wall
		cmd := exec.Command(w.exe, "be-child", verbKeep,
			w.tool.Path, "-s", filepath.Join(s.dir, cageSettings), "--", w.exe, "be-child", verbInside)
		own := filepath.Join(s.dir, cageOwn)
		cmd.Env = []string{"PATH=" + w.tool.Env, "HOME=" + own, "TMPDIR=" + own, "LANG=C.UTF-8"}
		cmd.Dir = filepath.Join(s.dir, cageEmpty)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = configR, log, log
		cmd.ExtraFiles = []*os.File{lifeR}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the keeper outlives us by as long as it takes
		if err = cmd.Start(); err == nil {
			return cmd, config, &srtEnds{dir: s.dir, keeper: cmd.Process.Pid, life: life}, nil
		}
	}
	config.Close()
	life.Close()
	return nil, nil, nil, err
}

func (s *srtStart) send(w *os.File) error {
	text, err := json.Marshal(s.config)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// hello is the number of the child inside, as it knows it, and that of the descriptor on which
// the proxy is to listen; 0 = it has none.
func (s *srtStart) hello(report *os.File) (number, socket int, err error) {
	var b [8]byte
	if _, err := io.ReadFull(report, b[:]); err != nil {
		return 0, 0, err
	}
	return int(binary.BigEndian.Uint32(b[:])), int(binary.BigEndian.Uint32(b[4:])), nil
}

// place finds the child inside among the processes of this host, and puts it into its
// control group.
func (s *srtStart) place(c *cage, e *srtEnds, number int) error {
	k, err := findInside(e.keeper, number, s.wall.exe)
	if err != nil {
		return failed(layerSRT, err)
	}
	for _, m := range s.config.Policy.shown() {
		if m.Writable {
			k.disks = append(k.disks, m.Guest)
		}
	}
	k.disks = append(k.disks, s.config.Policy.Tmp)
	c.kin = k
	if err := e.take(k); err != nil {
		return failed(layerSRT, err)
	}
	return failed(layerCgroup, s.group.place(k.first))
}

// receive reads the child's report to its end.
func (s *srtStart) receive(r *os.File, c *cage) error {
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return s.early(c, err)
	}
	text, isReady := cutReady(text)
	if isReady && len(text) == 0 {
		return nil // the exec closed the report
	}
	var report childReport
	if json.Unmarshal(text, &report) == nil && report.Layer != "" {
		return &LayerError{Layer: report.Layer, Remedy: report.Remedy, Err: report.err()}
	}
	return s.early(c, errors.New("be-child ended early"))
}

// early tells why there is no child inside: srt's own words are the best reason.
func (s *srtStart) early(c *cage, cause error) error {
	_ = c.Kill() // what it has to say is said
	said, _ := os.ReadFile(filepath.Join(s.dir, cageLog))
	text := strings.TrimSpace(string(said[:min(len(said), 1000)]))
	if text == "" {
		return failed(layerSRT, cause)
	}
	e := &LayerError{Layer: layerSRT, Err: fmt.Errorf("srt said: %s", text)}
	if strings.Contains(text, "bwrap:") {
		e.Remedy = namespaceRemedy()
	}
	return e
}

// opensForReading reports which end of a pipe f is.
func opensForReading(f *os.File) (bool, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var flags int
	var failed error
	if err := raw.Control(func(fd uintptr) { flags, failed = unix.FcntlInt(fd, unix.F_GETFL, 0) }); err != nil {
		return false, err
	}
	return flags&unix.O_ACCMODE == unix.O_RDONLY, failed
}
