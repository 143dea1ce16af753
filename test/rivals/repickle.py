"""The fresh interpreter of `make bench` that reads the namespace, runs code, and writes it back.

Usage: repickle.pyc plain|apart STATE SITE-PACKAGES, with the code on standard input. plain is
one stream of protocol 5 through a file, as the published design has it. apart is the best
that was found for large data: buffers out of band, written without a copy and mapped
copy-on-write when read, so that what a call doesn't touch is never read. Both import the C
pickler and nothing else; cloudpickle and dill are the same pickler with more to import.
What can't be pickled, which a product would have to leave out name by name, is an error.
"""

import sys
from _pickle import dump, dumps, load
from posix import rename

how, state, packages = sys.argv[1:]
sys.path.append(packages)
MODULE = type(sys)
ONLY_AST = 0x400  # of ast, without its import


def read():
    try:
        file = open(state, "rb")
    except FileNotFoundError:
        return {}
    with file:
        modules, sizes = load(file)
        namespace = load(file, buffers=views(file, sizes)) if sizes else load(file)
    for name, module in modules.items():
        __import__(module)
        namespace[name] = sys.modules[module]
    return namespace


def views(file, sizes):
    """The buffers, which lie before the end of the file."""
    from mmap import ACCESS_COPY, mmap

    whole = memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY))
    at = len(whole) - sum(map(aligned, sizes))
    for size in sizes:
        yield whole[at : at + size]
        at += aligned(size)


def aligned(size):
    return (size + 63) // 64 * 64


def write(namespace):
    modules = {k: v.__name__ for k, v in namespace.items() if type(v) is MODULE}
    values = {k: v for k, v in namespace.items() if k not in modules and not k.startswith("__")}
    with open(state + ".new", "wb") as file:
        if how == "plain":
            dump((modules, ()), file, 5)
            dump(values, file, 5)
        else:
            buffers = []
            stream = dumps(values, 5, buffer_callback=lambda b: buffers.append(b.raw()))
            dump((modules, [len(b) for b in buffers]), file, 5)
            file.write(stream)
            file.write(bytes(aligned(file.tell()) - file.tell()))
            for b in buffers:
                file.write(b)  # larger than its own buffer: goes to the kernel as it is
                file.write(bytes(aligned(len(b)) - len(b)))
    rename(state + ".new", state)


def run(namespace):
    tree = compile(sys.stdin.read(), "<call>", "exec", ONLY_AST)
    last = tree.body[-1] if tree.body else None
    if type(last).__name__ != "Expr":
        exec(compile(tree, "<call>", "exec"), namespace)
        return
    del tree.body[-1]
    exec(compile(tree, "<call>", "exec"), namespace)
    expression = compile("0", "<call>", "eval", ONLY_AST)
    expression.body = last.value
    print(repr(eval(compile(expression, "<call>", "eval"), namespace)), end="")


variables = {"__name__": "__main__", **read()}
run(variables)
write(variables)
