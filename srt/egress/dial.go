package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// connect makes the connection to t that the rules allow, or says why not. A name is resolved
// here and nowhere else, once: what is connected to is the very address that was checked.
func (p *Proxy) connect(ctx context.Context, t target) (net.Conn, grant, error) {
	g, err := p.cfg.Rules.judge(t)
	if err != nil {
		return nil, g, err
	}
	addrs, err := p.addresses(ctx, t)
	if err != nil {
		return nil, g, err
	}
	own, err := p.cfg.Own()
	if err != nil {
		p.cfg.Log.Error("network: the addresses of this machine can't be told", "err", err)
		return nil, g, unreachable("%v can't be reached.", t)
	}
	// All of them, before the first is tried: a name with one public and one private address
	// is a trick, or at best a mistake.
	for _, a := range addrs {
		if err := p.cfg.Rules.judgeAddress(t, g, a, own); err != nil {
			p.cfg.Log.Debug("network: refused address", "host", t.String(), "address", a)
			return nil, g, err
		}
	}
	conn, err := p.dial(ctx, addrs, t.port)
	if err != nil {
		p.cfg.Log.Debug("network: not connected", "host", t.String(), "err", err)
		return nil, g, unreachable("%v is allowed, but can't be reached: %s.", t, reasonOf(err))
	}
	return conn, g, nil
}

// addresses are those of t.
func (p *Proxy) addresses(ctx context.Context, t target) ([]netip.Addr, error) {
	switch {
	case t.name == "":
		return []netip.Addr{t.addr}, nil
	case t.isLocal():
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Resolving)
	defer cancel()
	found, err := p.cfg.Resolve(ctx, t.name)
	if err == nil && len(found) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		p.cfg.Log.Debug("network: not resolved", "host", t.name, "err", err)
		return nil, unreachable("%v is allowed, but its name can't be resolved.", t)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, nil
}

// resolve asks the system's resolver. The final dot keeps the domains of its search list out:
// a name is the one that the rules know.
func resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
}

// dial connects to the first address that answers, and leaves each its share of the time.
func (p *Proxy) dial(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	const most = 8
	addrs = addrs[:min(len(addrs), most)]
	end := time.Now().Add(p.cfg.Connecting)
	var errs []error
	for i, a := range addrs {
		share := time.Until(end) / time.Duration(len(addrs)-i)
		attempt, cancel := context.WithTimeout(ctx, share)
		conn, err := p.cfg.Dial(attempt, netip.AddrPortFrom(a, port))
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

// reasonOf is an error of a dial without addresses.
func reasonOf(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	default:
		return "it does not take the connection"
	}
}
