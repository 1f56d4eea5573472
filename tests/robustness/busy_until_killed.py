"""Works on a mount in every way at once until its server is gone: busy_until_killed.py DIR READY.

Makes the file READY once all are at work. Exits 0 if each of them then ends by itself with an error that says so: nobody may hang, nobody may
be told success for what cannot be.
"""
import errno
import fcntl
import mmap
import os
import signal
import sys
import time

DIRECTORY, READY = sys.argv[1], sys.argv[2]
# What the kernel answers depends on where a request was when the server died: in a ring it is cancelled.
GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.EIO}
# One that the kernel was copying to the server at that moment fails with what copying to a process that is being killed fails with
# (fuse_uring_prepare_send, get_user_pages). Python asks again after EINTR, but not for msync.
COPIED = errno.EINTR
PATIENCE_S = 60
os.chdir(DIRECTORY)


def file(name, flags=os.O_RDWR | os.O_CREAT):
    return os.open(name, flags, 0o644)


def reads():
    fd = file("read")
    os.pwrite(fd, os.urandom(1 << 20), 0)
    yield
    while True:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(fd, 1 << 20, 0)
        yield


def reads_directly():
    fd = file("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    area = mmap.mmap(-1, 1 << 16)
    os.pwrite(fd, area, 0)
    while True:
        os.preadv(fd, [area], 0)
        yield


def writes():
    fd = file("written")
    while True:
        for at in range(0, 1 << 24, 1 << 17):
            os.pwrite(fd, bytes(1 << 17), at)
            yield


def syncs():
    fd = file("synced")
    while True:
        os.pwrite(fd, b"synced", 0)
        os.fsync(fd)
        yield


def maps():
    fd = file("mapped")
    os.ftruncate(fd, 1 << 20)
    area = mmap.mmap(fd, 1 << 20)
    while True:
        for at in range(0, 1 << 20, 4096):
            area[at] = (area[at] + 1) & 255
        area.flush()
        yield


def names():
    number = 0
    while True:
        number += 1
        os.close(file(f"name-{number}"))
        os.rename(f"name-{number}", f"renamed-{number}")
        os.unlink(f"renamed-{number}")
        yield


def lists():
    while True:
        os.listdir(".")
        os.listxattr(".")
        yield


def locks():
    """Several of these wait for each other."""
    fd = file("locked")
    while True:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, b"mine", 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        os.pwrite(fd, b"mine", 4)
        fcntl.lockf(fd, fcntl.LOCK_UN)
        yield


def begin(work, told):
    child = os.fork()
    if child:
        return child
    try:
        steps = work()
        next(steps)
        os.write(told, b".")
        for _ in steps:
            pass
    except OSError as error:
        if error.errno in GONE or (work is maps and error.errno == COPIED):
            os._exit(0)
        print(f"{work.__name__}: {error}", file=sys.stderr)
        os._exit(2)
    os._exit(3)


def main():
    works = [reads, reads_directly, writes, syncs, maps, names, lists, locks, locks, locks]
    hear, told = os.pipe()
    children = {begin(work, told): work.__name__ for work in works}
    started = 0
    while started < len(works):
        started += len(os.read(hear, 100))
    open(READY, "w").close()
    deadline = time.monotonic() + PATIENCE_S
    wrong = []
    while children and time.monotonic() < deadline:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            time.sleep(0.01)
            continue
        name, code = children.pop(child), os.waitstatus_to_exitcode(status)
        # A page that cannot be had any more is a signal.
        if code != 0 and not (name == "maps" and code == -signal.SIGBUS):
            wrong.append(f"{name} ended with {code}")
    wrong += [f"{name} hangs (process {child})" for child, name in children.items()]
    for line in wrong:
        print(line, file=sys.stderr)
    os._exit(1 if wrong else 0)


main()
