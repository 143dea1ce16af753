package sandboxtest

import "mcp-sandbox/sandbox"

// libraryPrograms: what people really use of the standard library.
func libraryPrograms() []program {
	return []program{
		{name: "await", fresh: true, steps: []step{
			{code: "import asyncio\nawait asyncio.sleep(0, 5)", output: "5"},
			{code: "async def work(n):\n    await asyncio.sleep(0.05)\n    return n * 2"},
			{code: "await asyncio.ensure_future(work(21))", output: "42"},
			{code: "ev = asyncio.Event()\nasync def waiter():\n    await ev.wait()\n    return 'woken'\nw = asyncio.ensure_future(waiter())\nawait asyncio.sleep(0)"},
			{code: "ev.set()\nawait w", output: `"woken"`}, // one loop for all calls
			{code: "asyncio.run(work(4))", output: "8"},
			{code: "await work(5)", output: "10"},
			{code: "async def gen():\n    for i in range(3):\n        yield i\n[i async for i in gen()]", output: "[0,1,2]"},
			{code: "async with asyncio.Lock():\n    x = 6\nx", output: "6"},
			{code: "r = []\nasync for i in gen():\n    r.append(i)\nr", output: "[0,1,2]"},
			{code: "await asyncio.gather(work(1), work(2))", output: "[2,4]"},
			{code: "await work(1)\n1/0", status: failed, errs: []string{"ZeroDivisionError", "1/0"}, not: kernelFrames},
			{code: "async def bad():\n    raise KeyError('k')\nawait bad()", status: failed, errs: []string{"KeyError: 'k'", "in bad"}, not: kernelFrames},
			{code: "await asyncio.wait_for(asyncio.sleep(5), 0.05)", status: failed, errs: []string{"TimeoutError"}},
			{code: "def f():\n    return 1\nf()", output: "1"},
			{code: "import sys\nawait work(1)\nsys.exit(3)", status: failed, exit: 3},
			{code: "await work(3)", output: "6"},
		}},
		{name: "threads", steps: []step{
			{code: "import threading, queue\nq = queue.Queue()\nts = [threading.Thread(target=q.put, args=(i,)) for i in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nsorted(q.get() for _ in ts)", output: "[0,1,2,3,4,5,6,7]"},
			{code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as e: r = list(e.map(str, range(3)))\nr", output: `["0","1","2"]`},
			{code: "def boom(): raise ValueError('in a thread')\nth = threading.Thread(target=boom)\nth.start()\nth.join()", stderr: anything},
			{code: "threading.current_thread() is threading.main_thread()", output: "true"},
		}},
		{name: "processes", needs: []Ability{Processes, Semaphores}, steps: []step{
			{code: "import multiprocessing as mp\ndef sq(x): return x * x\nwith mp.Pool(2) as p: r = p.map(sq, range(10))\nr", stderr: anything, output: "[0,1,4,9,16,25,36,49,64,81]"},
			{code: "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(2) as e: r = list(e.map(sq, [2, 3]))\nr", stderr: anything, output: "[4,9]"},
			{code: "q = mp.Queue()\np = mp.Process(target=q.put, args=(5,))\np.start()\nv = q.get(timeout=20)\np.join()\nv", stderr: anything, output: "5"},
			{code: "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(6)'], capture_output=True, text=True).stdout", output: `"6\n"`},
			{code: "import os\npid = os.fork()\nif pid == 0: os._exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", stderr: anything, output: "7"},
			{code: "p = subprocess.Popen(['sh', '-c', 'read x; echo got $x'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\nNone"},
			{code: "p.communicate('it\\n')[0]", output: `"got it\n"`}, // a child of an earlier call
		}},
		{name: "a fork that falls through", needs: []Ability{Processes}, fresh: true, steps: []step{
			{code: "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent', flush=True)\nx = 'child' if pid == 0 else 'parent'\nif pid: os.waitpid(pid, 0)\nx", stdout: anything, stderr: anything, output: `"parent"`},
			{code: "x", output: `"parent"`},
			{code: "pid = os.fork()\nif pid == 0: raise ValueError('in the child')\nos.waitpid(pid, 0)[0] == pid", stdout: anything, stderr: anything, output: "true"},
			{code: "x", output: `"parent"`},
		}},
		{name: "files and databases", steps: []step{
			{code: "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('create table t(a)')\nc.executemany('insert into t values (?)', [(i,) for i in range(10)])\nc.execute('select sum(a) from t').fetchone()", output: "[45]"},
			{code: "f = sqlite3.connect('db.sqlite')\nf.execute('create table t(a)')\nf.execute('insert into t values (7)')\nf.commit()"},
			{code: "f.execute('select a from t').fetchall()", output: "[[7]]"},
			{code: "f.close()\nsqlite3.connect('db.sqlite').execute('select a from t').fetchone()", output: "[7]"},
			{code: "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n    open(os.path.join(d, 'x'), 'w').write('y')\n    r = os.listdir(d)\nr", output: `["x"]`},
			{code: "import pathlib\npathlib.Path('p.txt').write_text('é')\npathlib.Path('p.txt').read_text()", output: `"é"`},
			{code: "import csv, io\nlist(csv.reader(io.StringIO('a,b\\n1,2\\n')))", output: `[["a","b"],["1","2"]]`},
			{code: "h = open('half.txt', 'w+')\nh.write('abcdef')\nh.seek(0)\nh.read(3)", output: `"abc"`},
			{code: "h.read()", output: `"def"`},
		}},
		{name: "introspection", steps: []step{
			{code: "import inspect\ndef f(a, b=2):\n    # a comment\n    return a + b\ninspect.getsource(f)", output: `"def f(a, b=2):\n    # a comment\n    return a + b\n"`},
			{code: "inspect.getsource(f).count('comment')", output: "1"}, // of an earlier call
			{code: "class C:\n    def m(self):\n        return 1\n'def m' in inspect.getsource(C)", output: "true"},
			{code: "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: str = 'd'\npickle.loads(pickle.dumps(P(1))) == P(1)", output: "true"},
			{code: "pickle.loads(pickle.dumps(P)) is P and pickle.loads(pickle.dumps(f)) is f", output: "true"},
			{code: "import typing\ntyping.get_type_hints(P)['x'] is int", output: "true"},
			{code: "import doctest\ndef g():\n    '''\n    >>> 1 + 1\n    2\n    '''\ndoctest.run_docstring_examples(g, globals())"},
			{code: "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\nunittest.TextTestRunner(stream=open('/dev/null', 'w')).run(unittest.defaultTestLoader.loadTestsFromTestCase(T)).wasSuccessful()", output: "true"},
			{code: "import gc, weakref\nclass W: pass\nw = W()\nr = weakref.ref(w)\ndel w\n_ = gc.collect()\nr() is None", output: "true"},
		}},
		{name: "the rest of it", steps: []step{
			{code: "try:\n    import zoneinfo\n    z = zoneinfo.ZoneInfo('Europe/Berlin')\n    ok = True\nexcept Exception as e:\n    ok = type(e).__name__\nok in (True, 'ModuleNotFoundError', 'ZoneInfoNotFoundError')", output: "true"},
			{code: "import locale, os, time, random, hashlib, zlib, decimal\n[zlib.decompress(zlib.compress(b'x' * 1000)) == b'x' * 1000, len(os.urandom(8)), hashlib.sha256(b'').hexdigest()[:4]]", output: `[true,8,"e3b0"]`},
			{code: "import sys\n[sys.stdout.encoding.lower().replace('-', ''), sys.getfilesystemencoding().replace('-', '')]", output: `["utf8","utf8"]`},
			{code: "import signal\ngot = []\nsignal.signal(signal.SIGUSR1, lambda *a: got.append(1))\nos.kill(os.getpid(), signal.SIGUSR1)\ntime.sleep(0.05)\ngot", output: "[1]"},
			{code: "signal.signal(signal.SIGALRM, lambda *a: got.append(2))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(0.2)\ngot", output: "[1,2]"},
			{code: "import socket\na, b = socket.socketpair()\na.send(b'hi')\nb.recv(2).decode()", output: `"hi"`},
			{code: "import urllib.request\ntry:\n    urllib.request.urlopen('http://192.0.2.1/', timeout=2)\n    r = 'connected'\nexcept OSError:\n    r = 'refused'\nr", output: `"refused"`, status: sandbox.StatusOK},
			{code: "import functools\n@functools.lru_cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(80)", output: `"23416728348467685"`},
			{code: "help(len)", stdout: anything},
			{code: "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as o: print('inner')\no.getvalue()", output: `"inner\n"`},
			{code: "import textwrap, re, itertools, heapq, bisect, statistics\nstatistics.mean([1, 2, 3])", output: "2"},
		}},
	}
}
