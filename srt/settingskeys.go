package srt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// The keys of a settings file, and what becomes of each. What is read here and not kept is
// what every wall does in any case.

var topKeys = map[string]settingsKey{
	"network":    func(r *settingsReader, key string, raw json.RawMessage) { r.object(key, raw, networkKeys) },
	"filesystem": func(r *settingsReader, key string, raw json.RawMessage) { r.object(key, raw, filesystemKeys) },
	"credentials": func(r *settingsReader, key string, raw json.RawMessage) {
		r.object(key, raw, credentialKeys)
	},
	"git": func(r *settingsReader, key string, raw json.RawMessage) {
		r.object(key, raw, map[string]settingsKey{"safeDirectories": unlessEmpty("git gets no settings from this server")})
	},
	"ignoreViolations":             unlessEmpty("this server reports no violations that could be passed over"),
	"enableWeakerNestedSandbox":    never("no wall of this server can be made weaker"),
	"enableWeakerNetworkIsolation": never("no wall of this server can be made weaker"),
	"allowNestedUserNamespaces":    never("no wall of this server can be made weaker"),
	"allowAppleEvents":             never("no wall of this server can be made weaker"),
	"allowPty":                     never("code has no terminal"),
	"ripgrep":                      unlessEmpty("the runtime's own ripgrep is used"),
	"seccomp":                      unlessEmpty("the runtime's own filter is used"),
	"windows":                      unlessEmpty("this server does not run on Windows"),
	"mandatoryDenySearchDepth":     refused("the runtime's own depth is used"),
	"bwrapPath":                    refused("bwrap of PATH is used"),
	"socatPath":                    refused("socat of PATH is used"),
	"javaAgentJarPath":             refused("code gets no agent for Java"),
}

var networkKeys = map[string]settingsKey{
	"allowedDomains": func(r *settingsReader, key string, raw json.RawMessage) { r.s.allowed = r.strings(key, raw) },
	"deniedDomains":  func(r *settingsReader, key string, raw json.RawMessage) { r.s.denied = r.strings(key, raw) },
	"strictAllowlist": func(r *settingsReader, key string, raw json.RawMessage) {
		var b bool // nobody is asked about a host that is not on the list, whatever is said here
		r.strict(key, raw, &b, "true or false")
	},
	"requireHostMatch": func(r *settingsReader, key string, raw json.RawMessage) {
		var b bool // the server's proxy always does
		r.strict(key, raw, &b, "true or false")
	},
	"allowLocalBinding": func(r *settingsReader, key string, raw json.RawMessage) {
		var b bool
		if r.strict(key, raw, &b, "true or false") && b {
			r.asks(key, "there is no loopback inside", WallNative, WallSRT)
		}
	},
	"deniedResolvedAddresses": deniedAddresses,
	"deniedDomainReasons":     unlessEmpty("a refusal has the server's own words"),
	"allowUnixSockets":        unlessEmpty("no socket of this machine is shown to code"),
	"allowAllUnixSockets":     never("no socket of this machine is shown to code"),
	"allowMachLookup":         unlessEmpty("code talks to no service of this machine"),
	"httpProxyPort":           refused("the wall's own proxy is used"),
	"socksProxyPort":          refused("the wall's own proxy is used"),
	"parentProxy":             unlessEmpty("hosts are reached directly"),
	"mitmProxy":               refused("nothing opens TLS on the way"),
	"tlsTerminate":            refused("nothing opens TLS on the way"),
	"filterRequest":           refused("requests are not looked into"),
	"allowPlaintextHeaderSet": never("requests are not looked into"),
	"stripResponseHeaders":    unlessEmpty("answers are not looked into"),
	"refuseOpaqueTunnels":     never("nothing opens TLS on the way, so every tunnel is opaque"),
	"ambiguousRequestTarget":  refused("requests are not looked into"),
}

