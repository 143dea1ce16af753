package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// socketLimit is a listener of which only so many connections are open at once, and
// from one address no more than are left to others. It accepts further ones to turn
// them away: who waits unheard can't know why.
type socketLimit struct {
	net.Listener
	places *budget // by who is at the other end
	plain  bool    // what is said is not encrypted, so that a word of refusal can be
}

var crowded = fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", int(retryAfter.Seconds()))

// Accept implements net.Listener.
func (l *socketLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if who := neighbour(c.RemoteAddr()); l.places.take(who, 1) {
			return &socket{Conn: c, leave: sync.OnceFunc(func() { l.places.give(who, 1) })}, nil
		}
		if l.plain { // it fits into the socket's buffer
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = c.Write([]byte(crowded))
		}
		_ = c.Close()
	}
}

// neighbour is an address, or of IPv6 the network of one host, which has as many
// addresses as it likes.
func neighbour(a net.Addr) string {
	at := addressOf(a)
	if at.Is6() {
		if p, err := at.Prefix(64); err == nil {
			return p.String()
		}
	}
	return at.String()
}

type socket struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (s *socket) Close() error {
	defer s.leave()
	return s.Conn.Close()
}
