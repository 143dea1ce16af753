"""HTTP/1.1, as much of it as a gateway speaks to a container.

One request at a time on a connection, bodies with a length or in chunks, all of it
bounded: user code can connect here too, and may send what it likes.
"""

import select
import socket
import sys
import time

MAX_HEAD = 32 << 10  # bytes
MAX_BODY = 2 << 20
MAX_CONNECTIONS = 64
CHUNK = 256 << 10
PATIENCE = 30  # s for a request to arrive whole, and for an answer to be taken
IDLE = 300  # s that a connection may be silent

REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 501: "Not Implemented"}


class Bad(Exception):
    """Not a request that is answered here."""


class Server:
    def __init__(self, agent, port):
        self.agent = agent
        self.connections = {}
        self.socket = listen(port)
        self.socket.setblocking(False)
        agent.watch(self.socket.fileno(), select.POLLIN, self.accept)

    def accept(self, _):
        try:
            peer, _ = self.socket.accept()
        except OSError:
            return
        if len(self.connections) >= MAX_CONNECTIONS:
            # Those who never proved to be the client go first, then who is silent longest.
            min(self.connections.values(), key=lambda c: (c.trusted, c.since)).close()
        self.connections[peer.fileno()] = Connection(self, peer)

    def due(self, now):
        """Seconds until a connection has to be looked at; closes those whose time is over."""
        due = 60.0
        for connection in list(self.connections.values()):
            left = connection.deadline() - now
            if left <= 0:
                connection.close()
            else:
                due = min(due, left)
        return due


def listen(port):
    """On all addresses, by IPv6 too where there is any."""
    if socket.has_ipv6:
        try:
            server = socket.socket(socket.AF_INET6)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind(("::", port))
            server.listen(64)
            return server
        except OSError:
            pass
    server = socket.socket(socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    server.listen(64)
    return server


class Connection:
    def __init__(self, server, peer):
        self.server = server
        self.peer = peer
        self.fd = peer.fileno()
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.busy = False  # a request is being answered
        self.last = False  # close after this answer
        self.closed = False
        self.trusted = False
        self.since = time.monotonic()
        self.gone = None  # is called when the peer goes while it waits for its answer
        self.watch()

    def watch(self):
        mask = select.POLLOUT if self.outbox else select.POLLIN
        self.server.agent.watch(self.fd, mask, self.ready)

    def deadline(self):
        if self.busy and not self.outbox:
            return self.since + 2 * IDLE
        return self.since + (PATIENCE if self.inbox or self.outbox else IDLE)

    def close(self):
        if self.closed:
            return
        self.closed = True
        self.server.agent.watch(self.fd, 0, None)
        self.server.connections.pop(self.fd, None)
        self.peer.close()
        if self.gone is not None:
            self.gone()
            self.gone = None

    def ready(self, event):
        try:
            if self.outbox:
                self.push()
            else:
                self.pull()
        except BlockingIOError:
            pass
        except (OSError, Bad):
            self.close()
        except Exception as error:  # whatever a peer may send, the others go on
            sys.stderr.write("agent: %s: %s\n" % (type(error).__name__, error))
            self.close()

    def pull(self):
        data = self.peer.recv(CHUNK)
        # Bytes of a next request before the answer to this one: no client of ours does that.
        if not data or self.busy:
            return self.close()
        if not self.inbox:
            self.since = time.monotonic()
        self.inbox += data
        if len(self.inbox) > MAX_HEAD + 2 * MAX_BODY:
            return self.refuse(413)
        self.parse()

    def parse(self):
        end = self.inbox.find(b"\r\n\r\n")
        if end < 0:
            if len(self.inbox) > MAX_HEAD:
                self.refuse(413)
            return
        lines = bytes(self.inbox[:end]).decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return self.refuse(400)
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                return self.refuse(400)
            headers[name.strip().lower()] = value.strip()
        try:
            body, used = self.body(headers, end + 4)
        except (ValueError, Bad):
            return self.refuse(400)
        if body is None:
            return
        if len(body) > MAX_BODY:
            return self.refuse(413)
        del self.inbox[:used]
        self.last = headers.get("connection", "").lower() == "close" or words[2] == "HTTP/1.0"
        self.busy = True
        self.since = time.monotonic()
        self.server.agent.answer(self, words[0], words[1].partition("?")[0], body)

    def body(self, headers, start):
        """The body and where it ends; None while it has not arrived."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self.chunks(start)
        text = headers.get("content-length", "0")
        if not text.isdigit() or len(text) > 10:
            raise Bad
        size = int(text)
        if size > MAX_BODY:
            return bytes(MAX_BODY + 1), len(self.inbox)
        if len(self.inbox) < start + size:
            return None, 0
        return bytes(self.inbox[start : start + size]), start + size

    def chunks(self, at):
        body = bytearray()
        while True:
            end = self.inbox.find(b"\r\n", at)
            if end < 0:
                return None, 0
            size = int(bytes(self.inbox[at:end]).partition(b";")[0], 16)
            if size < 0 or len(body) + size > MAX_BODY:
                raise Bad
            at = end + 2
            if size == 0:  # trailers are not for us
                end = self.inbox.find(b"\r\n", at)
                return (None, 0) if end < 0 else (bytes(body), end + 2)
            if len(self.inbox) < at + size + 2:
                return None, 0
            body += self.inbox[at : at + size]
            at += size + 2

    def refuse(self, status):
        self.last = True
        self.reply(status, b"")

    def reply(self, status, body, kind="application/octet-stream"):
        if self.closed:
            return
        self.busy, self.gone = False, None
        self.since = time.monotonic()
        self.outbox += (
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n%s\r\n"
            % (status, REASONS[status], kind, len(body), "Connection: close\r\n" if self.last else "")
        ).encode() + body
        try:
            self.push()
        except BlockingIOError:
            self.watch()
        except OSError:
            self.close()

    def push(self):
        while self.outbox:
            del self.outbox[: self.peer.send(self.outbox[:CHUNK])]
        if self.last:
            return self.close()
        self.watch()
