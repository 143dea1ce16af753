# Runs behind the wall before the first session. Every attempt must fail; what
# succeeds is named, and the server then refuses to start.
import os
import socket


def attempt(action):
    try:
        return "succeeded: %r" % (action(),)
    except (OSError, PermissionError) as e:
        return "failed: %s" % e


def read_outside():
    with open(inputs["canary"]) as f:
        return f.read()


def write_outside():
    for folder in (inputs["open"], os.path.dirname(inputs["canary"]), "/", "/usr", "/etc", os.path.dirname(os.__file__)):
        try:
            with open(os.path.join(folder, "mcp-sandbox-selftest"), "w"):
                return folder
        except OSError:
            pass
    raise PermissionError("nowhere")


def connect():
    with socket.create_connection(("127.0.0.1", inputs["port"]), 2):
        return "connected"


def connect_by_proxy():
    if not inputs["proxy"]:
        raise PermissionError("there is none")
    with socket.create_connection(("127.0.0.1", inputs["proxy"]), 2) as proxy:
        proxy.settimeout(5)
        proxy.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % inputs["port"])
        answer = proxy.recv(100)
    if not answer.startswith(b"HTTP/1.1 403 "):
        return answer
    raise PermissionError("refused")


def see_processes():
    if inputs["server"]:  # there is no PID namespace, so none must be seen, nor be in reach
        try:
            return os.listdir("/proc")
        except OSError:
            os.kill(inputs["server"], 0)
            return "the server can be signalled"
    ours = 1, inputs["supervisor"], os.getpid()
    seen = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in ours]
    if seen or os.getppid() != inputs["supervisor"]:
        return seen or "parent is %d" % os.getppid()
    raise PermissionError("none but our own")


def privileges():
    with open("/proc/self/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    wrong = [n for n in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb") if n not in inputs["concedes"] and int(status[n], 16)]
    wrong += [n for n, v in (("NoNewPrivs", "1"), ("Seccomp", "2")) if status[n].strip() != v]
    if wrong or os.getuid() == 0:
        return wrong or "uid 0"
    raise PermissionError("none")


_return = {
    "read a file outside": attempt(read_outside),
    "write outside the workspace": attempt(write_outside),
    "connect to the host": attempt(connect),
    "connect to the host by the proxy": attempt(connect_by_proxy),
    "see the host's processes": attempt(see_processes),
    "have privileges": attempt(privileges),
}
