"""How code ended: status, exit code and the text of an error."""

errors = load("errors")
interrupts = load("interrupts")
sources = load("source")
text = load("text")
values = load("values")


class Verdict:
    """One for each worker. An exception of user code may run code of its own when it is looked at: only under the guard."""

    def __init__(self, interrupts, workdir):
        self.interrupts = interrupts
        self.workdir = workdir
        self.hint = ""  # what the server may add to the error of the last call

    def of(self, error):
        """The fields that say so; error is what the code raised, or None."""
        self.hint = ""
        if error is None:
            return {"status": "ok", "error": "", "exit_code": 0, "oom": False}
        kind = type(error)
        if issubclass(kind, SystemExit):
            return self.exited(error)
        stopped = self.interrupts.count > 0 and (
            issubclass(kind, (KeyboardInterrupt, interrupts.Interrupted))
            or values.name(kind) == "CancelledError"
        )
        return {
            "status": "interrupted" if stopped else "error",
            "error": self.describe(error),
            "exit_code": 130 if stopped else 1,
            "oom": issubclass(kind, MemoryError),
        }

    def exited(self, error):
        status, said = self.interrupts.guard(getattr, error, "code", None)[0], ""
        if status is None:
            status = 0
        elif issubclass(type(status), int):
            status = int.__add__(status, 0)  # whatever its class says about itself
            if status != 0:
                said = "SystemExit: %d" % status if abs(status) < 1 << 64 else "SystemExit"
                status = status & 0xFF or 1
        else:
            said = self.interrupts.guard(lambda: text.bounded(str(status), 20_000))[0] or "SystemExit"
            status = 1
        return {"status": "error" if said else "ok", "error": said, "exit_code": int(status), "oom": False}

    def describe(self, error):
        if type(error) is sources.Refused:
            return "SyntaxError: " + str(error)
        said, failed = self.interrupts.guard(errors.describe, error)
        if failed is not None and type(error) is KeyboardInterrupt:
            # Told by a frame, the signal on its heels: it hit the formatting.
            said, failed = self.interrupts.guard(errors.describe, error)
        if failed is not None:
            return errors.brief(error)
        found, failed = self.interrupts.guard(self.hinted, error)
        if found is not None:
            self.hint, more = found
            said += "\n\n" + more if more else ""
        return said

    def hinted(self, error):
        return load("hints").give(error, self.workdir, self.interrupts.count > 0)


def release(error):
    """Drop the local variables of the frames that an exception holds."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename not in kernel_files:
            try:
                trace.tb_frame.clear()
            except RuntimeError:
                pass  # still running: a generator's
        trace = trace.tb_next
