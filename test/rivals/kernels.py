"""Drives ipykernel through jupyter_client for `make bench`: one line of JSON in, one out.

What is timed is the call alone, here beside the client, so that the talk with the benchmark
costs ipykernel nothing. The choices are those that were fastest: the blocking client (its
own execute_interactive adds a poll), no history in SQLite, no wait for readiness before the
first request (ZeroMQ holds it until the kernel is there), and the death of a kernel is
noticed by its process within a millisecond, where jupyter's restarter looks every three seconds.
"""

import json
import os
import queue
import sys
import threading
import time

from jupyter_client import KernelManager

answers = threading.Lock()


class Kernel(threading.Thread):
    """One kernel and its client, which belong to one thread."""

    def __init__(self):
        super().__init__(daemon=True)
        self.requests = queue.SimpleQueue()
        self.manager = KernelManager(kernel_name="python3")
        self.client = None

    def run(self):
        while True:
            request = self.requests.get()
            answer = {"id": request["id"]}
            try:
                begin = time.perf_counter()
                answer["value"] = getattr(self, request["op"])(request.get("code", ""))
                answer["seconds"] = time.perf_counter() - begin
                self.settle(request["op"])
            except Exception as e:
                answer["error"] = f"{type(e).__name__}: {e}"
            with answers:
                print(json.dumps(answer), flush=True)
            if request["op"] == "close":
                return

    def open(self, code):
        self.manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"], cwd=os.getcwd())
        self.client = self.manager.client()
        self.client.start_channels()
        return self.first(code)

    def first(self, code):
        """The first answer of a kernel, from its reply alone: the channel of output may come later."""
        sent = self.client.execute("", user_expressions={"value": code}, store_history=False, allow_stdin=False)
        return self.reply(sent)["user_expressions"]["value"]["data"]["text/plain"]

    def run_code(self, code):
        sent = self.client.execute(code, store_history=False, allow_stdin=False)
        self.reply(sent)
        value = ""
        while True:  # what a call printed or showed is complete when the kernel says idle
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != sent:
                continue
            if message["msg_type"] == "execute_result":
                value = message["content"]["data"]["text/plain"]
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return value

    def reply(self, sent):
        while True:
            message = self.client.get_shell_msg(timeout=300)
            if message["parent_header"].get("msg_id") == sent:
                break
        content = message["content"]
        if content["status"] != "ok":
            raise RuntimeError(f"{content.get('ename')}: {content.get('evalue')}")
        return content

    def kill(self, code):
        """From the call that kills its interpreter to the first answer after it."""
        self.client.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", store_history=False)
        while self.manager.is_alive():
            time.sleep(0.001)
        self.manager.restart_kernel(now=True)
        return self.first(code)

    def settle(self, op):
        if op in ("open", "kill"):
            self.client.wait_for_ready(timeout=300)

    def close(self, _):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def main():
    kernels = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["session"]
        if request["op"] == "open":
            kernels[name] = Kernel()
            kernels[name].start()
        kernels[name].requests.put(request)
        if request["op"] == "close":
            del kernels[name]
    for name, kernel in kernels.items():
        kernel.requests.put({"id": 0, "op": "close", "session": name})
        kernel.join()


main()
