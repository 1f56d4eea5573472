"""flock, fcntl and open-file-description locks between processes on files under the directory given.

Prints `ok NAME` or `FAILED NAME: why` for each check. Every wait ends by an event or fails after a minute.
"""
import errno
import fcntl
import os
import select
import signal
import struct
import sys

os.chdir(sys.argv[1])
signal.alarm(60)
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
LAYOUT = "hhqqi4x"


def check(name, right):
    print(f"ok {name}" if right else f"FAILED {name}")


def opened(name, flags=os.O_RDWR | os.O_CREAT):
    return os.open(name, flags, 0o644)


def lock(fd, kind, start=0, length=0, command=fcntl.F_SETLK):
    """True if the lock was taken, False if another holds it."""
    try:
        fcntl.fcntl(fd, command, struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0))
        return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise


def holder(fd, kind, start=0, length=0, command=fcntl.F_GETLK):
    """(type, start, length, process) of a lock in the way, or None."""
    answer = fcntl.fcntl(fd, command, struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, process = struct.unpack(LAYOUT, answer)
    return None if kind == UNLOCK else (kind, start, length, process)


def flocked(fd, how):
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Other:
    """A child that runs what it is sent, one function name and arguments a line, and answers with the result."""

    def __init__(self):
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.down)
            os.close(self.up)
            files = {}
            with os.fdopen(down_read) as orders:
                for order in orders:
                    result = eval(order, globals(), {"files": files})  # Our own orders.
                    os.write(up_write, f"{result!r}\n".encode())
            os._exit(0)
        os.close(down_read)
        os.close(up_write)
        self.answers = os.fdopen(self.up)

    def send(self, order):
        os.write(self.down, f"{order}\n".encode())

    def answered(self, seconds):
        return bool(select.select([self.up], [], [], seconds)[0])

    def receive(self):
        return eval(self.answers.readline())

    def ask(self, order):
        self.send(order)
        return self.receive()

    def end(self):
        os.close(self.down)
        os.waitpid(self.process, 0)

    def kill(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def whole_file():
    other, fd = Other(), opened("f")
    other.ask("files.__setitem__(0, opened('f'))")
    check("flock: two shared", flocked(fd, fcntl.LOCK_SH) and other.ask("flocked(files[0], fcntl.LOCK_SH)"))
    check("flock: no exclusive beside a shared", not flocked(fd, fcntl.LOCK_EX))
    fcntl.flock(fd, fcntl.LOCK_UN)
    check("flock: exclusive when the other let go", other.ask("flocked(files[0], fcntl.LOCK_EX)"))
    check("flock: then nothing for us", not flocked(fd, fcntl.LOCK_SH))
    second = opened("f")
    other.ask("fcntl.flock(files[0], fcntl.LOCK_UN)")
    check("flock: belongs to the open file", flocked(fd, fcntl.LOCK_EX) and not flocked(second, fcntl.LOCK_EX))
    copy = os.dup(fd)
    os.close(fd)
    check("flock: a duplicate keeps it", not flocked(second, fcntl.LOCK_EX))
    os.close(copy)
    check("flock: the last close drops it", flocked(second, fcntl.LOCK_EX))
    other.send("fcntl.flock(files[0], fcntl.LOCK_EX)")
    check("flock: a waiter waits", not other.answered(0.3))
    fcntl.flock(second, fcntl.LOCK_UN)
    check("flock: and is woken", other.answered(30) and other.receive() is None)
    other.kill()
    fcntl.flock(second, fcntl.LOCK_EX)
    check("flock: a killed process holds nothing", True)


def ranges():
    other, fd = Other(), opened("r")
    other.ask("files.__setitem__(0, opened('r'))")
    check("fcntl: a range", lock(fd, WRITE, 10, 10))
    check("fcntl: the neighbours are free", other.ask("lock(files[0], WRITE, 0, 10) and lock(files[0], WRITE, 20, 0)"))
    check("fcntl: an overlap is not", not other.ask("lock(files[0], READ, 15, 1)"))
    kind, start, length, process = other.ask("holder(files[0], WRITE, 0, 0)")
    check("fcntl: GETLK names the range", (kind, start, length) == (WRITE, 10, 10))
    check("fcntl: and the process", process == os.getpid())
    check("fcntl: GETLK when free", other.ask("holder(files[0], WRITE, 0, 5)") is None)
    check("fcntl: a part is released", lock(fd, UNLOCK, 12, 3) and other.ask("lock(files[0], WRITE, 12, 3)"))
    check("fcntl: and the rest is held", not other.ask("lock(files[0], WRITE, 11, 1)") and not other.ask("lock(files[0], WRITE, 15, 1)"))
    check("fcntl: write becomes read", lock(fd, READ, 15, 5) and other.ask("lock(files[0], READ, 15, 5)"))
    check("fcntl: read does not become write beside a reader", not lock(fd, WRITE, 15, 5))
    os.close(opened("r"))
    check("fcntl: any close drops the process's locks", other.ask("lock(files[0], WRITE, 10, 10)"))
    other.end()
    check("fcntl: the end of a process drops its locks", lock(fd, WRITE, 0, 0))
    check("fcntl: far offsets", lock(fd, WRITE, 1 << 62, 100) and lock(fd, UNLOCK, 0, 0))
    reader = opened("r", os.O_RDONLY)
    try:
        lock(reader, WRITE)
        check("fcntl: a write lock needs a writable file", False)
    except OSError as error:
        check("fcntl: a write lock needs a writable file", error.errno == errno.EBADF)


def waiting():
    other, third, fd = Other(), Other(), opened("w")
    other.ask("files.__setitem__(0, opened('w'))")
    third.ask("files.__setitem__(0, opened('w'))")
    check("wait: we hold it", lock(fd, WRITE))
    other.send("lock(files[0], WRITE, 0, 10, fcntl.F_SETLKW)")
    third.send("lock(files[0], WRITE, 20, 10, fcntl.F_SETLKW)")
    check("wait: two wait", not other.answered(0.3) and not third.answered(0.1))
    lock(fd, UNLOCK, 20, 10)
    check("wait: a part released wakes its waiter", third.answered(30) and third.receive() is True)
    check("wait: the other still waits", not other.answered(0.3))
    os.kill(other.process, signal.SIGKILL)
    os.waitpid(other.process, 0)
    lock(fd, UNLOCK, 0, 0)
    check("wait: a killed waiter gets nothing", lock(fd, WRITE, 0, 10))
    third.end()
    check("wait: all is free in the end", lock(fd, WRITE, 0, 0))


def deadlock():
    other, fd = Other(), opened("d")
    other.ask("files.__setitem__(0, opened('d'))")
    lock(fd, WRITE, 0, 1)
    other.ask("lock(files[0], WRITE, 1, 1)")
    other.send("lock(files[0], WRITE, 0, 1, fcntl.F_SETLKW)")
    check("deadlock: the first waits", not other.answered(0.3))
    lock(fd, UNLOCK, 0, 1)
    check("deadlock: and goes on when released", other.answered(30) and other.receive() is True)
    other.end()


def open_file_descriptions():
    first, second = opened("o"), opened("o")
    check("ofd: two opens of one process conflict", lock(first, WRITE, 0, 10, OFD_SETLK) and not lock(second, WRITE, 5, 10, OFD_SETLK))
    check("ofd: GETLK names no process", holder(second, WRITE, 0, 0, OFD_GETLK) == (WRITE, 0, 10, -1))
    os.close(opened("o"))
    check("ofd: another close leaves it", not lock(second, READ, 0, 1, OFD_SETLK))
    check("ofd: conflicts with fcntl locks", not lock(second, READ, 0, 1))
    copy = os.dup(first)
    os.close(first)
    check("ofd: a duplicate keeps it", not lock(second, READ, 0, 1, OFD_SETLK))
    os.close(copy)
    check("ofd: the last close drops it", lock(second, WRITE, 0, 10, OFD_SETLK))
    child = os.fork()
    if child == 0:
        lock(second, UNLOCK, 0, 10, OFD_SETLK)
        os._exit(0)
    os.waitpid(child, 0)
    third = opened("o")
    check("ofd: a child shares and may release it", lock(third, WRITE, 0, 10, OFD_SETLK))


def unlinked():
    other, fd = Other(), opened("u")
    other.ask("files.__setitem__(0, opened('u'))")
    os.unlink("u")
    check("unlinked: locks go on", lock(fd, WRITE) and not other.ask("lock(files[0], WRITE)"))
    check("unlinked: flock too", flocked(fd, fcntl.LOCK_EX) and not other.ask("flocked(files[0], fcntl.LOCK_SH)"))
    new = opened("u")
    check("unlinked: a new file of the name is another", flocked(new, fcntl.LOCK_EX))
    other.end()


for test in (whole_file, ranges, waiting, deadlock, open_file_descriptions, unlinked):
    test()
    sys.stdout.flush()
