package srt

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
)

//go:embed selftest.py
var selfTestCode string

// attempts is how many ways selftest.py tries.
const attempts = 6

// selfTest opens a session and tries to get through its wall. A wall that
// stands only in the configuration would be worse than none.
func (l *Local) selfTest(ctx context.Context) (err error) {
	defer func() {
		var known *sandbox.Error
		if err != nil && !errors.As(err, &known) {
			err = &sandbox.Error{Status: sandbox.StatusInfra, Layer: "self-test", Err: err}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b, err := newBait()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return l.tryWall(ctx, b)
}

// bait is what anybody on the host may read and write, so that nothing but the
// wall keeps a guest from it: its user could.
type bait struct {
	*runtimeDir
	canary string // a file to be read
	open   string // a directory to be written
	value  string // what the canary holds
}

func newBait() (_ *bait, err error) {
	dir, err := newRuntimeDir() // of its own, since that of the sessions is private
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.close())
		}
	}()
	b := &bait{dir, filepath.Join(dir.path, "canary"), filepath.Join(dir.path, "open"), rand.Text()}
	return b, errors.Join(
		os.WriteFile(b.canary, []byte(b.value), 0o644),
		os.Mkdir(b.open, 0o700),
		os.Chmod(b.canary, 0o644), // whatever the umask
		os.Chmod(b.open, 0o777),
		os.Chmod(dir.path, 0o755),
	)
}

// tryWall tries to get through to b and everything else that is outside.
func (l *Local) tryWall(ctx context.Context, b *bait) (err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("no listener on loopback to try the wall with: %w", err)
	}
	defer listener.Close()

	session, err := l.openCold(ctx, sandbox.Spec{ID: "self-test"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	proxy := 0
	if !l.cfg.Network.Empty() && len(l.cfg.Network.Local()) == 0 { // or the operator allowed what is tried
		proxy = proxyPort
	}
	res, err := session.Run(ctx, sandbox.Request{
		Code: selfTestCode,
		Inputs: map[string]any{
			"canary": b.canary, "open": b.open, "port": listener.Addr().(*net.TCPAddr).Port,
			"supervisor": session.live.cage.kin.inside(), "concedes": l.wall.concedes(), "server": l.serverInSight(), "proxy": proxy,
		},
		Timeout: 20 * time.Second,
	})
	if err != nil {
		return err
	}
	return errors.Join(judge(res), b.judge(res))
}

// serverInSight is the server's number, where a guest would be in the same PID namespace; else 0.
func (l *Local) serverInSight() int {
	if l.wall.name() == WallLandlock {
		return os.Getpid()
	}
	return 0
}

// judge looks for itself: what the code inside tells is only its word.
func (b *bait) judge(res sandbox.Result) error {
	if strings.Contains(string(res.ReturnValue)+res.Stdout, b.value) {
		return errors.New("the wall does not hold: code inside knows what is in a file outside")
	}
	left, err := os.ReadDir(b.open)
	if err == nil && len(left) > 0 {
		err = errors.New("the wall does not hold: code inside has made a file outside")
	}
	return err
}

// judge accepts nothing but a complete list of failures.
func judge(res sandbox.Result) error {
	if !res.Success() {
		return fmt.Errorf("the code that tries the wall ended as %s: %s%s", res.Status, res.Error, res.Stderr)
	}
	var tried map[string]string
	if err := json.Unmarshal(res.ReturnValue, &tried); err != nil {
		return fmt.Errorf("the code that tries the wall told nothing: %w", err)
	}
	if len(tried) != attempts {
		return fmt.Errorf("%d attempts at the wall were made instead of %d", len(tried), attempts)
	}
	var errs []error
	for what, outcome := range tried {
		if !strings.HasPrefix(outcome, "failed: ") {
			errs = append(errs, fmt.Errorf("the wall does not hold: code inside could %s (%s)", what, outcome))
		}
	}
	return errors.Join(errs...)
}
