package workload

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
)

// Mode is how code is run on the platform.
type Mode string

// The modes.
const (
	ModeAuto    Mode = "auto"    // as ModeSession
	ModeSession Mode = "session" // a container for each session, which remembers
	ModeOneShot Mode = "oneshot" // a container for each call, which remembers nothing
)

// SecurityMode says whether the containers' security context is sent. Some
// clusters refuse requests that have one.
type SecurityMode string

// The security modes.
const (
	SecurityRequired SecurityMode = "required" // always: a cluster that refuses it runs nothing of ours
	SecurityPrefer   SecurityMode = "prefer"   // where the account has the entitlement for it; the log says where not
	SecurityOff      SecurityMode = "off"      // never: the cluster's own defaults hold
)

// DefaultImage is the published image. Its tag moves: pin one of your own.
const DefaultImage = "datarobotdev/datarobot-user-models:public_dropin_environments_dr_mcp_execute_sandbox_minimal_latest"

// Config says where the platform is, whose account is used, and what runs there.
type Config struct {
	Endpoint       string       // URL of DataRobot, with or without /api/v2; required unless APIBase is a URL
	PublicEndpoint string       // lends its host to an Endpoint that is a path alone
	APIBase        string       // URL of the API, or its path at Endpoint's host; "" = Endpoint's own path, /api/v2 at its end
	Token          string       // of the account; required unless CallerToken
	CallerToken    bool         // each caller brings a token, see WithToken; Token is not used for them
	Image          string       // "" = DefaultImage
	Mode           Mode         // "" = auto
	Security       SecurityMode // "" = required

	// Bare gives one-shot code to the image's runner as it is, for images whose
	// runner does more than the published one: there is no value of the last
	// expression then, output comes from the log alone, and the platform may run
	// the code again before it is deleted.
	Bare bool

	SecurityContext *SecurityContext // nil = DefaultSecurityContext
	Provisioning    time.Duration    // from the request to create until the code starts, at most; 0 = 300 s
	CPU             float64          // cores of a container; 0 = 1
	Memory          int64            // bytes of a container; 0 = 512 MiB
	Limits          sandbox.Limits   // Output and Disk hold for what comes back
	WorkDir         string           // host directory for the workspaces of sessions that are given none; "" = none is needed

	Instance string   // names this server among those of the account; required
	Dead     []string // servers that are known to have ended: what is theirs is deleted

	HTTP   *http.Client // nil = one with the defaults; its redirects and cookies are not used
	Logger *slog.Logger // nil = none

	// DangerouslyAllowHTTP lets the token travel unencrypted to other machines.
	DangerouslyAllowHTTP bool

	lease        time.Duration // after which an agent ends that hears nothing, for tests; 0 = its own
	speed        float64       // of the clock, for tests; 0 = the world's
	requestLimit time.Duration // of one request, in the world's time, for tests; 0 = 30 s
	removeLimit  time.Duration // of a deletion's attempts, by the clock, for tests; 0 = 90 s
}

const (
	defaultProvisioning = 300 * time.Second
	defaultMemory       = 512 << 20
	minMemory           = 128 << 20
	maxCPU              = 1024 // more than any machine of a cluster has
	apiPath             = "/api/v2"
)

// resolve returns c with its defaults and the API's base, or all that is wrong.
func (c Config) resolve() (Config, *url.URL, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("workload: "+format, args...)) }
	base, err := c.base()
	if err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.Token == "" && !c.CallerToken:
		wrong("no token: set DATAROBOT_API_TOKEN to an API key of your DataRobot account")
	case c.Token != "" && checkToken(c.Token) != nil:
		wrong("DATAROBOT_API_TOKEN: %w", checkToken(c.Token))
	}
	choose(&c.Mode, ModeAuto)
	choose(&c.Security, SecurityRequired)
	choose(&c.Image, DefaultImage)
	choose(&c.Provisioning, defaultProvisioning)
	choose(&c.requestLimit, requestLimit)
	choose(&c.removeLimit, removeLimit)
	choose(&c.CPU, 1)
	choose(&c.Memory, defaultMemory)
	if !slices.Contains([]Mode{ModeAuto, ModeSession, ModeOneShot}, c.Mode) {
		wrong("workload-mode: %q is none of auto, session, oneshot", c.Mode)
	}
	if !slices.Contains([]SecurityMode{SecurityRequired, SecurityPrefer, SecurityOff}, c.Security) {
		wrong("workload-security-context: %q is none of required, prefer, off", c.Security)
	}
	if strings.ContainsFunc(c.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		wrong("workload-image: %q is not the name of an image", c.Image)
	}
	if c.Provisioning < time.Second {
		wrong("workload-provisioning-timeout: %v is too short for a container to start in; 300s is usual", c.Provisioning)
	}
	if !(c.CPU > 0 && c.CPU <= maxCPU) { // NaN too
		wrong("workload-cpu: %v is no number of cores, which is above 0 and at most %d", c.CPU, maxCPU)
	}
	if c.Memory < minMemory {
		wrong("workload-memory: %d bytes are below the least that works, %d", c.Memory, int64(minMemory))
	}
	if c.Instance == "" {
		wrong("no instance: a server must be known by what it creates")
	}
	if c.Limits, err = c.Limits.Resolve(); err != nil {
		errs = append(errs, err)
	}
	if c.SecurityContext == nil {
		context := DefaultSecurityContext()
		c.SecurityContext = &context
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Dead = slices.Clone(c.Dead)
	return c, base, errors.Join(errs...)
}

func choose[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// base is the address that all paths of the API are below, with its slash.
func (c Config) base() (*url.URL, error) {
	const set = "set DATAROBOT_ENDPOINT to the address of your DataRobot, such as https://app.datarobot.com/api/v2"
	if c.Endpoint == "" && !strings.Contains(c.APIBase, "://") {
		return nil, fmt.Errorf("workload: no endpoint: %s", set)
	}
	from := c.Endpoint
	if strings.Contains(c.APIBase, "://") {
		from = c.APIBase
	}
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(from), "/"))
	if err != nil {
		return nil, fmt.Errorf("workload: the endpoint is no address: %s", set) // it may hold a secret: not repeated
	}
	if u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/") && c.PublicEndpoint != "" {
		if public, err := url.Parse(c.PublicEndpoint); err == nil {
			u.Scheme, u.Host = public.Scheme, public.Host
		}
	}
	switch {
	case u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return nil, fmt.Errorf("workload: the endpoint is a path without a host: %s, or DATAROBOT_PUBLIC_API_ENDPOINT beside it", set)
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("workload: the endpoint is no http or https address: %s", set)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("workload: the endpoint must be an address alone, without a user, a query or a fragment: %s", set)
	case u.Scheme == "http" && !loopback(u.Hostname()) && !c.DangerouslyAllowHTTP:
		return nil, fmt.Errorf("workload: the endpoint is http, over which the token would travel unencrypted: use https, or --workload-allow-http within a network that you trust")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	switch {
	case strings.Contains(c.APIBase, "://"):
	case c.APIBase != "":
		u.Path = "/" + strings.Trim(c.APIBase, "/")
	case !strings.HasSuffix(u.Path, apiPath):
		u.Path += apiPath
	}
	u.Path, u.RawPath = u.Path+"/", ""
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkToken refuses what can't stand in a header.
func checkToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("a token is one word of printable ASCII characters; this one holds others")
	}
	return nil
}
