package srt

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcp-sandbox/srt/egress"
)

// proxyPort is where the proxy listens on the guest's loopback, where there is one. It is a
// fixed one: what is in a network of its own is in nobody's way. Behind the wall srt 3128 and
// 1080 are taken, by that one's own proxy.
const proxyPort = 3129

// bundles are where systems keep the certificates of authorities in one file.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine, Arch
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora and its like
	"/etc/ssl/ca-bundle.pem",                            // SUSE
}

// networkEnv is what lets programs inside find the proxy. Where the rules allow names of the
// server's own loopback, these mean that; otherwise they are the guest's.
func networkEnv(rules egress.Rules) []string {
	if rules.Empty() {
		return nil
	}
	var env []string
	set := func(name, value string) {
		env = append(env, name+"="+value, strings.ToLower(name)+"="+value)
	}
	proxy := fmt.Sprintf("http://127.0.0.1:%d", proxyPort)
	set("HTTP_PROXY", proxy)
	set("HTTPS_PROXY", proxy)
	set("ALL_PROXY", proxy) // not socks5h://, for which some libraries lack a part, and then refuse to start
	var direct []string
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if !slices.Contains(rules.Local(), name) {
			direct = append(direct, name)
		}
	}
	set("NO_PROXY", strings.Join(direct, ","))
	for _, file := range bundles {
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() {
			env = append(env, "SSL_CERT_FILE="+file) // interpreters that bring their own OpenSSL look elsewhere
			break
		}
	}
	return env
}

// networkHint explains a refused connection to who wrote the code.
func (p Policy) networkHint() string {
	if p.Network.Empty() {
		return "The sandbox has no network; the operator of this server can allow hosts by --allow-domain. Ask for the data as a file in " + p.withDefaults().Workspace.Guest + ", or as `inputs`."
	}
	return fmt.Sprintf("The sandbox reaches these hosts alone: %v. The way there is the proxy at 127.0.0.1:%d, for HTTP, CONNECT and SOCKS5 (socks5h://), which the proxy variables of the environment name; names can't be resolved without it. The operator of this server allows more by --allow-domain.",
		p.Network, proxyPort)
}

// packageHint tells how a package comes here.
func (p Policy) packageHint() string {
	if p.Network.Empty() {
		return "Code can't install any; the operator of this server can, into the environment of the Python that --python names."
	}
	to := filepath.Join(p.tmp(), "packages")
	return fmt.Sprintf("The operator of this server can install it, into the environment of the Python that --python names; code can only where pip reaches an index: pip install --target %s NAME, and sys.path.append('%s').", to, to)
}

// noNetwork is what a wall that reaches no hosts says where some are allowed, and by whom.
func noNetwork(cfg Config, wall string) error {
	switch {
	case cfg.Network.Empty():
		return nil
	case len(cfg.Settings.allowed) > 0:
		return keyFault("network.allowedDomains", "the wall %s can't honour it: it reaches no hosts, and %v are allowed", wall, cfg.Network)
	}
	return fmt.Errorf("network: the wall %s reaches no hosts, and %v are allowed (--allow-domain)", wall, cfg.Network)
}
