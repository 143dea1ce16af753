"""What every Python client does with the server.

The same as flow.mjs; what it saw is printed as one JSON object, which
clients_test.go judges.
"""

import json
import os
import sys
import time

BUSY = "print('busy', flush=True)\nwhile True:\n    pass\n"
TALK = "import time\nfor i in range(5):\n    print('step', i, flush=True)\n    time.sleep(0.3)\n"


async def converse(client, mark):
    """client has list(), call(arguments, progress=, timeout=, tool=), abort(arguments, after) and handles."""
    seen = {}

    def named(arguments):
        if client.handles and "first" in seen:
            arguments["session_id"] = seen["first"]["session_id"]
        return arguments

    async def run(code, timeout_s=30, **options):
        return await client.call(named({"code": code, "timeout_s": timeout_s}), **options)

    tools = await client.list()
    seen["tools"] = [tool["name"] for tool in tools]
    seen["schema"] = all((tool.get("outputSchema") or {}).get("type") == "object" for tool in tools)

    seen["first"] = await run("x = 41")
    seen["second"] = await run("x + 1")
    seen["failed"] = await run("1 / 0")

    await run("_ = open('n.txt', 'w').write('3\\n1\\n2\\n')")
    seen["command"] = await client.call(named({"command": "sort n.txt | head -2 && wc -l n.txt"}), tool="execute_cli")

    pieces = []

    async def progress(value, total, message):
        pieces.append({"progress": value, "message": message or ""})

    seen["spoken"] = await run(TALK, progress=progress)
    seen["progress"] = list(pieces)

    async def interrupted(call):
        outcome = {"error": ""}
        try:
            await call
        except Exception as error:
            outcome["error"] = f"{type(error).__name__}: {error}"
        since = time.monotonic()
        outcome["next"] = await run("x")
        outcome["next_ms"] = round((time.monotonic() - since) * 1000)
        return outcome

    seen["abort"] = await interrupted(client.abort(named({"code": BUSY, "timeout_s": 60}), after=1))
    seen["timeout"] = await interrupted(run(BUSY, timeout_s=client.busy_timeout_s, timeout=1))
    seen["marked"] = await run(f"import subprocess\nchild = subprocess.Popen(['sleep', '{mark}'])\nchild.poll()")
    return seen


def over_http(server):
    """Whether server is no command but an address."""
    return server.startswith("http")


def headers():
    return {"Authorization": f"Bearer {os.environ['TOKEN']}"}


def report(seen, closing):
    seen["close_ms"] = round((time.monotonic() - closing) * 1000)
    json.dump(seen, sys.stdout)
