"""Whether the kernel has killed for want of memory: a signal alone does not say why it came."""

import os

# The container's own control group, by both versions; where it is not shown, the whole
# machine's count, which tells as much beside a process of ours that was just killed.
PLACES = "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"


class Kills:
    def __init__(self):
        self.fd = -1
        self.before = 0
        for place in PLACES:
            try:
                self.fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if self.read() is not None:
                break
            os.close(self.fd)
            self.fd = -1

    def read(self):
        try:
            data = os.pread(self.fd, 1 << 16, 0)
        except OSError:
            return None
        for line in data.splitlines():
            if line.startswith(b"oom_kill "):
                return int(line[9:])
        return None

    def begin(self):
        self.before = self.read() or 0

    def since(self):
        """How many since begin."""
        return max((self.read() or 0) - self.before, 0)
