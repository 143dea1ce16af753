"""The kernel: one live Python interpreter for one session, as a server sees it.

Started as `python3 -I -S main.py --in FD --out FD`, it becomes the supervisor,
which never runs a line of user code, and forks a worker, which does.

Start-up is most of a session's first answer, so nothing here or in the modules
that main loads imports anything that is not built into the interpreter or a
small C module: no os, re, json, signal, ctypes, argparse. What costs more is
imported when a call needs it, or while the interpreter is idle.
"""

import builtins
import gc
import posix
import sys

# User code may replace what it finds in builtins. A copy, given to the kernel's
# modules as *their* builtins, keeps them whole. (Functions take their builtins
# from here when they are made, so this stands before the first of them.)
__builtins__ = dict(vars(builtins))

PACKAGE = "mcp_sandbox_kernel"
FOLDER, SUFFIX = __file__.rpartition("main")[::2]  # ".py", or ".pyc" in a sandbox

compiled = globals().get("compiled", {})  # name -> code, where it came with the process and lies in no file
modules = {}
files = set()  # code.co_filename of every module of the kernel: frames to hide


def load(name):
    """Load a sibling of this file, once; every sibling finds this very function in its globals.

    The kernel keeps out of sys.modules and sys.path: `import worker` in user
    code must find the user's module, and a user's values.py must not be ours.
    """
    module = modules.get(name)
    if module is None:
        code = compiled.get(name)
        if code is None:
            path = FOLDER + name + SUFFIX
            with open(path, "rb") as file:
                data = file.read()
            if SUFFIX == ".pyc":
                import marshal

                code = marshal.loads(data[16:])
            else:
                code = compile(data, path, "exec", dont_inherit=True)
        module = modules[name] = type(sys)(PACKAGE + "." + name)
        files.add(code.co_filename)
        vars(module).update(load=load, kernel_files=files, __builtins__=__builtins__)
        try:
            exec(code, vars(module))
        except BaseException:  # an interrupt, where user code made us load it: half a module is none
            modules.pop(name, None)
            raise
    return module


def options(arguments):
    """Options are pairs, the values of all but two are numbers."""
    found = {"--in": 3, "--out": 4, "--oom-fd": -1, "--domain-fd": -1, "--max-frame": 32 << 20, "--workdir": "", "--held": 0, "--checkpoint": "off"}
    if len(arguments) % 2:
        sys.exit("kernel: options come in pairs")
    for name, value in zip(arguments[::2], arguments[1::2]):
        if name not in found:
            sys.exit("kernel: unknown option " + name)
        found[name] = value if name in ("--workdir", "--checkpoint") else int(value)
    if found["--checkpoint"] not in ("always", "idle", "off"):
        sys.exit("kernel: --checkpoint is always, idle or off")
    return found


def main():
    found = options(sys.argv[1:])
    files.add(main.__code__.co_filename)
    if sys.platform != "linux":
        found["--checkpoint"] = "off"
    # Both roles are loaded before the first fork: a later worker starts at once, and
    # none needs to read a file once user code may have used up its descriptors.
    load("worker")
    supervisor = load("supervisor").Supervisor(
        found["--in"], found["--out"], found["--oom-fd"], found["--max-frame"], found["--checkpoint"], found["--domain-fd"]
    )
    gc.freeze()  # a worker's collector would write to what it shares with us, and so copy it
    # The server may still be putting this process under its limits, which a worker
    # inherits: then a byte ahead of the first frame says that it has.
    if found["--held"] and posix.read(found["--in"], 1) != b"g":
        posix._exit(0)
    channel = supervisor.run()  # returns in a worker alone
    try:
        load("worker").Worker(channel, found["--workdir"]).serve()
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        # At once: an ordinary exit would wait for threads that user code left.
        posix._exit(1)


main()
