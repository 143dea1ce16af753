"""The workspace, as the client mirrors it: what changed, reading, writing.

User code owns the folder and may turn any part of it into a link, a pipe or nothing while
we look. So every step goes by a descriptor, follows no link and waits for nobody.
"""

import hashlib
import os
import shutil
import stat
import tempfile
import time

MOST = 10_000  # entries that are looked at
DEEPEST = 40
MAX_PATH = 1000  # bytes
RACY = 50_000_000  # ns: a file so young may change again without its times telling
SMALL = 1 << 20  # bytes of a file that is then read to tell
PART = 1 << 20  # bytes of files in one answer
REMEMBERED = 4096
PREFIX = ".mcp-sandbox-"  # of files on their way, here and at the client


def place(environ):
    """A directory that we may write to. A read-only root leaves little choice."""
    own = environ.get("DRX_WORKSPACE") or "/workspace"
    if os.path.isdir(own) and os.access(own, os.W_OK | os.X_OK):
        return own, False
    for parent in (environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm", os.getcwd()):
        try:
            return tempfile.mkdtemp(prefix="workspace-", dir=parent), True
        except OSError:
            pass
    raise OSError("no directory can be written to: mount one on /tmp or /workspace")


class Workspace:
    def __init__(self, found):
        self.path, self.ours = found
        self.path = os.path.realpath(self.path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.parent = os.open(os.path.dirname(self.path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.version = 0
        self.known = {0: {}}  # version -> what the client has been told of
        self.sure = {}  # path -> entry that was compared once more after its first moments
        self.puts = {}  # ids of the files that were last written
        self.open_up()

    def return_to(self):
        """Whether the workspace is where it was; where user code has removed it, it is made again."""
        name = os.path.basename(self.path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                fd = os.open(name, flags, dir_fd=self.parent)
            except FileNotFoundError:
                os.mkdir(name, 0o700, dir_fd=self.parent)
                fd = os.open(name, flags, dir_fd=self.parent)
        except OSError:
            return False
        os.close(self.fd)
        self.fd = fd
        return True

    def open_up(self):
        """Give ourselves the rights back that user code may have taken."""
        try:
            mode = stat.S_IMODE(os.fstat(self.fd).st_mode)
            if mode & 0o700 != 0o700:
                os.fchmod(self.fd, mode | 0o700)
        except OSError:
            pass

    def remove(self):
        if self.ours:
            shutil.rmtree(self.path, ignore_errors=True)

    # What is there

    def changes(self, version):
        """What differs from what the client knew at a version; all of it if that is forgotten."""
        before = self.known.get(version)
        full = before is None
        now, left = self.walk()
        self.sure = {path: entry for path, entry in self.sure.items() if path in now}
        earlier = before or {}
        changed = [[path, *entry[:3]] for path, entry in now.items() if earlier.get(path) != entry]
        gone = [path for path in earlier if path not in now]
        if changed or gone or full:
            self.version += 1
            self.known = {version: earlier, self.version: now}
            if full:
                del self.known[version]
        else:
            self.known = {version: now}
            self.version = version
        return {"version": self.version, "full": full, "changed": changed, "gone": gone, "left": left}

    def walk(self):
        """{path: (kind, size, mtime, …)} and {what was left out: how often}."""
        found, left = {}, {}
        begun = time.time_ns()
        if not self.return_to():
            count(left, "what lies in place of the workspace, which was removed")
        self.open_up()
        todo = [("", 0)]
        while todo:
            folder, depth = todo.pop()
            try:
                fd = self.enter(folder)
            except OSError:
                count(left, "folders that can't be entered")
                continue
            try:
                names = os.listdir(fd)
                for name in names:
                    if name.startswith(PREFIX):
                        continue
                    if len(found) >= MOST:
                        count(left, "beyond the first %d" % MOST)
                        continue
                    path = folder + "/" + name if folder else name
                    entry, why = self.look(fd, name, path, begun)
                    if why:
                        count(left, why)
                        continue
                    if entry[0] == "d":
                        if depth >= DEEPEST:  # the client would not send it back
                            count(left, "folders deeper than %d" % DEEPEST)
                            continue
                        todo.append((path, depth + 1))
                    found[path] = entry
            except OSError:
                count(left, "folders that can't be read")
            finally:
                os.close(fd)
        return found, left

    def look(self, fd, name, path, begun):
        """(entry, why it is left out)."""
        try:
            if len(path.encode()) > MAX_PATH:
                return None, "names that are too long"
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except UnicodeEncodeError:
            return None, "names that are not UTF-8"
        except OSError:
            return None, "files that are gone"
        if stat.S_ISDIR(found.st_mode):
            return ("d", 0, 0), ""
        if stat.S_ISLNK(found.st_mode):
            return None, "links"
        if not stat.S_ISREG(found.st_mode):
            return None, "sockets, pipes and devices"
        entry = ("f", found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        if found.st_ctime_ns > begun - RACY:
            # The times are of the kernel's tick: what changes within it looks the same.
            entry += (self.digest(fd, name) if found.st_size <= SMALL else begun,)
        else:
            entry += (self.settled(path, entry, fd, name),)
        return entry, ""

    def settled(self, path, entry, fd, name):
        """The last field of an entry whose times can be trusted, but for the first look at it."""
        for known in reversed(list(self.known.values())):
            before = known.get(path)
            if before is None or before[:5] != entry:
                continue
            if type(before[5]) is not str:
                return 0
            if self.sure.get(path) == entry:
                return before[5]
            self.sure[path] = entry  # it was young then
            return self.digest(fd, name)
        return 0

    def digest(self, fd, name):
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        except OSError:
            return ""
        try:
            return hashlib.sha256(os.read(file, SMALL)).hexdigest()
        except OSError:
            return ""
        finally:
            os.close(file)

    # One file

    def enter(self, folder, make=False):
        """A descriptor of a folder of the workspace."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.dup(self.fd)
        try:
            for part in folder.split("/") if folder else ():
                if part in ("", ".", ".."):
                    raise ValueError("a path that is none")
                if make:
                    try:
                        os.mkdir(part, 0o777, dir_fd=fd)
                    except FileExistsError:
                        pass
                inner = os.open(part, flags, dir_fd=fd)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def within(self, path, make=False):
        """(descriptor of its folder, name)."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".", "..") or "\0" in path or path.startswith("/"):
            raise ValueError("a path that is none")
        return self.enter(folder, make), name

    def fetch(self, wanted):
        """Parts of files; each that can't be read has its own error."""
        told, found, left = [], [], PART
        for piece in wanted:
            try:
                facts, data = self.read(piece["path"], piece["offset"], min(piece["size"], left))
                told.append(facts)
                found.append(data)
                left -= len(data)
            except OSError as error:
                told.append({"error": error.strerror or str(error)})
        return {"pieces": told}, b"".join(found)

    def read(self, path, offset, size):
        fd, name = self.within(path)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "it is no file")
            data = os.pread(file, size, offset)
            executable = found.st_mode & stat.S_IXUSR != 0
            return {"size": found.st_size, "changed": found.st_ctime_ns, "length": len(data), "executable": executable}, data
        finally:
            os.close(file)

    def put(self, pieces, data):
        """Parts of files; each that can't be written has its own error, the others none."""
        errors, at = [], 0
        self.return_to()
        for piece in pieces:
            part = data[at : at + piece["length"]]
            at += piece["length"]
            try:
                self.write(piece, part)
                errors.append("")
            except OSError as error:
                errors.append(error.strerror or str(error))
        return {"errors": errors}

    def write(self, piece, data):
        """A file gets its name with its last part."""
        path, identity = piece["path"], piece["id"]
        if piece.get("folder"):
            os.close(self.enter(path, True))
            return self.tell(path, ("d", 0, 0))
        if identity in self.puts:
            return  # the answer to it got lost
        if not identity.isalnum() or len(identity) > 64:
            raise ValueError("an id that is none")
        fd, name = self.within(path, True)
        try:
            part = PREFIX + identity
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(part, flags, 0o666, dir_fd=fd)
            try:
                at = piece["offset"]
                os.ftruncate(file, at)
                view = memoryview(data)
                while view:
                    done = os.pwrite(file, view, at)
                    view, at = view[done:], at + done
                if not piece["last"]:
                    return
                if piece.get("executable"):
                    os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) | 0o111)
                os.utime(file, ns=(piece["mtime"], piece["mtime"]))
                os.replace(part, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                try:
                    os.unlink(part, dir_fd=fd)
                except OSError:
                    pass
                raise
            finally:
                os.close(file)
            entry, why = self.look(fd, name, path, time.time_ns())
        finally:
            os.close(fd)
        if not why:
            self.tell(path, entry)
        while len(self.puts) >= REMEMBERED:
            del self.puts[next(iter(self.puts))]
        self.puts[identity] = True

    def tell(self, path, entry):
        """The client knows of this one: it made it."""
        for known in self.known.values():
            folder = path.rpartition("/")[0]
            while folder:
                known.setdefault(folder, ("d", 0, 0))
                folder = folder.rpartition("/")[0]
            known[path] = entry

    def delete(self, paths):
        """What the client has removed on its side."""
        failed = []
        for path in sorted(paths, reverse=True):  # what is in a folder before the folder
            try:
                fd, name = self.within(path)
                try:
                    if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                        os.rmdir(name, dir_fd=fd)
                    else:
                        os.unlink(name, dir_fd=fd)
                finally:
                    os.close(fd)
            except FileNotFoundError:
                pass
            except OSError:
                failed.append(path)
                continue
            for known in self.known.values():
                known.pop(path, None)
        return {"failed": failed}


def count(left, why):
    left[why] = left.get(why, 0) + 1
