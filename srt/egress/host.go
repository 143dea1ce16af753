package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// host is a name or an address in its one canonical form: a name is lower-case ASCII without
// the final dot, an address is not an IPv4 one in the clothes of IPv6.
type host struct {
	name string     // "" = it is addr
	addr netip.Addr // zero = it is name
}

// String is the host as a rule would name it.
func (h host) String() string {
	switch {
	case h.name != "":
		return h.name
	case h.addr.Is6():
		return "[" + h.addr.String() + "]"
	}
	return h.addr.String()
}

// isLocal reports whether h is a name of loopback, see RFC 6761, 6.3. No resolver is asked.
func (h host) isLocal() bool {
	return h.name == "localhost" || strings.HasSuffix(h.name, ".localhost")
}

// maxName bounds a name, see RFC 1035, 2.3.4; brackets, a zone and a dot may come besides.
const maxName = 253

// parseHost takes the bytes of a guest: nothing is mapped or guessed, and what resolvers read
// differently, such as 127.1 or 0x7f.0.0.1, is refused.
func parseHost(text string) (host, error) {
	if len(text) > maxName+3 {
		return host{}, errors.New("the host's name is too long")
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() {
			return host{}, fmt.Errorf("%q is no IPv6 address", text)
		}
		return hostOf(addr)
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return hostOf(addr)
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if err := checkName(name); err != nil {
		return host{}, err
	}
	return host{name: name}, nil
}

func hostOf(addr netip.Addr) (host, error) {
	if addr.Zone() != "" {
		return host{}, errors.New("an address with a zone names an interface of this machine")
	}
	return host{addr: addr.Unmap()}, nil
}

// checkName holds a name to letters, digits and hyphens. A name whose last label is a number
// is an IPv4 address to some resolvers, see the URL standard's "ends in a number".
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return errors.New("a host's name has 1 to 253 bytes")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%q is no host name", name)
		}
		for i := range len(label) {
			if c := label[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
				return fmt.Errorf("%q is no host name", name)
			}
		}
	}
	last := labels[len(labels)-1]
	if _, hex := strings.CutPrefix(last, "0x"); hex || strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%q is no host name: it ends in a number, as an address does", name)
	}
	return nil
}

// readName takes what an operator wrote: also Unicode, which becomes punycode as in a browser.
func readName(text string) (string, error) {
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(text, "."))
	if err == nil { // what it makes of a name must be one by itself
		var again string
		if again, err = idna.Lookup.ToASCII(name); again != name && err == nil {
			err = errors.New("ambiguous")
		}
	}
	if err != nil || !utf8.ValidString(text) {
		return "", fmt.Errorf("%q is no host name", text)
	}
	return name, checkName(name)
}

// target is where a guest wants to be connected.
type target struct {
	host
	port uint16
}

// String is the target as an authority.
func (t target) String() string { return t.host.String() + ":" + strconv.Itoa(int(t.port)) }

// parseAuthority takes HOST or HOST:PORT as it stands in a request. A port of 0 says that
// there must be one.
func parseAuthority(text string, port uint16) (target, error) {
	if strings.ContainsRune(text, '@') {
		return target{}, errors.New("an authority with a user in it is refused: send credentials in a header")
	}
	name, number := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 && i > strings.LastIndexByte(text, ']') {
		name, number = text[:i], text[i+1:]
		n, err := parsePort(number)
		if err != nil {
			return target{}, err
		}
		port = n
	}
	if port == 0 {
		return target{}, errors.New("a port must be named")
	}
	if strings.ContainsRune(name, ':') && name[0] != '[' {
		return target{}, errors.New("an IPv6 address stands in brackets")
	}
	h, err := parseHost(name)
	return target{h, port}, err
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("%.10q is no port", text)
	}
	return uint16(n), nil
}
