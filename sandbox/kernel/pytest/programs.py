"""Programs that spread over several calls and look at what a checkpoint could disturb.

Each is a list of calls; the value of the last one must be True. They must behave the
same with checkpoints and without.
"""

# A child that tries to lock a file: 0 if it could.
TRY_LOCK = """
import subprocess, sys
def tried(how):
    code = "import fcntl, sys\\nf = open('lock', 'a')\\ntry:\\n    fcntl.%s(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\\nexcept OSError:\\n    sys.exit(1)" % how
    return subprocess.run([sys.executable, '-I', '-S', '-c', code]).returncode
"""

PROGRAMS = {
    "a Popen read in a later call": [
        "import subprocess\np = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
        "p.stdin.write(b'one\\n'); p.stdin.flush(); p.stdout.readline()",
        "p.stdin.close(); rest = p.stdout.read(); p.wait(10)",
        "(rest, p.returncode) == (b'', 0)",
    ],
    "a Popen that has ended meanwhile": [
        "import subprocess, time\np = subprocess.Popen(['sh', '-c', 'exit 7'])",
        "time.sleep(0.1)",
        "p.poll() == 7",
    ],
    "the end of a pipe": [
        "import os\nr, w = os.pipe()\nos.write(w, b'abc')",
        "os.close(w)",
        "[os.read(r, 10), os.read(r, 10)] == [b'abc', b'']",
    ],
    "a pipe without a reader": [
        "import os, signal\nr, w = os.pipe()",
        "os.close(r)",
        "try:\n    os.write(w, b'x')\nexcept BrokenPipeError:\n    broken = True\nbroken",
    ],
    "a port bound again": [
        "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); port = s.getsockname()[1]",
        "s.close(); s = socket.socket(); s.bind(('127.0.0.1', port)); s.listen()",
        "s.getsockname()[1] == port",
    ],
    "a connection closed": [
        "import socket\na, b = socket.socketpair()",
        "a.sendall(b'x'); a.close()",
        "b.settimeout(10); [b.recv(5), b.recv(5)] == [b'x', b'']",
    ],
    "a server in a thread": [
        "import socketserver, threading, socket\nclass H(socketserver.StreamRequestHandler):\n    def handle(self): self.wfile.write(self.rfile.readline().upper())\n"
        "server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), H)\nt = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01}); t.start()",
        "c = socket.create_connection(server.server_address); c.sendall(b'hello\\n')",
        "got = c.makefile().read(); c.close(); server.shutdown(); server.server_close(); t.join(10)",
        "got == 'HELLO\\n' and not t.is_alive()",
    ],
    "flock": [
        TRY_LOCK + "import fcntl\nf = open('lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "first = tried('flock')",
        "f.close()",
        "(first, tried('flock')) == (1, 0)",
    ],
    "flock within the process": [
        "import fcntl\nf = open('lock2', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "f.close(); g = open('lock2'); fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "g.close() is None",
    ],
    "lockf": [
        TRY_LOCK + "import fcntl\nf = open('lock', 'a'); fcntl.lockf(f, fcntl.LOCK_EX)",
        "first = tried('lockf')",
        "fcntl.lockf(f, fcntl.LOCK_UN)",
        "(first, tried('lockf')) == (1, 0)",
    ],
    "a half-read file": [
        "open('lines', 'w').write('one\\ntwo\\nthree\\n')\nf = open('lines')\na = f.read(2)",
        "b = f.readline()",
        "c = f.readline()",
        "(a, b, c, f.read()) == ('on', 'e\\n', 'two\\n', 'three\\n')",
    ],
    "a file read by its descriptor": [
        "import os\nopen('raw', 'w').write('abcdef')\nfd = os.open('raw', os.O_RDONLY); a = os.read(fd, 2)",
        "b = os.read(fd, 2)",
        "os.read(fd, 9) == b'ef' and (a, b) == (b'ab', b'cd')",
    ],
    "a file written over several calls": [
        "f = open('out', 'w'); n = f.write('a')",
        "n = f.write('b'); f.flush(); n = f.write('c')",
        "f.close()",
        "open('out').read() == 'abc'",
    ],
    "a file appended to": [
        "f = open('log', 'a'); n = f.write('a\\n')",
        "g = open('log', 'a'); n = g.write('b\\n'); g.close()",
        "f.close()",
        "open('log').read() == 'b\\na\\n'",
    ],
    "a file without a name": [
        "import tempfile\nf = tempfile.TemporaryFile(); n = f.write(b'hidden')",
        "n = f.seek(0)",
        "f.read() == b'hidden'",
    ],
    "a temporary directory": [
        "import tempfile, os\nd = tempfile.TemporaryDirectory(); n = open(d.name + '/x', 'w').write('x')",
        "first = os.listdir(d.name)",
        "d.cleanup()",
        "first == ['x'] and not os.path.exists(d.name)",
    ],
    "a program being written": [
        "import os, subprocess\nf = open('prog', 'w'); n = f.write('#!/bin/sh\\nexit 5\\n'); os.chmod('prog', 0o755)",
        "f.close(); code = subprocess.run(['./prog']).returncode",
        "code == 5",
    ],
    "a thread that works between the calls": [
        "import threading, time\nseen = []\ndef work():\n    for n in range(5):\n        time.sleep(0.01); seen.append(n)\nt = threading.Thread(target=work); t.start()",
        "t.join(10)",
        "seen == [0, 1, 2, 3, 4]",
    ],
    "a thread and a queue": [
        "import threading, queue\nasked, told = queue.Queue(), queue.Queue()\ndef work():\n    while (n := asked.get()) is not None: told.put(n * 2)\nt = threading.Thread(target=work); t.start()",
        "asked.put(21); a = told.get(timeout=10)",
        "asked.put(None); t.join(10)",
        "a == 42 and not t.is_alive()",
    ],
    "a lock that a thread holds": [
        "import threading\nlock, go = threading.Lock(), threading.Event()\ndef work():\n    with lock: go.wait(10)\nt = threading.Thread(target=work); t.start()",
        "first = lock.acquire(timeout=0.05)",
        "go.set(); t.join(10)",
        "(first, lock.acquire(timeout=5)) == (False, True)",
    ],
    "an executor": [
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2); a = pool.submit(pow, 2, 5)",
        "b = pool.submit(pow, 3, 2)",
        "(a.result(10), b.result(10)) == (32, 9)",
    ],
    "a process of multiprocessing": [
        "import multiprocessing\nq = multiprocessing.Queue()\ndef work(n): q.put(n * 2)\np = multiprocessing.Process(target=work, args=(21,)); p.start()",
        "got = q.get(timeout=10)",
        "p.join(10)",
        "(got, p.exitcode) == (42, 0)",
    ],
    "a pool of multiprocessing": [
        "import multiprocessing\npool = multiprocessing.Pool(2)",
        "a = pool.map(abs, [-1, -2])",
        "pool.close(); pool.join()",
        "a == [1, 2]",
    ],
    "shared memory": [
        "import mmap, os\nm = mmap.mmap(-1, 4096)\npid = os.fork()\nif pid == 0:\n    m[0] = 7; os._exit(0)",
        "n = os.waitpid(pid, 0)",
        "m[0] == 7",
    ],
    "no children to wait for": [
        "import os",
        "def none(f, *a):\n    try: f(*a)\n    except ChildProcessError: return True",
        "all([none(os.wait), none(os.waitpid, -1, os.WNOHANG), none(os.waitpid, 0, 0)])",
    ],
    "whoever waits for any child": [
        "import os, time\npid = os.fork()\nif pid == 0: time.sleep(0.05); os._exit(3)",
        "got = os.wait()",
        "got == (pid, 3 << 8)",
    ],
    "a handler of SIGCHLD": [
        "import os, signal, time\nheard = []\nsignal.signal(signal.SIGCHLD, lambda *_: heard.append(1))",
        "time.sleep(0.02)",
        "none = list(heard); pid = os.fork()\nif pid == 0: os._exit(0)\ntime.sleep(0.1)\nn = os.waitpid(pid, 0)",
        "(none, heard) == ([], [1])",
    ],
    "a child that ends between the calls": [
        "import os, signal, time\nheard = []\nsignal.signal(signal.SIGCHLD, lambda *_: heard.append(1))\npid = os.fork()\nif pid == 0: time.sleep(0.005); os._exit(0)",
        "time.sleep(0.05)",
        "n = os.waitpid(pid, 0); heard == [1]",
    ],
    "SIGCHLD awaited": [
        "import os, signal\nn = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])",
        "none = signal.sigtimedwait([signal.SIGCHLD], 0)",
        "pid = os.fork()\nif pid == 0: os._exit(0)\ngot = signal.sigtimedwait([signal.SIGCHLD], 10); n = os.waitpid(pid, 0)",
        "none is None and got.si_pid == pid",
    ],
    "handlers around a fork": [
        "import os\nheard = []\nos.register_at_fork(before=lambda: heard.append('before'), after_in_parent=lambda: heard.append('parent'), after_in_child=lambda: heard.append('child'))",
        "none = list(heard)",
        "pid = os.fork()\nif pid == 0: os._exit(heard != ['before', 'child'])\nstatus = os.waitpid(pid, 0)[1]",
        "(none, status, heard) == ([], 0, ['before', 'parent'])",
    ],
    "a task left behind": [
        "import asyncio\nseen = []\nasync def work():\n    for n in range(3):\n        await asyncio.sleep(0.01); seen.append(n)\ntask = asyncio.ensure_future(work()) if False else None\nasync def begin():\n    global task\n    task = asyncio.ensure_future(work())\nawait begin()",
        "1",
        "await task",
        "seen == [0, 1, 2]",
    ],
    "a server on the loop": [
        "import asyncio\nasync def serve(reader, writer):\n    writer.write((await reader.readline()).upper()); writer.close()\nserver = await asyncio.start_server(serve, '127.0.0.1', 0)",
        "reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())\nwriter.write(b'hello\\n')",
        "got = await reader.read(); writer.close(); server.close()",
        "got == b'HELLO\\n'",
    ],
    "a child of the loop": [
        "import asyncio\np = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)",
        "p.stdin.write(b'x'); p.stdin.close()",
        "got = await p.stdout.read(); n = await p.wait()",
        "(got, n) == (b'x', 0)",
    ],
    "work in a thread of the loop": [
        "import asyncio\nloop = asyncio.get_running_loop() if False else None\nasync def f(n): return await asyncio.get_running_loop().run_in_executor(None, pow, 2, n)\na = await f(3)",
        "b = await f(4)",
        "(a, b) == (8, 16)",
    ],
    "an open transaction": [
        "import sqlite3\nc = sqlite3.connect('db', isolation_level=None); n = c.execute('create table t (x)'); n = c.execute('begin immediate'); n = c.execute('insert into t values (1)')",
        "other = sqlite3.connect('db', timeout=0)\ntry:\n    n = other.execute('insert into t values (2)')\nexcept sqlite3.OperationalError as e:\n    locked = str(e)",
        "n = c.execute('commit'); n = c.execute('insert into t values (3)')",
        "[r[0] for r in other.execute('select x from t')] == [1, 3] and 'locked' in locked",
    ],
    "seeded random numbers": [
        "import random\nrandom.seed(1); a = [random.random()]",
        "a.append(random.random())",
        "r = random.Random(1); a == [r.random(), r.random()]",
    ],
    "a timer": [
        "import signal, time\nrang = []\nsignal.signal(signal.SIGALRM, lambda *_: rang.append(1)); n = signal.setitimer(signal.ITIMER_REAL, 0.05)",
        "1",
        "time.sleep(0.1)",
        "rang == [1]",
    ],
    "epoll": [
        "import select, os\nr, w = os.pipe(); e = select.epoll(); e.register(r, select.EPOLLIN)",
        "none = e.poll(0); n = os.write(w, b'x')",
        "got = e.poll(5); os.close(w); n = os.read(r, 5)",
        "none == [] and got == [(r, select.EPOLLIN)] and e.poll(5) == [(r, select.EPOLLHUP)]",
    ],
    "no descriptor more": [
        "import os",
        "before = sorted(os.listdir('/proc/self/fd'))",
        "after = sorted(os.listdir('/proc/self/fd'))",
        "before == after",
    ],
    "a copy of standard output": [
        "import os\nfd = os.dup(1)",
        "os.write(fd, b'through the copy\\n')",
        "os.close(fd) is None",
    ],
    "nothing runs at an exit that is none": [
        "import atexit, weakref\nclass C: pass\nc = C(); f = weakref.finalize(c, print, 'finalized'); n = atexit.register(print, 'exit')",
        "1",
        "f.alive",
    ],
    "a log": [
        "import logging\nlog = logging.getLogger('x'); h = logging.FileHandler('x.log'); log.addHandler(h); log.warning('one')",
        "log.warning('two')",
        "h.close(); open('x.log').read() == 'one\\ntwo\\n'",
    ],
    "a process that stays itself": [
        "import os, threading\nids = [(os.getpid(), os.getppid(), os.getpgid(0), threading.get_ident(), threading.get_native_id())]",
        "ids.append((os.getpid(), os.getppid(), os.getpgid(0), threading.get_ident(), threading.get_native_id()))",
        "ids[0] == ids[1]",
    ],
    "a subreaper": [
        "import ctypes, os, time\nn = ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)",
        "r, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    if os.fork() == 0:\n        time.sleep(0.05); os._exit(9)\n    os._exit(0)\nn = os.waitpid(pid, 0)",
        "got = os.wait()[1] >> 8",
        "got == 9",
    ],
    "a generator half run": [
        "def g():\n    for n in range(3): yield n\nit = g(); a = next(it)",
        "b = next(it)",
        "(a, b, list(it)) == (0, 1, [2])",
    ],
    "limits and hooks of the interpreter": [
        "import sys, decimal, warnings\nsys.setrecursionlimit(700); decimal.getcontext().prec = 5; warnings.simplefilter('error')",
        "(sys.getrecursionlimit(), decimal.getcontext().prec, warnings.filters[0][0])",
        "(sys.getrecursionlimit(), decimal.getcontext().prec, warnings.filters[0][0]) == (700, 5, 'error')",
    ],
}
