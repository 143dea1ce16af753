"""What a standby that took over must find in order: (calls before, a call that ends the worker, a check that gives True, parts of the notes).

The call that ends the worker changes what it can before it does.
"""

FALL = "\nimport os; os._exit(9)"

RESTORED = {
    "variables": (["x = 1; y = [1]"], "x = 2; y.append(2)", "(x, y) == (1, [1])", ()),
    "a half-read file": (
        ["open('f', 'w').write('abcdef'); f = open('f', 'rb', buffering=0); a = f.read(2)"],
        "f.read(2)", "f.read(2) == b'cd'", (),
    ),
    "a buffered file": (
        ["n = open('f', 'w').write('one\\ntwo\\nthree\\n'); f = open('f'); a = f.readline()"],
        "f.readline()", "f.readline() == 'two\\n'", (),
    ),
    "a file being written": (
        ["f = open('f', 'w'); n = f.write('abc')"],
        "f.close()", "n = f.write('d'); f.close(); open('f').read() == 'abcd'", (),
    ),
    "a file renamed and removed": (
        ["import os; n = open('f', 'w').write('abc'); f = open('f')"],
        "os.rename('f', 'g'); os.remove('g')", "f.read() == 'abc'", (),
    ),
    "a file without a name": (
        ["import tempfile; f = tempfile.TemporaryFile(); n = f.write(b'abc'); n = f.seek(1)"],
        "f.close()", "f.read() == b'bc'", (),
    ),
    "a file that can't be opened again": (
        ["import os; n = open('f', 'w').write('abc'); f = open('f', 'r+')"],
        "os.chmod('f', 0)",
        "os.geteuid() == 0 or os.stat('f').st_mode & 0o777 == 0", (),
    ),
    "flock": (
        ["import fcntl; f = open('f', 'w'); fcntl.flock(f, fcntl.LOCK_EX)"],
        "", "g = open('f')\ntry:\n    fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError:\n    held = True\nheld", (),
    ),
    "lockf": (
        ["import fcntl; f = open('f', 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 5, 10)"],
        "", "any('POSIX' in l for l in open('/proc/self/fdinfo/%d' % f.fileno()))", (),
    ),
    "append": (
        ["f = open('f', 'a'); n = f.write('a'); f.flush()"],
        "f.write('b'); f.flush()", "n = f.write('c'); f.close(); open('f').read() == 'abc'", (),
    ),
    "pipes and sockets are at their end": (
        ["import os, socket; r, w = os.pipe(); s, t = socket.socketpair()"],
        "",
        "s.settimeout(5); got = [os.read(r, 5), s.recv(5)]\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError:\n    got.append('broken')\ngot == [b'', b'', 'broken']",
        ("2 sockets", "2 pipes"),
    ),
    "numbers are not given away": (
        ["import os, socket; s = socket.socket()"],
        "", "f = open('f', 'w'); s.close(); n = f.write('x'); f.close(); open('f').read() == 'x'", ("1 socket,",),
    ),
    "a port is free": (
        ["import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); port = s.getsockname()[1]"],
        "", "s = socket.socket(); s.bind(('127.0.0.1', port)); True", ("1 socket,",),
    ),
    "threads": (
        ["import threading; go = threading.Event(); t = threading.Thread(target=go.wait, name='waiter'); t.start()"],
        "", "t.join(5); not t.is_alive() and threading.active_count() == 1", ("threads are not restored: waiter",),
    ),
    "an executor goes on": (
        ["from concurrent.futures import ThreadPoolExecutor; pool = ThreadPoolExecutor(2); n = pool.submit(pow, 2, 3).result()"],
        "", "pool.submit(pow, 2, 5).result(5) == 32", ("ThreadPoolExecutor",),
    ),
    "logging": (
        ["import logging, threading; h = logging.FileHandler('log'); logging.getLogger().addHandler(h); h.acquire(); h.release()\n"
         "go = threading.Event()\ndef hold():\n    with h.lock: go.wait()\nt = threading.Thread(target=hold); t.start()"],
        "", "logging.warning('one'); open('log').read() == 'one\\n'", ("threads",),
    ),
    "an import that a thread was in": (
        ["import threading, time, sys; sys.path.insert(0, '.'); n = open('slow.py', 'w').write('import time; time.sleep(30)'); t = threading.Thread(target=__import__, args=('slow',)); t.start(); time.sleep(0.2)",
         "n = open('slow.py', 'w').write('x = 1')"],
        "", "del sys.modules['slow']; import slow; slow.x == 1", ("threads",),
    ),
    "children": (
        ["import subprocess; p = subprocess.Popen(['sleep', '60'], stdout=-1)"],
        "", "p.poll() == -9 and p.stdout.read() == b''", ("1 child process ended", "1 pipe,"),
    ),
    "processes of multiprocessing": (
        ["import multiprocessing, time; p = multiprocessing.Process(target=time.sleep, args=(60,)); p.start()"],
        "", "p.join(5); p.exitcode == -9 and not p.is_alive()", ("child process",),
    ),
    "a pool of multiprocessing": (
        ["import multiprocessing, time; pool = multiprocessing.Pool(2); a = pool.apply_async(time.sleep, (60,)); b = pool.map_async(abs, range(4)); "
         "n = b.get(); c = pool.imap(time.sleep, [60, 60]); d = pool.map_async(time.sleep, [60, 60])"],
        "",
        "told = []\n"
        "for use in (lambda: pool.map(abs, [1]), lambda: a.get(5), lambda: d.get(5), lambda: c.next(5), lambda: c.next(5)):\n"
        "    try: use()\n"
        "    except Exception as e: told.append(type(e).__name__ + ': ' + str(e))\n"
        "pool.close(); pool.terminate(); pool.join()\n"
        "with multiprocessing.Pool(1) as pool: told.append(pool.map(abs, [-3]))\n"
        "(b.get(), [t if type(t) is list else t.partition(':')[0] for t in told], all('make another one' in t for t in told[:4])) == "
        "([0, 1, 2, 3], ['ValueError', 'RuntimeError', 'RuntimeError', 'RuntimeError', 'StopIteration', [3]], True)",
        ("1 pool of workers ended with them",),
    ),
    "a pool of threads of multiprocessing": (
        ["import time; from multiprocessing.pool import ThreadPool; pool = ThreadPool(2); a = pool.apply_async(time.sleep, (60,))"],
        "",
        "told = []\n"
        "for use in (lambda: pool.map(abs, [1]), lambda: a.get(5)):\n"
        "    try: use()\n"
        "    except Exception as e: told.append(type(e).__name__)\n"
        "pool.terminate(); pool.join()\ntold == ['ValueError', 'RuntimeError']", ("1 pool of workers ended",),
    ),
    "an executor with processes": (
        ["import time; from concurrent.futures import ProcessPoolExecutor; pool = ProcessPoolExecutor(2); done = pool.submit(abs, -1); n = done.result(); a = pool.submit(time.sleep, 60)"],
        "",
        "try: a.result(5)\nexcept Exception as e: told = type(e).__name__, 'submit it again' in str(e)\n"
        "found = (told, done.result(), pool.submit(abs, -2).result(20), list(pool.map(abs, [-3, -4])))\npool.shutdown()\n"
        "found == (('BrokenProcessPool', True), 1, 2, [3, 4])",
        ("1 pool of workers ended with them",),
    ),
    "an executor that was not used": (
        ["from concurrent.futures import ProcessPoolExecutor; pool = ProcessPoolExecutor(2)"],
        "", "n = pool.submit(abs, -2).result(20); pool.shutdown(); n == 2", ("pipes",),
    ),
    "an executor that was shut down": (
        ["from concurrent.futures import ProcessPoolExecutor; pool = ProcessPoolExecutor(2); n = pool.submit(abs, -2).result(20); pool.shutdown(); import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()"],
        "", "try: pool.submit(abs, -2)\nexcept RuntimeError: told = True\npool.shutdown(); told", ("threads are not restored",),
    ),
    "memory that is not copied": (
        ["import mmap; m = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.madvise(10)"],
        "", "True", ("1024 KiB that were kept out of copies",),
    ),
    "a queue of multiprocessing": (
        ["import multiprocessing; q = multiprocessing.SimpleQueue()"],
        "", "q = multiprocessing.Queue(); q.put(1); q.get(timeout=5) == 1", ("pipes",),
    ),
    "the loop": (
        ["import asyncio; seen = []\nasync def work():\n    await asyncio.sleep(0.01); seen.append(1); await asyncio.sleep(0.01); seen.append(2)\nasync def begin():\n    global t\n    t = asyncio.ensure_future(work())\nawait begin()"],
        "seen.append(9)", "await t\nseen == [1, 2] and await asyncio.to_thread(pow, 2, 2) == 4 if hasattr(asyncio, 'to_thread') else seen == [1, 2]", (),
    ),
    "a connection on the loop": (
        ["import asyncio\nserver = await asyncio.start_server(lambda r, w: None, '127.0.0.1', 0)\nreader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())\nread = None\nasync def begin():\n    global read\n    read = asyncio.ensure_future(reader.read())\nawait begin()"],
        "", "await asyncio.wait_for(read, 5) == b''", ("socket",),
    ),
    "a loop of the user's own": (
        ["import asyncio; mine = asyncio.new_event_loop(); n = mine.run_until_complete(asyncio.sleep(0, 5))"],
        "", "mine.run_until_complete(asyncio.sleep(0.01, 6)) == 6 and mine.close() is None", (),
    ),
    "handlers of signals": (
        ["import os, signal; heard = []; signal.signal(signal.SIGUSR1, lambda *_: heard.append(1)); n = signal.signal(signal.SIGCHLD, lambda *_: heard.append(2))"],
        "", "os.kill(os.getpid(), signal.SIGUSR1); pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0); sorted(heard) == [1, 2]", (),
    ),
    "random numbers differ": (["import random; a = random.random()"], "b = random.random(); open('b', 'w').write(repr(b))", "repr(random.random()) != open('b').read()", ()),
    "seeded ones don't": (["import random; random.seed(3); a = random.random()"], "b = random.random(); open('b', 'w').write(repr(b))", "repr(random.random()) == open('b').read()", ()),
    "a database": (
        ["import sqlite3; c = sqlite3.connect('db'); n = c.execute('create table t (x)'); c.commit()"],
        "c.execute('insert into t values (1)'); c.commit()", "sqlite3.connect('db').execute('select x from t').fetchall() == [(1,)]", ("SQLite",),
    ),
    "shared memory": (["import mmap; m = mmap.mmap(-1, 4096)"], "m[0] = 1", "m[0] == 1", ("shared memory is as the failed call left it",)),
    "a timer": (["import signal; n = signal.setitimer(signal.ITIMER_REAL, 1000)"], "", "signal.getitimer(signal.ITIMER_REAL)[0] == 0", ("timers",)),
    "exits": (["import atexit, weakref\nclass C: pass\nc = C(); f = weakref.finalize(c, print, 'finalized'); n = atexit.register(print, 'exit')"], "", "f.alive", ()),
    "a copy of standard output": (["import os; fd = os.dup(1)"], "", "os.write(fd, b'') == 0", ()),
    "the working directory": (["import os; os.mkdir('d'); os.chdir('d')"], "os.chdir('/')", "os.getcwd().endswith('/d')", ()),
    "the environment": (["import os; os.environ['A'] = '1'"], "os.environ['A'] = '2'", "os.environ['A'] == '1'", ()),
    "forks after it": (["1"], "", "import os; pid = os.fork()\nif pid == 0: os._exit(4)\nos.wait()[1] == 4 << 8", ()),
    "a traceback after it": (["def f():\n    return 1 / 0"], "", "import traceback\ntry:\n    f()\nexcept ZeroDivisionError:\n    text = traceback.format_exc()\n'return 1 / 0' in text", ()),
}