var filesystemKeys = map[string]settingsKey{
	"denyRead": func(r *settingsReader, key string, raw json.RawMessage) {
		r.s.denyRead = append(r.s.denyRead, r.paths(key, raw)...)
	},
	"allowRead":  func(r *settingsReader, key string, raw json.RawMessage) { r.s.allowRead = r.paths(key, raw) },
	"allowWrite": func(r *settingsReader, key string, raw json.RawMessage) { r.s.allowWrite = r.paths(key, raw) },
	"denyWrite":  func(r *settingsReader, key string, raw json.RawMessage) { r.s.denyWrite = r.paths(key, raw) },
	"disabled":   never("no wall of this server can be turned off"),
	"allowGitConfig": func(r *settingsReader, key string, raw json.RawMessage) {
		var b bool
		if r.strict(key, raw, &b, "true or false") && !b {
			r.asks(key, "what can be written can be written as a whole, .git/config too")
		}
	},
}

var credentialKeys = map[string]settingsKey{
	"files": func(r *settingsReader, key string, raw json.RawMessage) {
		r.list(key, raw, func(key string, raw json.RawMessage) {
			p := settingsPath{key: key + ".path"}
			r.object(key, raw, secret(map[string]settingsKey{"path": func(r *settingsReader, key string, raw json.RawMessage) {
				if r.strict(key, raw, &p.text, "a path") {
					if err := r.s.check(p); err != nil {
						r.fault(key, "%w", err)
					}
				}
			}}))
			r.s.denyRead = append(r.s.denyRead, p)
		})
	},
	"envVars": func(r *settingsReader, key string, raw json.RawMessage) {
		r.list(key, raw, func(key string, raw json.RawMessage) {
			var name string
			r.object(key, raw, secret(map[string]settingsKey{"name": func(r *settingsReader, key string, raw json.RawMessage) {
				r.strict(key, raw, &name, "a name")
			}}))
			r.s.denyEnv = append(r.s.denyEnv, name)
		})
	},
	"allowPlaintextInject": never("no secret is put into requests"),
	"awsPairs":             unlessEmpty("no secret is put into requests"),
	"sigv4":                unlessEmpty("no secret is put into requests"),
}

// secret is a credential's keys: it can be hidden, and not be masked.
func secret(own map[string]settingsKey) map[string]settingsKey {
	keys := map[string]settingsKey{
		"mode": func(r *settingsReader, key string, raw json.RawMessage) {
			var mode string
			switch {
			case !r.strict(key, raw, &mode, `"deny" or "mask"`):
			case mode == "mask":
				r.asks(key, `a secret can be hidden ("deny"), and not be masked`)
			case mode != "deny":
				r.fault(key, `expected "deny" or "mask"`)
			}
		},
	}
	for _, name := range []string{"extract", "onExtractNoMatch", "decode", "maskClaims", "maskDuplicates", "injectHosts"} {
		keys[name] = refused("it is about masking")
	}
	maps.Copy(keys, own)
	return keys
}

// never accepts false, and notes true as what no wall gives.
func never(why string) settingsKey {
	return func(r *settingsReader, key string, raw json.RawMessage) {
		var b bool
		if r.strict(key, raw, &b, "true or false") && b {
			r.asks(key, why)
		}
	}
}

// unlessEmpty accepts an empty list or object, and notes any other as what no wall gives.
func unlessEmpty(why string) settingsKey {
	return func(r *settingsReader, key string, raw json.RawMessage) {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil && slices.Contains([]string{"[]", "{}"}, compact.String()) {
			return
		}
		r.asks(key, why)
	}
}

// refused notes any value as what no wall gives.
func refused(why string) settingsKey {
	return func(r *settingsReader, key string, raw json.RawMessage) { r.asks(key, why) }
}

// alwaysDenied are addresses to which a name never leads here, whatever the settings say.
var alwaysDenied = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func deniedAddresses(r *settingsReader, key string, raw json.RawMessage) {
	r.list(key, raw, func(key string, raw json.RawMessage) {
		var text string
		if !r.strict(key, raw, &text, "an address or a range") {
			return
		}
		p, err := parseRange(text)
		if err != nil {
			r.fault(key, "%w", err)
			return
		}
		inside := func(known netip.Prefix) bool { return known.Bits() <= p.Bits() && known.Contains(p.Addr()) }
		if !slices.ContainsFunc(alwaysDenied, inside) {
			r.asks(key, "beside private and local addresses, which are denied in any case, addresses can't be denied")
		}
	})
}

func parseRange(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("expected an address or a range such as 10.0.0.0/8, not %.100q", text)
	}
	return p.Masked(), nil
}
