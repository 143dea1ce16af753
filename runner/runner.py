"""Runs one piece of Python in a container, and says on a line of its output what it returned.

The code, its inputs and its limits are variables of the environment; README.md
names them. Whatever the code does to this interpreter it does to the result
too: nothing here stands against it, the container does.
"""

import base64
import json
import os
import signal
import sys
import traceback

RESULT_MARKER = "__DR_SANDBOX_RESULT__:"

EXIT_ERROR = 1
EXIT_TIMEOUT = 124


class TimeoutReached(Exception):
    """The alarm rang. Code that catches Exception catches this too, and goes on."""


def number(name, default):
    """An integer of the environment; what is none counts as unset."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def limit_processes():
    """Bounds the tasks of this user: of the whole node, where users have no namespace."""
    wanted = number("DR_SANDBOX_MAX_PROCS", 4096)
    if wanted <= 0:
        return
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (wanted, wanted))
    except (ImportError, OSError, ValueError) as e:
        print(f"could not set process limit: {e}", file=sys.stderr, flush=True)
    else:
        print(f"sandbox process limit (RLIMIT_NPROC) set to {wanted}", file=sys.stderr, flush=True)


def set_alarm(seconds):
    def ring(signum, frame):
        raise TimeoutReached()

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)  # more than 2^31-1 is an OverflowError, and ends us


def exit_code(e):
    """What the interpreter would make of a SystemExit."""
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return int(e.code)
    print(e.code, file=sys.stderr, flush=True)
    return EXIT_ERROR


def execute(code, namespace, seconds):
    """Runs the code, and returns the exit code to end with."""
    if seconds > 0:
        set_alarm(seconds)
    try:
        try:
            exec(compile(code, "<sandbox>", "exec"), namespace)
        finally:
            signal.alarm(0)
    except TimeoutReached:
        print(f"sandbox exceeded timeout of {seconds}s", file=sys.stderr, flush=True)
        return EXIT_TIMEOUT
    except SystemExit as e:
        return exit_code(e)
    except BaseException:
        traceback.print_exc()
        return EXIT_ERROR
    return 0


def encode(value):
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):  # keys that JSON has not, a circle
        return json.dumps(repr(value))


def main():
    encoded = os.environ.get("DR_SANDBOX_CODE_B64")
    if not encoded:
        print("DR_SANDBOX_CODE_B64 not set", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    code = base64.b64decode(encoded).decode("utf-8")
    inputs = json.loads(base64.b64decode(os.environ.get("DR_SANDBOX_INPUTS_B64") or "e30=").decode("utf-8"))
    seconds = number("DR_SANDBOX_TIMEOUT_SECS", 3600)
    namespace = {"inputs": inputs, "_return": None}
    limit_processes()
    status = execute(code, namespace, seconds)
    print(RESULT_MARKER + encode(namespace.get("_return")), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
