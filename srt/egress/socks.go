package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/netip"
)

// SOCKS5, see RFC 1928. CONNECT is all that is served, and nobody authenticates: the port is
// the guest's own.
const (
	socksVersion = 5

	socksNoAuth    = 0
	socksNoMethods = 0xff

	socksIPv4, socksName, socksIPv6 = 1, 3, 4

	socksOK            = 0
	socksDenied        = 2
	socksUnreachable   = 4
	socksNoCommand     = 7
	socksNoAddressType = 8
)

// socksError is a request that is refused for what it is.
type socksError struct {
	reply byte
	text  string
}

// Error implements error.
func (e socksError) Error() string { return e.text }

// socks serves one connection.
func (c *client) socks() error {
	if err := readGreeting(c); err != nil {
		_, _ = c.Write([]byte{socksVersion, socksNoMethods}) // the error is what counts
		return err
	}
	if _, err := c.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return err
	}
	t, err := readSocksRequest(c)
	if err != nil {
		var s socksError
		if errors.As(err, &s) {
			c.reply(s.reply)
			return malformed("%s", s.text)
		}
		return err
	}
	up, g, err := c.proxy.connect(c.proxy.ctx, t)
	if err != nil {
		reply := byte(socksDenied)
		if refusalOf(err).Status == http.StatusBadGateway {
			reply = socksUnreachable
		}
		c.reply(reply)
		return err
	}
	c.deadline(c.proxy.cfg.Heading)
	if err := c.reply(socksOK); err != nil {
		up.Close()
		return err
	}
	return c.tunnel(up, t, g)
}

// reply tells what became of a request; the address is nobody's business.
func (c *client) reply(code byte) error {
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// readGreeting takes the client's first words, among which must be that it can do without a
// password.
func readGreeting(r io.Reader) error {
	var b [2 + 255]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return err
	}
	methods := b[2 : 2+int(b[1])]
	if _, err := io.ReadFull(r, methods); err != nil {
		return err
	}
	for _, m := range methods {
		if m == socksNoAuth {
			return nil
		}
	}
	return malformed("A SOCKS5 client here must do without a password.")
}

// readSocksRequest takes the one request of a connection.
func readSocksRequest(r io.Reader) (target, error) {
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return target{}, err
	}
	if b[0] != socksVersion || b[2] != 0 {
		return target{}, malformed("The SOCKS5 request is malformed.")
	}
	if b[1] != 1 {
		return target{}, socksError{socksNoCommand, "Of SOCKS5 there is CONNECT alone."}
	}
	size := 0
	switch b[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		if _, err := io.ReadFull(r, b[:1]); err != nil {
			return target{}, err
		}
		size = int(b[0])
	default:
		return target{}, socksError{socksNoAddressType, "The SOCKS5 request has an unknown kind of address."}
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(r, rest); err != nil {
		return target{}, err
	}
	text, port := rest[:size], binary.BigEndian.Uint16(rest[size:])
	var h host
	var err error
	if b[3] == socksName {
		h, err = parseHost(string(text))
	} else {
		addr, _ := netip.AddrFromSlice(text)
		h, err = hostOf(addr)
	}
	if err == nil && port == 0 {
		err = errors.New("a port must be named")
	}
	if err != nil {
		return target{}, socksError{socksDenied, err.Error()}
	}
	return target{h, port}, nil
}
