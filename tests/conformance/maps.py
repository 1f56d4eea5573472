"""Shared and private maps of files under the directory given: what is stored, what is read, and what other processes see.

Prints `ok NAME` or `FAILED NAME: why` for each check; nothing that differs between correct file systems.
"""
import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys

PAGE = 4096
os.chdir(sys.argv[1])


def check(name, right):
    print(f"ok {name}" if right else f"FAILED {name}")


def opened(name, content=b"", flags=os.O_RDWR | os.O_CREAT | os.O_TRUNC):
    fd = os.open(name, flags, 0o644)
    os.write(fd, content)
    return fd


def content(name):
    with open(name, "rb") as file:
        return file.read()


def in_child(work):
    """Runs work() in a child; gives its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work() or 0)
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def shared_write():
    fd = opened("shared", b"a" * 3 * PAGE)
    area = mmap.mmap(fd, 3 * PAGE)
    area[100:105] = b"HELLO"
    check("a store through a shared map is read by pread at once", os.pread(fd, 5, 100) == b"HELLO")
    os.pwrite(fd, b"WORLD", PAGE + 7)
    check("a pwrite is seen in the map at once", area[PAGE + 7 : PAGE + 12] == b"WORLD")
    area.flush()
    check("msync succeeds and the content is there", content("shared")[100:105] == b"HELLO")
    area.flush(PAGE, PAGE)
    area.close()
    os.close(fd)
    check("the content is there after munmap and close", content("shared")[PAGE + 7 : PAGE + 12] == b"WORLD")
    check("the size is as before", os.path.getsize("shared") == 3 * PAGE)


def after_close():
    fd = opened("closed", b"x" * PAGE)
    area = mmap.mmap(fd, PAGE)
    os.close(fd)
    area[0:4] = b"late"
    area.flush()
    check("a map outlives its descriptor", content("closed")[:5] == b"latex")
    os.unlink("closed")
    area[4:8] = b"gone"
    area.flush()
    check("a map outlives its name", area[0:8] == b"lategone")
    area.close()


def private():
    fd = opened("private", b"p" * 2 * PAGE)
    area = mmap.mmap(fd, 2 * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    area[0:3] = b"own"
    check("a private store stays private", content("private")[:3] == b"ppp" and area[0:3] == b"own")
    area.close()
    os.close(fd)
    check("a private store is never written", content("private") == b"p" * 2 * PAGE)
    fd = os.open("private", os.O_RDONLY)
    area = mmap.mmap(fd, 2 * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    area[5:7] = b"ok"
    check("a read-only descriptor maps privately for writing", area[4:8] == b"pokp")
    try:
        mmap.mmap(fd, PAGE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        check("a read-only descriptor does not map shared for writing", False)
    except PermissionError:
        check("a read-only descriptor does not map shared for writing", True)


def between_processes():
    fd = opened("between", b"\0" * PAGE)
    area = mmap.mmap(fd, PAGE)

    def child():
        own = mmap.mmap(os.open("between", os.O_RDWR), PAGE)
        own[10:15] = b"child"

    check("a child ends well", in_child(child) == 0)
    check("another process's store is seen", area[10:15] == b"child")
    check("and read", os.pread(fd, 5, 10) == b"child")


def truncation():
    fd = opened("cut", b"t" * 4 * PAGE)
    area = mmap.mmap(fd, 4 * PAGE)
    check("mapped pages are read", area[3 * PAGE] == ord("t"))
    os.ftruncate(fd, PAGE + 10)
    check("the tail of the last page reads zero", area[PAGE : PAGE + 20] == b"t" * 10 + b"\0" * 10)

    def child():
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        return area[3 * PAGE]

    check("a page beyond the end raises SIGBUS", in_child(child) == -signal.SIGBUS)
    os.ftruncate(fd, 4 * PAGE)
    check("regrown pages read zero", area[PAGE + 10 :] == b"\0" * (3 * PAGE - 10))
    area[PAGE + 100 : PAGE + 103] = b"new"
    area.flush()
    area.close()
    os.close(fd)
    check("the file is as the map was", content("cut") == b"t" * (PAGE + 10) + b"\0" * 90 + b"new" + b"\0" * (4 * PAGE - PAGE - 103))


def beyond_the_end():
    fd = opened("short", b"s" * 100)
    area = mmap.mmap(fd, 0)
    check("an odd size maps whole", len(area) == 100)
    area.close()
    other = mmap.mmap(fd, 100)
    other[99:100] = b"!"
    other.flush()
    check("a store does not lengthen the file", os.fstat(fd).st_size == 100 and content("short")[-1:] == b"!")
    os.ftruncate(fd, 200)
    check("bytes past the old end read zero", os.pread(fd, 200, 0)[100:] == b"\0" * 100)


def sparse():
    fd = opened("sparse")
    os.ftruncate(fd, 64 << 20)
    area = mmap.mmap(fd, 64 << 20)
    for at in (0, 5 << 20, (40 << 20) + 123, (64 << 20) - 5):
        area[at : at + 5] = b"spot!"
    area.flush()
    area.close()
    os.close(fd)
    data = content("sparse")
    check("stores into a hole are kept", all(data[at : at + 5] == b"spot!" for at in (0, 5 << 20, (40 << 20) + 123, (64 << 20) - 5)))
    check("and nothing else", data.count(0) == (64 << 20) - 20)


def punched():
    fd = opened("punched", b"q" * 8 * PAGE)
    area = mmap.mmap(fd, 8 * PAGE)
    check("before the hole", area[3 * PAGE] == ord("q"))
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    check("a hole is punched under a map", libc.fallocate(fd, 3, 2 * PAGE, 3 * PAGE) == 0)
    check("the map reads zero there", area[2 * PAGE : 5 * PAGE] == b"\0" * 3 * PAGE)
    check("and the old bytes beside it", area[2 * PAGE - 1] == area[5 * PAGE] == ord("q"))


def times():
    fd = opened("times", b"m" * PAGE)
    os.utime(fd, ns=(10**18, 10**18))
    area = mmap.mmap(fd, PAGE)
    area[0:1] = b"M"
    area.flush()
    check("a store and msync move the modification time", os.fstat(fd).st_mtime_ns > 10**18)


def running_program():
    """A program that runs cannot be emptied, not even by an open for reading that truncates."""
    shutil.copy(shutil.which("sleep"), "program")
    before = content("program")
    running = subprocess.Popen(["./program", "60"])
    try:
        for flags in (os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC, os.O_WRONLY):
            try:
                os.close(os.open("program", flags))
                check("a running program is busy", False)
            except OSError as error:
                check("a running program is busy", error.errno == errno.ETXTBSY)
            check("and stays as it is", content("program") == before)
    finally:
        running.kill()
        running.wait()


for test in (shared_write, after_close, private, between_processes, truncation, beyond_the_end, sparse, punched, times, running_program):
    test()
