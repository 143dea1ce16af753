package egress

import (
	"net"
	"net/netip"
)

// special are the blocks of the IANA's special-purpose registries that no public host has,
// and those through which another address is reached.
var special = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carriers' NAT; clouds have metadata there too
	"127.0.0.0/8",      // loopback
	"169.254.0.0/16",   // link-local, and metadata of clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // relays of 6to4
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, and broadcast
	"168.63.129.16/32", // Azure's host, by an address that is public only in name

	"2001::/23",     // protocol assignments: Teredo, benchmarks, ORCHID
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4, which holds an IPv4 address
	"3fff::/20",     // documentation
)

var (
	global = netip.MustParsePrefix("2000::/3")     // all that is public in IPv6 lies there, but for
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // IPv4 seen from networks that have only IPv6
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		all[i] = netip.MustParsePrefix(t)
	}
	return all
}

// public reports whether addr is one that anybody could have.
func public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	if nat64.Contains(addr) {
		return public(embedded(addr))
	}
	if addr.Is6() && (!global.Contains(addr) || isatap(addr)) {
		return false
	}
	for _, p := range special {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

// embedded is the IPv4 address in the last four bytes.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// isatap reports whether an interface's id holds an IPv4 address, see RFC 5214.
func isatap(addr netip.Addr) bool {
	b := addr.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// faces are an address, and the one that is reached by way of it.
func faces(addr netip.Addr) []netip.Addr {
	if nat64.Contains(addr) {
		return []netip.Addr{addr, embedded(addr)}
	}
	return []netip.Addr{addr}
}

// ownAddresses are those of this machine: what listens on all of them may trust who comes
// from here, although one of them is public.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, addr.Unmap())
			}
		}
	}
	return own, nil
}
