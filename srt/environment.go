package srt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Environment is a virtual environment that is made of a file of requirements, once: it is
// kept for every later server that asks for the same with the same interpreter.
type Environment struct {
	Requirements string            // the file
	Cache        string            // directory, this user's alone, in which it is made and kept
	Variables    []string          // NAME=VALUE of the server; the installer gets those that are meant for it; nil = none
	Progress     func(line string) // is told what is being done; nil = nobody

	// DangerouslyBuild allows packages that come as source. To install one runs its code
	// outside the wall, as the server's user.
	DangerouslyBuild bool
}

const (
	environmentLimit = 30 * time.Minute // for downloading and installing everything

	// environmentMade is the last file to be made in an environment: without it, it is
	// half-made. A virtual environment knows its own path, so that it can't be made
	// elsewhere and renamed.
	environmentMade = "mcp-sandbox.json"
)

// MakeEnvironment returns the interpreter of e for the sessions of cfg, whose Python it is
// made with. It is made if it is not there yet; where another server is making the same,
// that is waited for. Nothing of it is run here but the installer: what packages bring
// along, their start-up files included, runs behind the wall alone, unless
// e.DangerouslyBuild is set.
func MakeEnvironment(ctx context.Context, cfg Config, e Environment) (python string, err error) {
	defer func() {
		var known *LayerError
		if err != nil && !errors.As(err, &known) {
			err = failed(layerPackages, err)
		}
	}()
	if e.Progress == nil {
		e.Progress = func(string) {}
	}
	cfg.Mounts = slices.Clone(cfg.Mounts)
	if err := cfg.findPlaces(); err != nil {
		return "", err
	}
	asked, err := readRequirements(e.Requirements, e.DangerouslyBuild, cfg.unreachable)
	if err != nil {
		return "", err
	}
	i, err := safeInterpreter(ctx, cfg)
	if err != nil {
		return "", err
	}
	for _, p := range beforeItRuns(i.base) {
		if err := cfg.outOfReach(p); err != nil {
			return "", err
		}
	}
	parent, err := e.directory()
	if err != nil {
		return "", err
	}
	if err := cfg.outOfReach(parent); err != nil {
		return "", err
	}
	m := &making{Environment: e, cfg: cfg, asked: asked, base: i, dir: filepath.Join(parent, e.key(asked, i))}
	return m.python(), m.once(ctx)
}

// unreachable refuses a file that code inside could have written: it would choose what is
// fetched from where, and tell so to whom it likes.
func (c *Config) unreachable(path string) error {
	if within(path, c.writable()...) {
		return fmt.Errorf("%s lies where code inside can write, which then could choose what the server downloads: keep it elsewhere", path)
	}
	return nil
}

// directory is where environments are kept. It must be nobody else's, since what is found
// in it is run.
func (e Environment) directory() (string, error) {
	dir := filepath.Join(e.Cache, "venvs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	dir, err := resolved(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s can be written by others than this user: name another by --cache-dir", dir)
	}
	for above := filepath.Dir(dir); above != filepath.Dir(above); above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return "", err
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return "", fmt.Errorf("in %s others than this user can put another in the place of %s: name another by --cache-dir", above, dir)
		}
	}
	return dir, nil
}

// key names what is asked for. Which tool installs it makes no difference.
func (e Environment) key(asked requirements, i Interpreter) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{1, asked.lines, asked.constraints, i.base, i.Version, e.DangerouslyBuild})
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// making is an environment that is to be there in the end.
type making struct {
	Environment
	cfg   Config
	asked requirements
	base  Interpreter // what it is made with
	dir   string
}

func (m *making) python() string { return filepath.Join(m.dir, "bin", "python") }

// work is where the installer has its temporary files. What a killed one leaves there goes
// with the next.
func (m *making) work() string { return m.dir + ".work" }

func (m *making) isMade() bool {
	_, err := os.Stat(filepath.Join(m.dir, environmentMade))
	if err == nil {
		_, err = os.Stat(m.python()) // somebody may have tidied up
	}
	return err == nil
}

// once makes the environment if it is not there. One server makes it, others wait.
func (m *making) once(ctx context.Context) (err error) {
	if m.isMade() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, environmentLimit, fmt.Errorf("it took longer than %v", environmentLimit))
	defer cancel()
	lock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if m.isMade() {
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(m.dir))
		}
		err = errors.Join(err, removeAll(m.work()))
	}()
	return m.make(ctx)
}

// lock takes the lock that the kernel drops with its owner, however that ends.
func (m *making) lock(ctx context.Context) (*os.File, error) {
	for told := false; ; {
		lock, err := lockFile(m.dir+".lock", os.O_CREATE)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return lock, err
		}
		if !told {
			m.Progress("another server is making this environment: waiting for it")
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (m *making) make(ctx context.Context) error {
	begun := time.Now()
	if err := errors.Join(removeAll(m.dir), removeAll(m.work()), os.Mkdir(m.work(), 0o700)); err != nil {
		return err
	}
	tool, err := m.install(ctx)
	if err != nil {
		return err
	}
	if err := m.share(); err != nil {
		return err
	}
	m.Progress(fmt.Sprintf("made %s with %s in %v", m.dir, tool, time.Since(begun).Round(100*time.Millisecond)))
	text, err := json.Marshal(map[string]string{"installer": tool, "python": m.base.Version, "made": begun.UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	aside := filepath.Join(m.work(), environmentMade)
	return errors.Join(os.WriteFile(aside, append(text, '\n'), 0o644), os.Rename(aside, filepath.Join(m.dir, environmentMade)))
}

// share lets guests read the environment, who may be another user than the server's,
// whatever its umask. The directory around it stays closed.
func (m *making) share() error {
	return filepath.WalkDir(m.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		if mode == info.Mode().Perm() {
			return nil
		}
		return os.Chmod(path, mode)
	})
}

// file writes one of the installer's, closed to others: addresses may hold passwords.
func (m *making) file(name string, lines []string) (string, error) {
	path := filepath.Join(m.work(), name)
	return path, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
