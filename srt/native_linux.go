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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nativeConfig says how cages are made. The zero value is right for every server.
type nativeConfig struct {
	Executable string // what is started as be-child; "" is this very binary
	HostID     int    // the guest's user and group on the host, when run by root; 0 is 65534, nobody
	Proc       string // where the server's own control groups are looked up; "" is /proc/self
}

// native makes cages: PID namespaces behind the wall of this package. It is safe for
// concurrent use. Close it after the last cage.
type native struct {
	exe      string
	uid, gid int      // the guest's, on the host
	root     bool     // the server may act for the guest's id, which is another than its own
	detaches bool     // the server may make mounts; an ordinary user's child makes them itself
	cgroups  *cgroups // nil where no group can be made
	memory   string   // how memory is bounded, in words
	idmaps   idmaps
}

// newNative checks what can be checked without starting anything. Whether namespaces are
// to be had shows at the first start.
func newNative(cfg nativeConfig) (*native, error) {
	n := &native{exe: cfg.Executable, uid: os.Geteuid(), gid: os.Getegid()}
	if n.exe == "" {
		n.exe = "/proc/self/exe" // also right when the file on disk has been replaced
	}
	if n.root = n.uid == 0; n.root {
		n.uid = cfg.HostID
		if n.uid == 0 {
			n.uid = nobody
		}
		n.gid = n.uid
		n.detaches = capable(unix.CAP_SYS_ADMIN) // a container's root may not be
	}
	if _, err := landlockABI(); err != nil {
		return nil, failed(layerLandlock, err)
	}
	if _, err := seccompFilter(Policy{}); err != nil {
		return nil, err
	}
	proc := cfg.Proc
	if proc == "" {
		proc = "/proc/self"
	}
	n.cgroups, n.memory = findCgroups(proc)
	return n, nil
}

// limitsMemory reports whether control groups bound a session's memory.
func (n *native) limitsMemory() bool { return n.cgroups != nil }

// hostIDs are the user and group to whom a directory that the server makes for a guest must
// belong. For an ordinary user's server they are its own.
func (n *native) hostIDs() (uid, gid int) { return n.uid, n.gid }

// close gives back what is kept between starts.
func (n *native) close() error { return n.idmaps.close() }

// start raises the wall and executes c behind it. It returns when the program has been
// executed, or with the [LayerError] that says why not; then nothing is left of the
// attempt. ctx bounds the start alone. The files of c stay the caller's.
func (n *native) start(ctx context.Context, p Policy, c command) (_ *cage, err error) {
	p = p.withDefaults()
	if c.Dir == "" {
		c.Dir = "/tmp"
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(p.atWorkspace(), p.validate(), c.validate(p)); err != nil {
		return nil, failed(layerPolicy, err)
	}
	p.countsSegments = n.cgroups != nil
	filter, err := seccompFilter(p)
	if err != nil {
		return nil, err
	}
	sources, mounts, err := n.sources(p, childExtraFD+len(c.Extra))
	defer closeAll(mounts)
	if err != nil {
		return nil, err
	}
	if err := n.giveStreams(c); err != nil {
		return nil, failed(layerExec, err)
	}
	group, err := n.cgroups.create(p)
	if err != nil {
		return nil, failed(layerCgroup, err)
	}
	socketsFD := 0
	if c.Sockets != nil {
		socketsFD = childExtraFD + len(c.Extra) + len(mounts)
		mounts = append(mounts, c.Sockets) // which stays the caller's
	}
	var door *os.File // over it comes the socket on which the proxy will listen
	proxyFD := 0
	if !p.Network.Empty() {
		here, there, err := unixPair("proxy")
		if err != nil {
			return nil, errors.Join(failed(layerNetwork, err), group.remove())
		}
		defer closeAll([]*os.File{here, there})
		door, proxyFD = here, childExtraFD+len(c.Extra)+len(mounts)
		mounts = append(mounts, there)
	}
	s := &starting{native: n, group: group, command: c, mounts: mounts, config: childConfig{
		Policy: p, Sources: sources, Files: c.Files, Filter: filter,
		DropGroups: n.root, Path: c.Path, Dir: c.Dir, Args: c.Args, Env: c.Env, Extra: len(c.Extra), OOMFD: c.OOMFD,
		SocketsFD: socketsFD, ProxyFD: proxyFD,
	}}
	cage, err := s.run(ctx)
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	if door != nil {
		if err := cage.openProxy(door, p.Network, c.Proxy); err != nil {
			return nil, errors.Join(failed(layerNetwork, err), cage.Close())
		}
	}
	return cage, nil
}

// giveStreams lets the guest open /dev/stdout and /dev/stderr by name, as shell scripts
// do: a pipe belongs to who made it, and that is root where the server is.
func (n *native) giveStreams(c command) error {
	for _, f := range []*os.File{c.Stdout, c.Stderr} {
		if f == nil || !n.root {
			continue
		}
		if fi, err := f.Stat(); err != nil {
			return err
		} else if fi.Mode()&os.ModeNamedPipe != 0 {
			if err := f.Chown(n.uid, n.gid); err != nil {
				return err
			}
		}
	}
	return nil
}

// starting is one start under way.
type starting struct {
	native  *native
	group   *cgroup
	command command
	mounts  []*os.File
	config  childConfig
}

// run starts the child and sees it through until it has executed the guest's program. On
// an error the child is dead.
func (s *starting) run(ctx context.Context) (_ *cage, err error) {
	configR, configW, err := os.Pipe()
	if err != nil {
		return nil, failed(layerExec, err)
	}
	defer closeAll([]*os.File{configR, configW})
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, failed(layerExec, err)
	}
	defer closeAll([]*os.File{reportR, reportW})

	cmd, placed, err := s.spawn(configR, reportW)
	if err != nil {
		return nil, err
	}
	cage := nativeCage(cmd, s.group, s.config.Policy.Memory)
	defer func() {
		if err != nil {
			err = errors.Join(err, cage.Kill())
		}
	}()
	configR.Close()
	reportW.Close() // or the end of the report would never come

	// A child that hangs in the kernel must not hold the caller beyond ctx.
	stop := context.AfterFunc(ctx, func() {
		configW.SetDeadline(time.Unix(1, 0))
		reportR.SetDeadline(time.Unix(1, 0))
	})
	defer stop()

	// An ordinary user may not give up groups, so the guest keeps the user's; root's go.
	if err := mapIDs(cage.Pid(), idMap{guestID, s.native.uid}, idMap{guestID, s.native.gid}, s.native.root); err != nil {
		return nil, userns(err)
	}
	// Placing takes milliseconds: cgroup v1 waits for every processor, and holds up whoever
	// makes a thread. So it comes when the child has got going, and builds its wall meanwhile.
	sent := s.send(configW)
	mayExecute := func() {
		if sent == nil {
			_, sent = configW.Write([]byte{goAhead})
		}
	}
	if s.command.Held {
		mayExecute() // the program may start, too
	}
	if !placed {
		err = s.group.place(cage.Pid())
	}
	if errors.Is(err, unix.ESRCH) {
		sent, err = errors.Join(err, sent), nil // it died before, and its report says of what
	}
	if err != nil {
		return nil, failed(layerCgroup, err)
	}
	if !s.command.Held {
		mayExecute()
	}
	if err := s.receive(reportR, cage, sent); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return cage, nil
}

