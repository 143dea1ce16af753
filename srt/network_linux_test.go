package srt

import (
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt/egress"
)

//go:embed testdata/bypass.py
var bypasses string

// leastBypasses is how many ways past the proxy are tried, at least.
const leastBypasses = 80

// movedToTown reports whether the test runs in the town. Elsewhere the whole of it has been
// run there, by a test binary of its own.
func movedToTown(t *testing.T) bool {
	t.Helper()
	if acting() == "town" {
		if err := buildTown(); err != nil {
			t.Fatal(err)
		}
	}
	if !inTown() {
		t.Parallel() // it waits
		goToTown(t)
		return false
	}
	return true
}

// Nobody but the one host is ever reached, by name or by address, through the proxy or past
// it; and that host is, by the programs that people use.
func TestNetwork(t *testing.T) {
	if !movedToTown(t) {
		return
	}
	asEachUser(t, func(t *testing.T) {
		w := &town{}
		w.open(t)
		w.provesItself(t)
		l := local(t, w.config(t))
		if text := l.String(); !strings.Contains(text, "network: loopback alone; through the server's proxy there: good.test, ") {
			t.Errorf("%s", text)
		}
		s := opener(l)(t).(*session)

		res := do(t, s, `import os; port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2]); port`, sandbox.StatusOK, sandbox.StateNew)
		if string(res.Output) != "3129" {
			t.Fatalf("the proxy is at %s", res.Output)
		}
		w.isReached(t, s)
		w.holds(t, s)
		proxyIsTheServers(t, s)
		takesMany(t, s)

		// The network is the wall's, whoever runs in it.
		do(t, s, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", sandbox.StatusCrash, sandbox.StateRestored)
		do(t, s, `import urllib.request; assert port == 3129 and urllib.request.urlopen("http://good.test/").read() == b"allowed"`, sandbox.StatusOK, sandbox.StateKept)
		c := s.live.cage
		if n := c.proxy.Counts(); n.Connections < 200 || n.Refused < leastBypasses || n.In == 0 || n.Out == 0 {
			t.Errorf("counted %+v", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-c.ended:
		default:
			t.Error("the proxy has outlived the session")
		}
	})
}

// The wall srt has the same network, though srt lets nobody inside send a descriptor out.
func TestSRTNetwork(t *testing.T) {
	if !movedToTown(t) {
		return
	}
	asUser(t, func(t *testing.T) {
		w := &town{}
		w.open(t)
		w.provesItself(t)
		cfg := w.config(t)
		cfg.Warm = 0
		l := srtLocal(t, cfg)
		if text := l.String(); !strings.Contains(text, "network: loopback alone; through the server's proxy there: good.test, ") {
			t.Errorf("%s", text)
		}
		s := opener(l)(t).(*session)
		do(t, s, `import os; assert os.environ["HTTPS_PROXY"] == "http://127.0.0.1:3129"`, sandbox.StatusOK, sandbox.StateNew)
		w.isReached(t, s)
		w.holds(t, s)
		proxyIsTheServers(t, s)
		passesNoBridge(t, s)
		c := s.live.cage
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-c.ended:
		default:
			t.Error("the proxy has outlived the session")
		}
	})
}

// passesNoBridge tries the proxy of srt's own, which listens inside too.
func passesNoBridge(t *testing.T, s sandbox.Session) {
	t.Helper()
	do(t, s, `
import socket
said = {}
for address in ("127.0.0.1", 3128), ("::1", 3128), ("127.0.0.1", 1080):
    for ask in b"CONNECT good.test:80 HTTP/1.1\r\nHost: good.test:80\r\n\r\n", b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", b"\x05\x01\x00":
        try:
            with socket.create_connection(address, 20) as c:
                c.sendall(ask)
                said[address, ask] = c.recv(1000)
        except OSError as e:
            said[address, ask] = repr(e).encode()
for key, answer in said.items():
    assert b" 200 " not in answer[:20] and b"allowed" not in answer and answer != b"\x05\x00", (key, answer)
said`, sandbox.StatusOK, sandbox.StateKept)
}

// config is a sandbox that reaches the town's host, under rules that lead elsewhere too.
func (w *town) config(t *testing.T) Config {
	t.Helper()
	allow := []string{"good.test", "*.wild.test:8443", "pinned.test:2525", "rebind.test"}
	for _, name := range []string{"loop", "loop6", "mapped", "private", "metadata", "linklocal6", "ula", "carrier", "unspecified", "multicast", "nat64",
		"sixtofour", "teredo", "compatible", "mixed", "own", "nothing"} {
		allow = append(allow, name+".test")
	}
	rules, err := egress.ParseRules(allow, []string{"denied.wild.test"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Network: rules, Limits: small, Warm: 1, proxy: egress.Config{
		Resolve: w.resolve,
		Own:     func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil },
	}}
	if python := os.Getenv(clientPython); python != "" {
		cfg.Python = python
	}
	return cfg
}

// provesItself sees to it that those who must not be reached would tell.
func (w *town) provesItself(t *testing.T) {
	t.Helper()
	at := []string{"127.0.0.1:80", "127.0.0.2:22", "10.0.0.5:443", "93.184.216.35:80", "169.254.169.254:80", "8.8.8.8:8443", "100.100.100.200:2525"}
	if six, err := net.Dial("tcp", "[::1]:80"); err == nil {
		six.SetDeadline(time.Now().Add(patience))
		io.ReadAll(six) // until it has been told of
		six.Close()
		at = append(at, "[::1]:80", "[fd00::1]:80", "[64:ff9b::a00:5]:80")
	}
	w.take()
	for _, a := range at {
		c, err := net.Dial("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		io.ReadAll(c)
		c.Close()
	}
	req, err := http.NewRequest("GET", "http://"+townHost+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.test"
	if res, err := (&http.Transport{}).RoundTrip(req); err != nil {
		t.Fatal(err)
	} else {
		res.Body.Close()
	}
	if c, err := tls.Dial("tcp", townHost+":443", &tls.Config{ServerName: "evil.test", InsecureSkipVerify: true}); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	if got := w.take(); len(got) != len(at)+2 {
		t.Fatalf("of %d who must not be reached only these tell: %q", len(at)+2, got)
	}
}

// isReached uses what people use.
func (w *town) isReached(t *testing.T, s sandbox.Session) {
	t.Helper()
	res := do(t, s, `
import importlib.util, shutil
[name for name, there in (("pip", importlib.util.find_spec("pip")), ("curl", shutil.which("curl"))) if not there]`, sandbox.StatusOK, sandbox.StateKept)
	required(t, string(res.Output) == "[]", "missing: "+string(res.Output))
	do(t, s, `
import ssl, subprocess, sys, urllib.request
unchecked = ssl._create_unverified_context()
for url in "http://good.test/", "https://good.test/", "https://x.wild.test:8443/":
    assert urllib.request.urlopen(url, context=unchecked).read() == b"allowed", url
    for more in [], ["-x", "socks5h://127.0.0.1:3129"]:
        ran = subprocess.run(["curl", "-sSk", *more, url], capture_output=True, text=True)
        assert ran.stdout == "allowed", (url, more, ran)
    if importlib.util.find_spec("requests"):
        import requests
        assert requests.get(url, verify=False).text == "allowed"
try:
    urllib.request.urlopen("https://evil.test/")
except OSError as e:
    assert "evil.test:443 is not allowed" in str(e) and "--allow-domain" in str(e), e
else:
    assert False
`, sandbox.StatusOK, sandbox.StateKept)
	res, err := s.Run(t.Context(), sandbox.Request{Timeout: 2 * patience, Code: `
ran = subprocess.run([sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "install", "--index-url", "http://good.test/simple",
    "--trusted-host", "good.test", "--target", os.path.expanduser("~/packages"), "demo"], capture_output=True, text=True)
assert ran.returncode == 0, ran
sys.path.append(os.path.expanduser("~/packages"))
import demo
demo.answer`})
	if err != nil || string(res.Output) != "42" {
		t.Errorf("pip: %s%s, %v", res.Output, res.Error, err)
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("reached on the way: %q", got)
	}
}

// holds tries everything.
func (w *town) holds(t *testing.T, s sandbox.Session) {
	t.Helper()
	res, err := s.Run(t.Context(), sandbox.Request{Code: bypasses, Inputs: map[string]any{"port": proxyPort}, Timeout: 5 * patience})
	if err != nil || res.Status != sandbox.StatusOK {
		t.Fatalf("%v\n%s%s", err, res.Error, res.Stderr)
	}
	var tried map[string]string
	if err := json.Unmarshal(res.ReturnValue, &tried); err != nil {
		t.Fatal(err)
	}
	if len(tried) < leastBypasses {
		t.Errorf("%d attempts alone were made", len(tried))
	}
	for _, name := range slices.Sorted(maps.Keys(tried)) {
		if strings.Contains(tried[name], "REACHED") {
			t.Errorf("%s: %s", name, tried[name])
		}
	}
	if got := w.take(); len(got) > 0 {
		t.Errorf("reached: %q", got)
	}
	t.Logf("%d ways past the proxy were tried", len(tried))
}

// proxyIsTheServers tries to take the proxy's place.
func proxyIsTheServers(t *testing.T, s sandbox.Session) {
	t.Helper()
	do(t, s, `
import glob, os, socket
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"), (socket.AF_INET6, "::ffff:127.0.0.1"):
    try:
        with socket.socket(family) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.bind((address, 3129))
            s.listen()
        assert False, address
    except OSError as e:
        assert e.errno in (98, 97, 99), (address, e)  # in use; or no IPv6
listening = [l.split()[9] for l in open("/proc/net/tcp") if " 0100007F:0C39 " in l and " 0A " in l]
assert len(listening) == 1, listening
held = []
for fd in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        held.append(os.readlink(fd))
    except OSError:
        pass
assert len(held) > 3 and "socket:[%s]" % listening[0] not in held, held
`, sandbox.StatusOK, sandbox.StateKept)
}

// takesMany has 200 connections at once.
func takesMany(t *testing.T, s sandbox.Session) {
	t.Helper()
	res, err := s.Run(t.Context(), sandbox.Request{Timeout: 2 * patience, Code: `
import asyncio
async def opened():
    r, w = await asyncio.open_connection("127.0.0.1", 3129)
    w.write(b"CONNECT pinned.test:2525 HTTP/1.1\r\n\r\n")
    assert b" 200 " in await r.readuntil(b"\r\n\r\n")
    return r, w
async def used(i, r, w):
    data = b"%06d" % i * 1000
    w.write(data)
    w.write_eof()
    assert await r.read(-1) == data
    w.close()
all = await asyncio.gather(*[opened() for _ in range(200)])
await asyncio.gather(*[used(i, *c) for i, c in enumerate(all)])
len(all)`})
	if err != nil || string(res.Output) != "200" {
		t.Errorf("%s%s, %v", res.Output, res.Error, err)
	}
}
