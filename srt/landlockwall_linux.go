package srt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

var _ wall = (*landlockWall)(nil)

// landlockWall makes cages without namespaces: Landlock, a filter of system calls, limits
// of resources, and a guardian that ends everything. It is weaker than the others, see
// landlockWeaknesses, and taken only by name. It is safe for concurrent use.
type landlockWall struct {
	exe     string // what is started as be-child
	dir     string // where each cage has a directory of its own
	cgroups *cgroups
	memory  string // how memory is bounded, in words
}

// newLandlock checks what can be checked without starting anything.
func (l *Local) newLandlock() (wall, error) {
	w := &landlockWall{exe: l.cfg.native.Executable, dir: filepath.Join(l.runtime.path, "cages")}
	if w.exe == "" {
		w.exe = selfExe // also right when the file on disk has been replaced
	}
	if os.Geteuid() == 0 {
		return nil, &LayerError{Layer: layerUserns,
			Err:    errors.New("the landlock wall does not hold root, as whom the guest would run"),
			Remedy: "start the server as an ordinary user; in a container, docker run --user 1000:1000, or runAsUser in Kubernetes"}
	}
	if err := scopedABI(); err != nil {
		return nil, failed(layerLandlock, err)
	}
	if _, err := seccompFilter(Policy{sharesHost: true}); err != nil {
		return nil, err
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, failed(layerMounts, err)
	}
	proc := l.cfg.native.Proc
	if proc == "" {
		proc = "/proc/self"
	}
	w.cgroups, w.memory = findCgroups(proc)
	return w, nil
}

// guardTasks is what the guardian and its runtime need.
const guardTasks = 16

func (*landlockWall) name() string { return WallLandlock }

// admits: there is no mount namespace, so all is seen where it lies.
func (*landlockWall) admits(cfg Config, _ []string) error {
	faults := []error{noNetwork(cfg, WallLandlock)}
	for _, m := range cfg.Mounts {
		if m.Guest != m.Host {
			faults = append(faults, fmt.Errorf("mount: %s at %s: the wall landlock shows a directory nowhere but where it lies: --mount %s:%s",
				m.Host, m.Guest, m.Host, m.Host))
		}
	}
	return errors.Join(faults...)
}

func (w *landlockWall) places(workspace string) places {
	own := filepath.Join(w.dir, rand.Text())
	tmp := filepath.Join(own, "tmp")
	return places{
		Workspace: workspace, Kernel: filepath.Join(own, "kernel") + "/", Warden: selfExe,
		Tmp: tmp, Scratch: []string{tmp}, Host: true, dir: own,
	}
}

func (*landlockWall) pipe(_ places, _ string, serverReads bool) (server, guest *os.File, err error) {
	r, w, err := os.Pipe()
	if serverReads {
		return r, w, err
	}
	return w, r, err
}

// concedes: an ordinary user can't empty its bounding set. With no_new_privs it is of no use.
func (*landlockWall) concedes() []string { return []string{"CapBnd"} }

func (*landlockWall) lesser(Config) []string { return landlockWeaknesses }

func (*landlockWall) describe(p Policy) string { return describeLandlock(p) }

func (w *landlockWall) limitsMemory() bool { return w.cgroups != nil }

func (*landlockWall) hostIDs() (uid, gid int) { return os.Geteuid(), os.Getegid() }

func (*landlockWall) close() error { return nil } // what it made lies in the server's own directory

// start implements wall.
func (w *landlockWall) start(ctx context.Context, p Policy, c command) (_ *cage, err error) {
	p = p.withDefaults()
	p.sharesHost = true
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	own, err := w.checked(p, c)
	if err != nil {
		return nil, failed(layerPolicy, err)
	}
	if c.Dir == "" {
		c.Dir = p.tmp()
	}
	filter, err := seccompFilter(p)
	if err != nil {
		return nil, err
	}
	tasks, err := tasksOfUser()
	if err != nil {
		return nil, failed(layerRlimits, err)
	}
	config := guardConfig{
		Domain: domain{Policy: p, Read: []string{own.kernel()}, Write: []string{p.Tmp}},
		// The kernel counts all of the user's together. What belongs to the session is counted by
		// the watchdog; this is for what a fork bomb does until that looks, and leaves room for
		// the user's other processes to grow by as many as the session may have.
		Tasks:  tasks + 2*p.Tasks + guardTasks,
		Filter: filter, Path: c.Path, Dir: c.Dir, Args: c.Args, Env: c.Env, Extra: len(c.Extra), Supervisor: c.OOMFD,
	}
	if c.OOMFD { // which the supervisor alone asks for
		config.Args = append(append([]string{}, c.Args...), "--domain-fd", strconv.Itoa(guestExtraFD+len(c.Extra)+1))
	}
	for _, m := range p.shown() {
		s := source{Host: m.Host, Guest: m.Guest, Layer: layerWorkspace, Writable: m.Writable}
		if s.Is, err = identityOf(m.held); err != nil {
			return nil, failed(layerWorkspace, fmt.Errorf("%s: %w", m.Host, err))
		}
		config.Domain.Places = append(config.Domain.Places, s)
	}
	if err := plainDirectory(p.Workspace.Host); err != nil {
		return nil, failed(layerWorkspace, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, own.clear())
		}
	}()
	if err := own.make(c.Files); err != nil {
		return nil, failed(layerMounts, err)
	}
	group, err := w.cgroups.create(p)
	if err != nil {
		return nil, failed(layerCgroup, err)
	}
	s := &guarding{wall: w, group: group, command: c, config: config, own: own}
	cage, err := s.run(ctx)
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return cage, nil
}

// checked returns the cage's own directory, or all that is wrong with what is asked for.
func (w *landlockWall) checked(p Policy, c command) (cageDir, error) {
	own := cageDir(filepath.Dir(p.Tmp))
	errs := []error{p.validate(), c.validateHost()}
	if p.Tmp == "" || filepath.Dir(string(own)) != w.dir {
		errs = append(errs, fmt.Errorf("the directory for temporary files at %q was not named by this wall", p.Tmp))
	}
	if c.Sockets != nil {
		errs = append(errs, errors.New("behind the wall landlock there is no loopback to be connected to"))
	}
	for name := range c.Files {
		if filepath.Dir(name) != own.kernel() {
			errs = append(errs, fmt.Errorf("file %q: not in the wall's own directory", name))
		}
	}
	for _, m := range p.shown() {
		if m.Guest != m.Host {
			errs = append(errs, fmt.Errorf("%s can't be shown at %s", m.Host, m.Guest))
		}
	}
	return own, errors.Join(errs...)
}

// cageDir is the directory of one cage, private to the server and the guest.
type cageDir string

func (d cageDir) kernel() string { return filepath.Join(string(d), "kernel") }

func (d cageDir) make(files map[string][]byte) error {
	if err := errors.Join(os.Mkdir(string(d), 0o700), os.Mkdir(d.kernel(), 0o700), os.Mkdir(filepath.Join(string(d), "tmp"), 0o700)); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o400); err != nil {
			return err
		}
	}
	return nil
}

func (d cageDir) clear() error { return removeAll(string(d)) }