// send writes the configuration, after its length.
func (s *starting) send(w *os.File) error {
	text, err := json.Marshal(s.config)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// receive reads the child's report to its end. sent is what became of the
// configuration: where the child says nothing, that is the better reason.
func (s *starting) receive(r *os.File, c *cage, sent error) error {
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return failed(layerExec, err)
	}
	text, isReady := cutReady(text)
	if isReady && len(text) == 0 {
		return nil // the exec closed the report
	}
	var report childReport
	if json.Unmarshal(text, &report) == nil && report.Layer != "" {
		return &LayerError{Layer: report.Layer, Remedy: report.Remedy, Err: report.err()}
	}
	_ = c.Kill() // it has closed its report, so it is dead or about to be
	return failed(layerExec, errors.Join(fmt.Errorf("the wall's first process ended early: %v", c.Wait()), sent))
}

// spawn starts be-child in its namespaces. It does nothing but wait for its
// configuration. placed says that it is in its control group already.
func (s *starting) spawn(config, report *os.File) (_ *exec.Cmd, placed bool, err error) {
	files := append([]*os.File{config, report}, s.command.Extra...)
	files = append(files, s.mounts...)

	into, err := s.group.open()
	if err != nil {
		return nil, false, failed(layerCgroup, err)
	}
	if into != nil {
		defer into.Close()
		cmd := s.prepare(files)
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(into.Fd())
		if cmd.Start() == nil {
			return cmd, true, nil
		}
		// clone3 may be hidden by a container's filter; place does the same a little later.
	}
	cmd := s.prepare(files)
	if err := cmd.Start(); err != nil {
		return nil, false, startError(err)
	}
	return cmd, false, nil
}

func (s *starting) prepare(files []*os.File) *exec.Cmd {
	n := s.native
	cmd := exec.Command(n.exe, "be-child", verbCage)
	cmd.Env = []string{} // /proc/1/environ inside is this block until the exec
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = s.command.Stdout, s.command.Stderr
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		AmbientCaps: buildCaps, // an exec by another id than 0 drops the others
		Setsid:      true,      // no controlling terminal, no signals meant for the server's group
		// It comes when the thread ends that started the child. Go keeps its threads; only a
		// goroutine that ends while locked to one takes it along, so none such may call start.
		Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}
