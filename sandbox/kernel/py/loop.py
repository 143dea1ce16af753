"""One event loop for the whole session, made at the first top-level await.

Tasks that one call leaves behind go on during the next call that awaits.
"""

import sys
from posix import getpid

interrupts = load("interrupts")

PATIENCE = 20  # turns of the loop that a task gets to obey its cancelling


class Loop:
    def __init__(self, state):
        self.state = state  # the worker's Interrupts
        self.loop = None
        self.task = None
        self.pid = 0
        self.abandoned = False

    def run(self, coroutine):
        """Await coroutine to its end; its value or exception."""
        import asyncio

        loop = self.loop
        if loop is None or loop.is_closed() or self.pid != getpid():
            loop = self.loop = asyncio.new_event_loop()
            self.pid = getpid()
            self.library = asyncio.__file__.rpartition("/")[0] + "/"
            self.selectors = sys.modules["selectors"].__file__
        asyncio.set_event_loop(loop)
        self.abandoned = False
        task = self.task = loop.create_task(coroutine)
        task.add_done_callback(lambda _: loop.stop())
        self.state.waiter = self
        try:
            return self.drive(loop, task)
        finally:
            self.state.waiter = None
            self.task = None

    def drive(self, loop, task):
        escaped = None
        while not task.done() and not self.abandoned:
            try:
                loop.run_forever()
            except BaseException as error:
                # KeyboardInterrupt or SystemExit, in whichever task: it ends the
                # call, once the call's own task has wound up.
                escaped = escaped or error
                task.cancel()
        if escaped is not None:
            if task.done() and not task.cancelled():
                task.exception()  # seen: no complaint about it later
            raise escaped
        if not task.done():
            raise interrupts.Interrupted("the code ignored that it was cancelled, and was left behind")
        return task.result()

    # Called by the signals' handler

    def idle(self, frame):
        """Whether a frame is the loop's own work, or waiting, and not a step of user code."""
        while frame is not None and frame.f_code is not DRIVE:
            name = frame.f_code.co_filename
            if not name.startswith(self.library) and name != self.selectors:
                return False
            frame = frame.f_back
        return True

    def cancel(self, hard):
        """Cancel the call's task; hard: and leave it behind if it does not end."""
        loop, task = self.loop, self.task
        if task is not None:
            # At once: a step that is due already must begin with the CancelledError.
            task.cancel()
            # The call wakes a loop that waits.
            if hard:
                loop.call_soon_threadsafe(self.give_up, loop, task, PATIENCE)
            else:
                loop.call_soon_threadsafe(lambda: None)

    def give_up(self, loop, task, turns):
        if task.done() or task is not self.task:
            return
        if turns == 0:
            self.abandoned = True
            loop.stop()
            return
        loop.call_soon(self.give_up, loop, task, turns - 1)


DRIVE = Loop.drive.__code__
