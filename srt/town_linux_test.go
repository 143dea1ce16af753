package srt

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A town is a network namespace in which every address that matters is a real one, on
// loopback: the one host that may be reached, and all those that must not.

const townHost = "93.184.216.34"

// inTown reports whether this process is in one.
func inTown() bool {
	addrs, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), townHost+"/") })
}

// goToTown runs the calling test once more in a town, and passes on what becomes of it.
func goToTown(t *testing.T) {
	t.Helper()
	required(t, os.Geteuid() == 0, "only root makes a network namespace without a user namespace")
	cmd := actor(t, "town", &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET})
	for _, name := range []string{testBin, "MCP_SANDBOX_REQUIRE", clientPython, testSRT, testNode} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// buildTown gives the namespace its addresses. The networks of these are local too, as
// everything on loopback is. Ports are for everybody, also below 1024.
func buildTown() error {
	if err := raiseLoopback(); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for i, a := range []string{townHost, "10.0.0.5", "169.254.169.254", "192.168.0.1", "172.16.0.1", "100.64.0.1", "8.8.8.8", "198.18.0.1"} {
		alias, err := unix.NewIfreq(fmt.Sprintf("lo:%d", i))
		if err != nil {
			return err
		}
		ip := netip.MustParseAddr(a).As4()
		if err := alias.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) { // a machine without IPv6
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(six)
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	for _, a := range []string{"fd00::1", "fd00:ec2::254", "64:ff9b::a00:5", "64:ff9b::7f00:1", "2002:7f00:1::1", "2002:a00:5::1", "2606:4700::1"} {
		request := struct { // in6_ifreq
			addr   [16]byte
			prefix uint32
			index  int32
		}{netip.MustParseAddr(a).As16(), 128, int32(lo.Index)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(six), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("%s: %w", a, errno)
		}
	}
	return nil
}

// town is those who live there.
type town struct {
	rebound atomic.Int64
	mu      sync.Mutex
	reached []string // who must not be
}

func (w *town) report(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = append(w.reached, fmt.Sprintf(format, a...))
}

// take returns who was reached, and forgets.
func (w *town) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.reached
	w.reached = nil
	return was
}

// open opens every door: of the host that may be reached, and of all others.
func (w *town) open(t testing.TB) {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	keys := httptest.NewTLSServer(http.NotFoundHandler())
	keys.Close()
	secure := &tls.Config{Certificates: keys.TLS.Certificates, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !welcome(hello.ServerName) {
			w.report("TLS as %q at %v", hello.ServerName, hello.Conn.LocalAddr())
		}
		return nil, nil
	}}
	for _, port := range []string{"22", "53", "80", "443", "2525", "8443"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			t.Fatal(err)
		}
		door := guarded{l, w}
		switch port {
		case "2525":
			t.Cleanup(func() { l.Close() })
			go w.echo(door)
		default:
			s := &http.Server{Handler: http.HandlerFunc(w.serve), ErrorLog: quiet, TLSConfig: secure.Clone()}
			t.Cleanup(func() { s.Close() })
			if strings.HasSuffix(port, "443") {
				go s.ServeTLS(door, "", "")
			} else {
				go s.Serve(door)
			}
		}
	}
	u, err := net.ListenPacket("udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			w.report("datagram %q from %v", b[:n], from)
		}
	}()
}

// guarded tells of everybody who comes to another address than the one that is allowed.
type guarded struct {
	net.Listener
	town *town
}

func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at := netip.MustParseAddrPort(c.LocalAddr().String())
		if at.Addr().Unmap().String() == townHost {
			return c, nil
		}
		g.town.report("connection to %v", at)
		io.WriteString(c, "REACHED\n")
		c.Close()
	}
}

// welcome are the names that the rules allow and that lead here.
func welcome(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains([]string{"good.test", "rebind.test", "pinned.test"}, name) ||
		strings.HasSuffix(name, ".wild.test") && name != "denied.wild.test"
}

func (w *town) echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64<<10)
			for {
				n, err := c.Read(b)
				if bytes.Contains(b[:n], []byte("evil")) {
					w.report("%q at %v", b[:n], c.LocalAddr())
				}
				if _, e := c.Write(b[:n]); err != nil || e != nil {
					return
				}
			}
		}()
	}
}

// serve is the host that may be reached: a web site, and an index of packages.
func (w *town) serve(rw http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if r.TLS == nil && !welcome(host) {
		w.report("%s %s of %q at %v", r.Method, r.RequestURI, r.Host, r.Context().Value(http.LocalAddrContextKey))
		io.WriteString(rw, "REACHED\n")
		return
	}
	wheel, name := demoWheel()
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(rw, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/simple/demo/":
		fmt.Fprintf(rw, `<a href="/%s#sha256=%x">%s</a>`, name, sha256.Sum256(wheel), name)
	case "/" + name:
		rw.Write(wheel)
	default:
		io.WriteString(rw, "allowed")
	}
}

// resolve is the town's resolver.
func (w *town) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	if name == "rebind.test" && w.rebound.Add(1)%2 == 0 {
		name = "loop.test"
	}
	addrs := map[string]string{
		"good.test": townHost, "rebind.test": townHost, "pinned.test": townHost, "evil.test": "93.184.216.35",
		"loop.test": "127.0.0.1", "loop6.test": "::1", "mapped.test": "::ffff:10.0.0.5", "private.test": "10.0.0.5", "metadata.test": "169.254.169.254",
		"linklocal6.test": "fe80::1", "ula.test": "fd00::1", "carrier.test": "100.64.0.1", "unspecified.test": "0.0.0.0", "multicast.test": "224.0.0.1",
		"nat64.test": "64:ff9b::a00:5", "sixtofour.test": "2002:a00:5::1", "teredo.test": "2001:0:7f00:1::1", "compatible.test": "::7f00:1",
		"mixed.test": townHost + " 169.254.169.254", "own.test": "8.8.8.8",
	}[name]
	if strings.HasSuffix(name, ".wild.test") {
		addrs = townHost
	}
	if addrs == "" {
		return nil, errors.New("no such host")
	}
	var all []netip.Addr
	for _, a := range strings.Fields(addrs) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, nil
}

// demoWheel is a package of one module.
func demoWheel() (content []byte, name string) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	record := ""
	for _, f := range [][2]string{
		{"demo.py", "answer = 42\n"},
		{"demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"},
		{"demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	} {
		sum := sha256.Sum256([]byte(f[1]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f[0], base64.RawURLEncoding.EncodeToString(sum[:]), len(f[1]))
		w, _ := z.Create(f[0]) // to memory: can't fail
		io.WriteString(w, f[1])
	}
	w, _ := z.Create("demo-1.0.dist-info/RECORD")
	io.WriteString(w, record+"demo-1.0.dist-info/RECORD,,\n")
	z.Close()
	return b.Bytes(), "demo-1.0-py3-none-any.whl"
}
