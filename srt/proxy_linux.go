package srt

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"mcp-sandbox/srt/egress"
)

// proxyBacklog is how many connections of the guest may wait to be taken.
const proxyBacklog = 256

// proxySocket opens the socket on which the proxy will listen. It belongs to the guest's
// network, though no process of the guest's ever holds it: none can take from it, and none
// can bind its port.
func proxySocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, proxyAddress); err != nil {
		err = fmt.Errorf("bind the proxy's port: %w", err)
	} else if err = unix.Listen(fd, proxyBacklog); err != nil {
		err = fmt.Errorf("listen on the proxy's port: %w", err)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

var proxyAddress = &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}}

// sendListener opens the proxy's socket, and sends it to the server.
func (c childConfig) sendListener() error {
	if c.ProxyFD == 0 {
		return nil
	}
	defer unix.Close(c.ProxyFD)
	fd, err := proxySocket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return sendFDs(c.ProxyFD, fd)
}

// openProxy takes the listening socket, which has been sent, and serves rules on it.
func (c *cage) openProxy(from *os.File, rules egress.Rules, cfg egress.Config) error {
	fds, err := receiveFDs(from, 1)
	if err != nil {
		return err
	}
	return c.serveProxy(os.NewFile(uintptr(fds[0]), "the proxy's socket"), rules, cfg)
}

// serveProxy serves rules on a listening socket, which it takes over, as long as the cage lives.
func (c *cage) serveProxy(f *os.File, rules egress.Rules, cfg egress.Config) error {
	defer f.Close() // the listener has its own
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("the proxy's socket: %w", err)
	}
	cfg.Rules = rules
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c.proxy, c.ended = egress.Serve(l, cfg), make(chan struct{})
	go func() { // ends with the cage
		defer close(c.ended)
		<-c.done
		c.proxy.Close()
	}()
	return nil
}
