"""Where user code lives: its directory, and the path on which it finds modules."""

import sys
from posix import chdir

# Names that only the site module brings, or by which code can reach it. See Home.site.
NEEDS_SITE = ("import", "__", "exit", "quit", "help", "exec", "eval", "copyright", "credits", "license")


class Home:
    """One for each worker. Without a workdir it is wherever the kernel was started."""

    def __init__(self, workdir):
        self.workdir = workdir
        self.away = False
        self.unsited = sys.flags.no_site
        if workdir:
            self.enter()
            # At the end: a json.py there shadows nothing.
            sys.path.append(workdir)
        self.path = list(sys.path)  # what the session itself adds is told by this

    def enter(self):
        """Go to the workspace. User code may have closed it; the server opens it before the next call."""
        try:
            chdir(self.workdir)
            self.away = False
        except OSError:
            self.away = True

    def ready(self, code):
        """Before code runs: what it could notice if it were not there."""
        if self.unsited and (not code.isascii() or any(word in code for word in NEEDS_SITE)):
            self.site()
        if self.away:
            self.enter()

    def site(self):
        """What `python -S` left out: site-packages, .pth files, exit() and help().

        It takes 2 ms to 30 ms, by what is installed, and most first calls can't
        tell. So the kernel runs under -S and does this in the first pause, or
        before the first code that could notice.
        """
        if not self.unsited:
            return
        self.unsited = False
        if self.workdir and sys.path[-1:] == [self.workdir]:
            sys.path.pop()
        try:
            import site

            site.main()
        except (Exception, SystemExit):
            pass  # it has complained on stderr, as at any start of Python
        if self.workdir and self.workdir not in sys.path:
            sys.path.append(self.workdir)
        self.path = list(sys.path)
