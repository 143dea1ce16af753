# Tries to get past the proxy of the sandbox's network, in every way that is known. What is
# reached, the other end tells; this only tries. inputs has the port of the proxy.
import concurrent.futures
import re
import socket
import ssl
import struct
import urllib.request

PROXY = ("127.0.0.1", inputs["port"])
attempts = {}


def attempt(name, action, *args):
    assert name not in attempts, name
    attempts[name] = (action, args)


def receive(s):
    got = b""
    try:
        while len(got) < 100_000:
            more = s.recv(65536)
            if not more:
                break
            got += more
    except OSError:
        pass
    return got


def say(*parts):
    """Sends the parts to the proxy, each after an answer to the one before."""
    with socket.create_connection(PROXY, 20) as s:
        s.settimeout(20)
        for part in parts[:-1]:
            s.sendall(part)
            s.recv(65536)
        s.sendall(parts[-1])
        s.settimeout(3)
        return receive(s)


def connect(authority, version="1.1", headers=""):
    if type(authority) is str:
        authority = authority.encode("utf-8")
    return say(b"CONNECT %s HTTP/%s\r\n%s\r\n" % (authority, version.encode(), headers.encode()), b"GET / HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n")


def get(url, host=None, method="GET", headers="", body=b""):
    if host is None:
        host = re.sub(r"^\w*:?/*", "", url).split("/")[0]
    return say(("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, url, host, headers)).encode("utf-8") + body)


def socks(kind, address, port=80, command=1, version=5):
    if kind == 3:
        address = bytes([len(address)]) + address
    request = bytes([version, command, 0, kind]) + address + struct.pack(">H", port)
    return say(b"\x05\x01\x00", request, b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")


def tls(authority, name, again=None):
    with socket.create_connection(PROXY, 20) as s:
        s.settimeout(20)
        s.sendall(b"CONNECT %s HTTP/1.1\r\n\r\n" % authority.encode())
        if b" 200 " not in s.recv(65536):
            return b"refused"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(s, server_hostname=name) as over:
            over.sendall(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            return receive(over)


def direct(family, address, port):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        s.connect((address, port))
        s.sendall(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        return receive(s)


def datagram(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"evil", (address, port))


# --- hosts and addresses that no rule names, in all their spellings

for authority in [
    "127.0.0.1:80", "127.0.0.1:443", "127.0.0.1:22", "localhost:80", "LOCALHOST.:80", "a.localhost:80", "127.1:80", "127.0.1:80", "2130706433:80",
    "0x7f000001:80", "0x7f.0.0.1:80", "0177.0.0.1:80", "127.0.0.1.:80", "127.000.000.001:80", "[::1]:80", "::1:80", "[::ffff:127.0.0.1]:80",
    "[::ffff:7f00:1]:80", "[::127.0.0.1]:80", "[0:0:0:0:0:ffff:127.0.0.1]:80", "0.0.0.0:80", "0:80", "[::]:80", "[::1%25lo]:80", "[fe80::1%lo]:80",
    "10.0.0.5:80", "[::ffff:10.0.0.5]:80", "[::ffff:a00:5]:80", "169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fd00:ec2::254]:80",
    "[fd00::1]:80", "[64:ff9b::10.0.0.5]:80", "[64:ff9b::7f00:1]:80", "[2002:7f00:1::1]:80", "[2002:a00:5::1]:80", "[2001:0:7f00:1::1]:80",
    "100.64.0.1:80", "100.100.100.200:80", "192.168.0.1:80", "172.16.0.1:80", "198.18.0.1:80", "224.0.0.1:80", "255.255.255.255:80",
    "93.184.216.34:80", "[::ffff:93.184.216.34]:443", "93.184.216.35:80", "8.8.8.8:80",
    "evil.test:80", "evil.test.:80", "EVIL.test:443", "good.test.evil.test:80", "evilgood.test:80", "sub.good.test:80", ".good.test:80", "good.test..:80",
    "good.test@evil.test:80", "evil.test:80@good.test:80", "evil.test#good.test:80", "evil.test?good.test:80", "evil.test/good.test:80", "evil.test\\good.test:80",
    "evil.test%00.good.test:80", "evil.test%2egood.test:80", "good.test:80,evil.test:80", "good.test:80:evil.test:80", "good.test:", "good.test", "good.test:0",
    "good.test:080", "good.test:65616", "good.test:+80", "good.test:-1", "wild.test:8443", "x.wild.test:80", "wild.test.evil.test:8443", "xwild.test:8443",
    "*.wild.test:8443", "x_y.wild.test:8443", "pinned.test:22", "pinned.test:80", "denied.wild.test:8443", "DENIED.wild.test.:8443",
    "xn--gd-fka.test:80", "g\u043eod.test:80", "\uff47ood.test:80", "good\u3002test:80", "evil.test\u2044good.test:80", "go\u00adod.test:80",
    # names that rules allow, and that lead where they must not
    "loop.test:80", "loop6.test:80", "mapped.test:80", "private.test:80", "metadata.test:80", "linklocal6.test:80", "ula.test:80", "carrier.test:80",
    "unspecified.test:80", "multicast.test:80", "nat64.test:80", "sixtofour.test:80", "teredo.test:80", "compatible.test:80", "mixed.test:80",
    "own.test:80", "nothing.test:80", "loop.test:22", "private.test:443",
]:
    attempt("CONNECT " + authority, connect, authority)
attempt("CONNECT with a NUL", connect, b"good.test\x00.evil.test:80")
attempt("CONNECT with a line in it", connect, b"good.test:80\nHost: evil.test")
attempt("CONNECT with a space in it", connect, b"evil.test:80 good.test:80")
attempt("CONNECT of HTTP/1.0", connect, "evil.test:80", "1.0")
attempt("CONNECT with another Host", connect, "evil.test:80", "1.1", "Host: good.test:80\r\n")
attempt("CONNECT, Host is evil", connect, "good.test:80", "1.1", "Host: evil.test:80\r\n")
attempt("CONNECT with a body", connect, "good.test:80", "1.1", "Content-Length: 40\r\n")
for i in range(4):  # one address at a time, a good one and a bad one in turn
    attempt("rebinding %d" % i, connect, "rebind.test:22")

for url in [
    "http://127.0.0.1/", "http://127.0.0.1:443/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://0x7f.1/", "http://10.0.0.5/",
    "http://169.254.169.254/latest/meta-data/", "http://evil.test/", "http://loop.test/", "http://private.test/", "http://mixed.test/", "http://own.test/",
    "http://good.test@127.0.0.1/", "http://good.test:80@evil.test/", "http://127.0.0.1\\@good.test/", "http://127.0.0.1#@good.test/", "http://good.test#@127.0.0.1/",
    "http://127.0.0.1?@good.test/", "http:///127.0.0.1/", "http:/127.0.0.1/", "http:127.0.0.1/", "//127.0.0.1/", "ftp://127.0.0.1/", "gopher://127.0.0.1:80/_x",
    "file:///etc/passwd", "https://127.0.0.1/", "unix:/run/docker.sock|http://localhost/", "/", "*", "http://", "http://:80/", "http://good.test:22@evil.test:80/",
]:
    attempt("GET " + url, get, url)
attempt("another Host", get, "http://good.test/", "evil.test")
attempt("Host is an address", get, "http://good.test/", "127.0.0.1")
attempt("Host with another port", get, "http://good.test/", "good.test:22")
attempt("Host with a user", get, "http://good.test/", "evil.test@good.test")
attempt("Host is good, the URL evil", get, "http://evil.test/", "good.test")
attempt("two Hosts", get, "http://good.test/", "good.test", "GET", "Host: evil.test\r\n")
attempt("two Hosts, evil first", get, "http://good.test/", "evil.test", "GET", "Host: good.test\r\n")
attempt("Host before a space", get, "http://good.test/", "good.test", "GET", "Host : evil.test\r\n")
attempt("a folded Host", get, "http://good.test/", "good.test\r\n evil.test")
attempt("Host after a bare LF", get, "http://good.test/", "good.test\nHost: evil.test")
attempt("Host after a bare CR", get, "http://good.test/", "good.test\rHost: evil.test")
attempt("no Host", say, b"GET http://good.test/ HTTP/1.1\r\n\r\n")
attempt("HTTP/1.0", say, b"GET http://good.test/ HTTP/1.0\r\nHost: evil.test\r\n\r\n")
attempt("HTTP/0.9", say, b"GET http://127.0.0.1/\r\n\r\n")
attempt("HTTP/2", say, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
attempt("Connection takes the Host away", get, "http://good.test/", "good.test", "GET", "Connection: Host\r\n")
smuggled = b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
attempt("pipelined", get, "http://good.test/", "good.test", "GET", "", b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
attempt("pipelined, for the host", get, "http://good.test/", "good.test", "GET", "", smuggled)
attempt("length and chunks", get, "http://good.test/", "good.test", "POST", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + smuggled)
attempt("two lengths", get, "http://good.test/", "good.test", "POST", "Content-Length: 0\r\nContent-Length: %d\r\n" % len(smuggled), smuggled)
attempt("odd length", get, "http://good.test/", "good.test", "POST", "Content-Length: +0\r\n", smuggled)
attempt("odd coding", get, "http://good.test/", "good.test", "POST", "Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + smuggled)
attempt("chunks, then more", get, "http://good.test/", "good.test", "POST", "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n" + smuggled)
attempt("after an answer", say, b"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
attempt("upgrade", get, "http://good.test/", "good.test", "GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n", smuggled)

# --- tunnels to the allowed host, for something else

attempt("tunnel: another Host", say, b"CONNECT good.test:80 HTTP/1.1\r\n\r\n", smuggled)
attempt("tunnel: a second request", say, b"CONNECT good.test:80 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n" + smuggled)
attempt("tunnel: a second one, later", say, b"CONNECT good.test:80 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", smuggled)
attempt("tunnel: a whole URL", say, b"CONNECT good.test:80 HTTP/1.1\r\n\r\n", b"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
attempt("tunnel: CONNECT again", say, b"CONNECT good.test:80 HTTP/1.1\r\n\r\n", b"CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test\r\n\r\n")
attempt("tunnel: another protocol", say, b"CONNECT good.test:22 HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n")
attempt("tunnel: binary", say, b"CONNECT good.test:22 HTTP/1.1\r\n\r\n", b"\x00\x01\x02")
attempt("tunnel: TLS of version 2", say, b"CONNECT good.test:443 HTTP/1.1\r\n\r\n", b"\x80\x2e\x01\x03\x01" + bytes(41))
attempt("tunnel: half TLS", say, b"CONNECT good.test:443 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
attempt("TLS: another name", tls, "good.test:443", "evil.test")
attempt("TLS: no name", tls, "good.test:443", None)
attempt("TLS: a name below", tls, "good.test:443", "x.good.test")
attempt("TLS: on a wild port", tls, "x.wild.test:8443", "evil.test")
attempt("TLS: another wild name", tls, "x.wild.test:8443", "y.wild.test")
attempt("TLS: on a pinned port", tls, "pinned.test:2525", "evil.test")

# --- SOCKS

attempt("SOCKS IPv4", socks, 1, bytes([127, 0, 0, 1]))
attempt("SOCKS IPv4, private", socks, 1, bytes([10, 0, 0, 5]))
attempt("SOCKS IPv4 of the allowed host", socks, 1, bytes([93, 184, 216, 34]))
attempt("SOCKS IPv6", socks, 4, bytes(15) + b"\x01")
attempt("SOCKS IPv6, mapped", socks, 4, bytes(10) + b"\xff\xff\x7f\x00\x00\x01")
attempt("SOCKS zero", socks, 1, bytes(4))
for name in [b"127.0.0.1", b"::1", b"[::1]", b"localhost", b"evil.test", b"good.test\x00.evil.test", b"evil.test\x00good.test", b"loop.test", b"mixed.test", b"0x7f.1", b"", b"good.test:80@evil.test"]:
    attempt("SOCKS name %r" % name, socks, 3, name)
attempt("SOCKS BIND", socks, 1, bytes(4), 80, 2)
attempt("SOCKS UDP", socks, 1, bytes(4), 53, 3)
attempt("SOCKS of version 4", say, b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00")
attempt("SOCKS of version 4a", say, b"\x04\x01\x00\x50\x00\x00\x00\x01\x00evil.test\x00")
attempt("SOCKS: another Host", socks, 3, b"good.test")

# --- past the proxy

for address in ["127.0.0.1", "127.0.0.2", "10.0.0.5", "93.184.216.34", "169.254.169.254", "8.8.8.8"]:
    attempt("direct " + address, direct, socket.AF_INET, address, 80)
for address in ["::1", "fd00::1", "2606:4700::1", "::ffff:10.0.0.5", "::ffff:127.0.0.1"]:
    attempt("direct " + address, direct, socket.AF_INET6, address, 80)
attempt("datagram", datagram, "10.0.0.5", 53)
attempt("datagram to the allowed host", datagram, "93.184.216.34", 53)
attempt("redirect to loopback", lambda: urllib.request.urlopen("http://good.test/redirect?to=http://127.0.0.1/", timeout=20).read())
attempt("redirect to a host", lambda: urllib.request.urlopen("http://good.test/redirect?to=http://evil.test/", timeout=20).read())
attempt("redirect to metadata", lambda: urllib.request.urlopen("http://good.test/redirect?to=http://169.254.169.254/", timeout=20).read())
attempt("resolver", lambda: socket.getaddrinfo("evil.test", 80))


def one(action, args):
    try:
        return repr(action(*args))[:200]
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)


with concurrent.futures.ThreadPoolExecutor(24) as pool:
    running = {name: pool.submit(one, *what) for name, what in attempts.items()}
_return = {name: f.result() for name, f in running.items()}
