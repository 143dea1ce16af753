package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rules say which hosts may be reached. They don't change once made, and may be shared. The
// zero value allows none.
//
// A rule is HOST, *.HOST for all names below it (not itself), or an IP address, each with
// :PORT or without. Without, any port may be reached, by TLS under that very name and by plain
// HTTP under it; a port that is named (other than 80 and 443) carries any protocol.
//
// A name reaches public addresses alone. An address that is not public is reached where a rule
// names that address too; the name localhost is a rule for loopback.
type Rules struct {
	allow, deny []rule
}

// rule is one line of the operator's.
type rule struct {
	host
	below bool   // it is for the names below host
	port  uint16 // 0 = any
}

// ParseRules returns rules by which hosts of allow may be reached, but for those of deny; or
// all faults in them together.
func ParseRules(allow, deny []string) (Rules, error) {
	var r Rules
	var faults []error
	for _, list := range []struct {
		texts []string
		into  *[]rule
	}{{allow, &r.allow}, {deny, &r.deny}} {
		for _, text := range list.texts {
			parsed, err := parseRule(text)
			if err != nil {
				faults = append(faults, fmt.Errorf("%q: %w", text, err))
				continue
			}
			if !slices.Contains(*list.into, parsed) {
				*list.into = append(*list.into, parsed)
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Rules{}, err
	}
	return r, nil
}

func parseRule(text string) (rule, error) {
	if strings.ContainsAny(text, "/@?#") {
		return rule{}, errors.New("expected a host such as example.org, *.example.org or example.org:8443, not a URL")
	}
	name, number := text, ""
	if _, err := netip.ParseAddr(text); err != nil { // or its colons are its own
		if i := strings.LastIndexByte(text, ':'); i >= 0 && i > strings.LastIndexByte(text, ']') {
			name, number = text[:i], text[i+1:]
		}
	}
	var r rule
	if name != text {
		port, err := parsePort(number)
		if err != nil {
			return rule{}, err
		}
		r.port = port
	}
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		if addr.Is6() && name != text && name[0] != '[' {
			return rule{}, errors.New("an IPv6 address with a port stands in brackets")
		}
		if addr.IsUnspecified() {
			return rule{}, errors.New("this address is no host's")
		}
		r.host, err = hostOf(addr)
		return r, err
	}
	if name, r.below = strings.CutPrefix(name, "*."); strings.ContainsRune(name, '*') {
		return rule{}, errors.New("a star stands for all names below a domain, as in *.example.org, and nowhere else")
	}
	ascii, err := readName(name)
	if err != nil {
		return rule{}, err
	}
	if r.below && !strings.ContainsRune(ascii, '.') {
		return rule{}, errors.New("all names of a top-level domain are too many: name a domain below it")
	}
	r.host = host{name: ascii}
	return r, nil
}

// String is the rule in its canonical form.
func (r rule) String() string {
	s := r.host.String()
	if r.below {
		s = "*." + s
	}
	if r.port != 0 {
		s += ":" + strconv.Itoa(int(r.port))
	} else if r.addr.Is6() {
		s = strings.Trim(s, "[]")
	}
	return s
}

// matches reports whether the rule is about t.
func (r rule) matches(t target) bool {
	if r.port != 0 && r.port != t.port {
		return false
	}
	if r.below {
		return strings.HasSuffix(t.name, "."+r.name)
	}
	return r.host == t.host
}

// Empty reports whether nothing may be reached.
func (r Rules) Empty() bool { return len(r.allow) == 0 }

// String lists what may be reached: "none", or "example.org, *.example.net:443, but not
// x.example.net".
func (r Rules) String() string {
	if r.Empty() {
		return "none"
	}
	s := strings.Join(r.Allowed(), ", ")
	if len(r.deny) > 0 {
		s += ", but not " + strings.Join(r.Denied(), ", ")
	}
	return s
}

// Allowed are the rules that allow, in their canonical form.
func (r Rules) Allowed() []string { return texts(r.allow) }

// Denied are the rules that deny, which win.
func (r Rules) Denied() []string { return texts(r.deny) }

// Local are the names of this machine's loopback that the rules allow: for them, code inside
// has to go through the proxy as well.
func (r Rules) Local() []string {
	var names []string
	for _, rule := range r.allow {
		if rule.name == "localhost" || rule.addr.IsLoopback() {
			names = append(names, strings.Trim(rule.host.String(), "[]"))
		}
	}
	return names
}

func texts(rules []rule) []string {
	all := make([]string, len(rules))
	for i, r := range rules {
		all[i] = r.String()
	}
	return all
}

// grant is what the rules let be done with a target.
type grant struct {
	raw   bool // any protocol; false = TLS and HTTP, under the target's own name
	local bool // loopback is what is meant
}

// judge says whether t may be reached, as far as its name tells.
func (r Rules) judge(t target) (grant, error) {
	for _, rule := range r.deny {
		if rule.matches(t) {
			return grant{}, refuse("%v is denied by the operator of this server.", t)
		}
	}
	var g grant
	allowed := false
	for _, rule := range r.allow {
		if !rule.matches(t) {
			continue
		}
		allowed = true
		if rule.port != 0 && rule.port != 80 && rule.port != 443 {
			g.raw = true
		}
		if !rule.below && rule.isLocal() {
			g.local = true
		}
	}
	if !allowed {
		return grant{}, refuse("%v is not allowed: this sandbox reaches %s. The operator of this server allows more by --allow-domain.", t, r.brief())
	}
	return g, nil
}

// brief is what is allowed, in a bounded text.
func (r Rules) brief() string {
	const most = 8
	all := r.Allowed()
	if len(all) == 0 {
		return "nothing"
	}
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ") + " alone"
}

// judgeAddress says whether t may be reached at an address that its name has led to.
func (r Rules) judgeAddress(t target, g grant, addr netip.Addr, own []netip.Addr) error {
	for _, a := range faces(addr) {
		at := target{host{addr: a}, t.port}
		for _, rule := range r.deny {
			if rule.matches(at) {
				return refuse("%v leads to an address that is denied by the operator of this server.", t)
			}
		}
	}
	at := target{host{addr: addr}, t.port}
	if slices.ContainsFunc(r.allow, func(rule rule) bool { return rule.matches(at) }) {
		return nil
	}
	if g.local && addr.IsLoopback() {
		return nil
	}
	if !public(addr) || slices.ContainsFunc(faces(addr), func(a netip.Addr) bool { return slices.Contains(own, a) }) {
		return refuse("%v leads to an address that is not public: such a one is reached only where --allow-domain names the address itself.", t)
	}
	return nil
}
