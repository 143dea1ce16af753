package srt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dialSockets is how many connections to a guest there can be at once.
const dialSockets = 32

// sendSockets sends unconnected sockets to the server. They belong to the network in which
// they were made: by them alone the server can reach what listens here.
func (c childConfig) sendSockets() error {
	if c.SocketsFD == 0 {
		return nil
	}
	defer unix.Close(c.SocketsFD)
	var all []int
	defer func() { closeFDs(all) }()
	for range dialSockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		all = append(all, fd)
	}
	return sendFDs(c.SocketsFD, all...)
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// dialer connects to one port behind a wall. A connection that has ended leaves its socket to
// the next. It is safe for concurrent use; a nil one has nothing to close.
type dialer struct {
	port int
	from *os.File      // the sockets come over it
	idle chan int      // those that are not connected
	done chan struct{} // closed by close

	mu     sync.Mutex
	closed bool
}

// newDialer returns the end of the Unix socket that be-child is to send over, too.
func newDialer(port int) (*dialer, *os.File, error) {
	here, there, err := unixPair("sockets")
	if err != nil {
		return nil, nil, err
	}
	return &dialer{port: port, from: here, idle: make(chan int, dialSockets), done: make(chan struct{})}, there, nil
}

// unixPair is two connected sockets, over which descriptors can be sent.
func unixPair(name string) (here, there *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), name), os.NewFile(uintptr(pair[1]), name), nil
}

// sendFDs sends descriptors over such a socket.
func sendFDs(over int, fds ...int) error {
	return unix.Sendmsg(over, []byte{1}, unix.UnixRights(fds...), nil, 0)
}

// receiveFDs takes at most n descriptors, which have been sent.
func receiveFDs(over *os.File, n int) ([]int, error) {
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*n))
	_, got, _, _, err := unix.Recvmsg(int(over.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("receive sockets: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:got])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receive sockets: %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, fmt.Errorf("receive sockets: %w", err)
	}
	return fds, nil
}

// receive takes the sockets, which have been sent.
func (d *dialer) receive() error {
	fds, err := receiveFDs(d.from, dialSockets)
	if err != nil {
		return err
	}
	for _, fd := range fds {
		d.idle <- fd
	}
	return nil
}

// close gives the sockets up; a connection keeps its own until it is closed.
func (d *dialer) close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.done)
	for len(d.idle) > 0 {
		select {
		case fd := <-d.idle:
			unix.Close(fd)
		default: // a dial was faster
		}
	}
	return d.from.Close()
}

// putBack makes a socket ready for the next connection.
func (d *dialer) putBack(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || disconnect(fd) != nil {
		unix.Close(fd)
		return
	}
	d.idle <- fd // there is room for all
}

// errGone is what a dial to a program that has ended says.
var errGone = errors.New("srt: the program has ended")

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	var fd int
	select {
	case fd = <-d.idle:
	case <-d.done:
		return nil, errGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	err := connectTo(ctx, fd, d.port)
	var conn net.Conn
	if err == nil {
		conn, err = connOf(fd)
	}
	if err != nil {
		d.putBack(fd)
		return nil, fmt.Errorf("srt: dial: %w", err)
	}
	return &dialed{TCPConn: conn.(*net.TCPConn), putBack: sync.OnceFunc(func() { d.putBack(fd) })}, nil
}

// dialed is a connection whose socket is used again.
type dialed struct {
	*net.TCPConn
	putBack func()
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	err := c.TCPConn.Close()
	c.putBack()
	return err
}

// connOf makes a connection of a descriptor that stays the caller's.
func connOf(fd int) (net.Conn, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), "socket of a guest's network")
	defer f.Close()
	return net.FileConn(f)
}

// connectTo connects a socket, which does not block, to a port of its network's loopback.
func connectTo(ctx context.Context, fd, port int) error {
	err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	const look = 20 // milliseconds between two looks at ctx; loopback takes none
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, look)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == 0:
			continue
		case err != nil:
			return err
		}
		return socketError(fd)
	}
}

// socketError takes the error that waits at a socket.
func socketError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && n != 0 {
		err = unix.Errno(n)
	}
	return err
}

// disconnect undoes connect(2): for TCP too, an address of no family dissolves the association.
func disconnect(fd int) error {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
	if errno != 0 {
		return errno
	}
	_ = socketError(fd) // of the connection that was
	return nil
}
