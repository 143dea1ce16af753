package workload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"mcp-sandbox/sandbox"
)

// Workload is the remote sandbox. It is safe for concurrent use. Close it when
// all its sessions are closed.
type Workload struct {
	cfg   Config
	base  *url.URL
	http  *http.Client
	clock clock

	end  context.Context    // of the janitor's work
	stop context.CancelFunc // ends it
	wg   sync.WaitGroup     // the janitor, and deletions under way

	mu      sync.Mutex
	closed  bool
	tenants map[[sha256.Size]byte]*tenant // by token
	left    int                           // workloads that could not be deleted in time
	live    map[string]bool               // names of workloads in use, also of those about to be created
}

var _ sandbox.Placer = (*Workload)(nil)

// requestLimit bounds one request to the API, in the world's time.
const requestLimit = 30 * time.Second

// New makes a remote sandbox, and begins to delete what earlier servers left.
// It does not reach out to see whether the platform is there. The error holds
// all that is wrong with cfg.
func New(cfg Config) (*Workload, error) {
	cfg, base, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Workload{
		cfg: cfg, base: base, http: cfg.httpClient(), clock: newClock(cfg.speed), end: ctx, stop: cancel,
		tenants: map[[sha256.Size]byte]*tenant{}, live: map[string]bool{},
	}
	if cfg.Token != "" && !cfg.CallerToken {
		if _, err := w.hold(cfg.Token); err != nil { // for good
			return nil, err
		}
	}
	w.wg.Go(w.keepClean)
	return w, nil
}

// httpClient follows no redirects by itself: that would leave out the rules of
// client.exchange. It has no cookies: a gateway's would mix callers up.
func (c Config) httpClient() *http.Client {
	h := http.Client{Transport: http.DefaultTransport}
	if c.HTTP != nil {
		h = *c.HTTP
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = 64
		h.Transport = t
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	h.Jar = nil
	return &h
}

// String implements sandbox.Sandbox.
func (w *Workload) String() string {
	context := map[SecurityMode]string{
		SecurityRequired: "with a strict security context",
		SecurityPrefer:   "with a strict security context where the account has it",
		SecurityOff:      "with the cluster's own security context",
	}[w.cfg.Security]
	way := "one for each session"
	if w.cfg.Mode == ModeOneShot {
		way = "one for each call"
	}
	return fmt.Sprintf("workload: containers at %s, %s, %s\nimage: %s\nnetwork: as the cluster allows it", w.base.Host, way, context, w.cfg.Image)
}

// Mode is the one in which code runs.
func (w *Workload) Mode() Mode {
	if w.cfg.Mode == ModeAuto {
		return ModeSession
	}
	return w.cfg.Mode
}

// Open implements sandbox.Sandbox.
func (w *Workload) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	return w.OpenIn(ctx, spec, nil)
}

// OpenIn implements sandbox.Placer. Without a workspace it is Open.
func (w *Workload) OpenIn(ctx context.Context, spec sandbox.Spec, workspace *os.Root) (sandbox.Session, error) {
	token, err := w.token(ctx)
	if err != nil {
		return nil, err
	}
	t, err := w.hold(token)
	if err != nil {
		return nil, err
	}
	if w.Mode() == ModeOneShot {
		return newOneShot(w, t), nil
	}
	s, err := w.openSession(ctx, t, spec, workspace)
	if err != nil {
		w.drop(t)
		return nil, err
	}
	return s, nil
}

// Close waits until what the sessions left is deleted. The error says that the
// platform did not want to delete some of it: it is left to the next server that
// counts this one among the dead.
func (w *Workload) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.wg.Wait()
	w.http.CloseIdleConnections()
	if w.left > 0 { // nobody else is there any more
		return fmt.Errorf("workload: %d workloads could not be deleted", w.left)
	}
	return nil
}

// errInfra is a fault of the platform's, or of the way to it.
func errInfra(ran bool, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrClosed) {
		return err
	}
	return &sandbox.Error{Status: sandbox.StatusInfra, ExitCode: sandbox.StatusInfra.ExitCode(), Layer: "workload", Ran: ran, Err: err}
}
