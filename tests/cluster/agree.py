"""Two mounts of one volume, A and B: what one does, the other sees, at once.

agree.py A B SEED STEPS: checks by name, then SEED's random steps on either mount compared with what a plain directory would say.
"""

import errno
import fcntl
import mmap
import os
import random
import stat
import sys
import threading

A, B = sys.argv[1], sys.argv[2]
SEED, STEPS = int(sys.argv[3]), int(sys.argv[4])


def both():
    """Each mount in the role of the first."""
    return ((A, B), (B, A))


def write(path, data, mode="wb"):
    with open(path, mode) as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def is_missing(path):
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    return False


def names(one, two, at):
    """A name is there, is another, is gone: for lookups, listings, and names that were missing."""
    d1, d2 = os.path.join(one, at), os.path.join(two, at)
    os.mkdir(d1)
    assert os.listdir(d2) == [] and is_missing(d2 + "/f")
    write(d1 + "/f", b"1")
    assert os.listdir(d2) == ["f"] and read(d2 + "/f") == b"1"
    os.rename(d2 + "/f", d2 + "/g")
    assert os.listdir(d1) == ["g"] and is_missing(d1 + "/f") and read(d1 + "/g") == b"1"
    os.mkdir(d1 + "/sub")
    os.rename(d2 + "/g", d2 + "/sub/f")
    assert os.listdir(d1) == ["sub"] and read(d1 + "/sub/f") == b"1"
    os.symlink("sub/f", d1 + "/s")
    assert os.readlink(d2 + "/s") == "sub/f" and read(d2 + "/s") == b"1"
    os.link(d2 + "/sub/f", d2 + "/h")
    assert os.stat(d1 + "/h").st_nlink == 2 and os.stat(d1 + "/sub/f").st_ino == os.stat(d1 + "/h").st_ino
    os.unlink(d1 + "/h")
    assert is_missing(d2 + "/h") and os.stat(d2 + "/sub/f").st_nlink == 1
    try:
        os.rmdir(d2 + "/sub")
        raise AssertionError("a directory with a file was removed")
    except OSError as error:
        assert error.errno == errno.ENOTEMPTY
    os.unlink(d1 + "/sub/f")
    os.rmdir(d2 + "/sub")
    assert is_missing(d1 + "/sub") and os.stat(d1).st_nlink == 2


def attributes(one, two, at):
    """Mode, owner, times, size, extended attributes."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    write(f1, b"x" * 10)
    for turn in range(20):
        here, there = (f1, f2) if turn % 2 else (f2, f1)
        os.chmod(here, 0o600 + turn)
        assert stat.S_IMODE(os.stat(there).st_mode) == 0o600 + turn
        os.utime(here, (turn, turn + 1))
        assert os.stat(there).st_mtime == turn + 1
        os.truncate(here, turn * 1000)
        assert os.stat(there).st_size == turn * 1000 and len(read(there)) == turn * 1000
        os.setxattr(here, "user.turn", str(turn).encode())
        assert os.getxattr(there, "user.turn") == str(turn).encode()
    os.removexattr(f1, "user.turn")
    assert os.listxattr(f2) == []


def contents(one, two, at):
    """A read that begins after a write returned sees it, also through handles that were open before, without any sync."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    h1 = os.open(f1, os.O_RDWR | os.O_CREAT, 0o644)
    h2 = os.open(f2, os.O_RDWR)
    source = random.Random(at)
    model = bytearray()
    for _ in range(60):
        writer, reader = source.choice(((h1, h2), (h2, h1), (h1, h1)))
        offset, length = source.randrange(300_000), source.choice((1, 100, 5000, 70_000))
        data = source.randbytes(length)
        assert os.pwrite(writer, data, offset) == length
        model.extend(bytes(max(0, offset + length - len(model))))
        model[offset : offset + length] = data
        assert os.fstat(reader).st_size == len(model)
        assert os.pread(reader, len(model) + 1, 0) == bytes(model)
    os.close(h1)
    os.close(h2)
    assert read(f1) == bytes(model) == read(f2)


def appends(one, two, at):
    """O_APPEND from both at once: every record is there, whole, and each writer's are in its order."""
    paths, records = (os.path.join(one, at), os.path.join(two, at)), 150
    write(paths[0], b"")

    def work(which, path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        for number in range(records):
            line = f"{which} {number:06} {'x' * (number % 90)}\n".encode()
            assert os.write(handle, line) == len(line)
        os.close(handle)

    run_all([lambda p=p, i=i: work(i, p) for i, p in enumerate(paths * 2)])
    lines = read(paths[1]).decode().splitlines()
    assert len(lines) == 4 * records, len(lines)
    for which in range(4):
        mine = [int(line.split()[1]) for line in lines if line.startswith(f"{which} ")]
        assert mine == list(range(records)), mine
    assert read(paths[0]) == read(paths[1])


def run_all(works):
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (told by the main thread)
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def counter(one, two, at):
    """A counter in a file under an exclusive lock, from both: nothing is lost. By fcntl from processes, by flock from threads."""
    for lock in (fcntl.flock, fcntl.lockf):
        name = f"{at}-{lock.__name__}"
        write(os.path.join(one, name), b"0")
        rounds, children = 60, []
        for path in (one, two, one, two):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    count(os.path.join(path, name), lock, rounds)
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
        assert read(os.path.join(two, name)) == str(4 * rounds).encode()


def count(path, lock, rounds):
    for _ in range(rounds):
        handle = os.open(path, os.O_RDWR)
        lock(handle, fcntl.LOCK_EX)
        number = int(os.pread(handle, 100, 0)) + 1
        os.pwrite(handle, str(number).encode(), 0)
        lock(handle, fcntl.LOCK_UN)
        os.close(handle)


def is_free(path, kind):
    """Whether another process gets an exclusive lock at once."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            kind(os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = 0
        except OSError as error:
            status = 1 if error.errno in (errno.EAGAIN, errno.EACCES) else 2
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 1)
    return status == 0


def locks(one, two, at):
    """A lock is seen from the other side, and ends with the handle."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    write(f1, b"x")
    h1, h2 = os.open(f1, os.O_RDWR), os.open(f2, os.O_RDWR)
    for kind in (fcntl.flock, fcntl.lockf):
        kind(h1, fcntl.LOCK_EX)
        assert not is_free(f2, kind)
        kind(h1, fcntl.LOCK_UN)
        assert is_free(f2, kind)
    fcntl.flock(h1, fcntl.LOCK_EX)
    os.close(h1)
    # Not at once: a file is released some time after its close has returned.
    fcntl.flock(h2, fcntl.LOCK_EX)
    os.close(h2)


def unlinked(one, two, at):
    """An open file without a name lives until its last handle is closed, wherever that is."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    write(f1, b"alive" * 1000)
    h1 = os.open(f1, os.O_RDWR)
    os.unlink(f2)
    assert is_missing(f1)
    assert os.fstat(h1).st_nlink == 0 and os.pread(h1, 5, 0) == b"alive"
    os.pwrite(h1, b"still", 0)
    os.fsync(h1)
    assert os.pread(h1, 5, 0) == b"still"
    write(f2, b"other")
    assert os.pread(h1, 5, 0) == b"still" and read(f1) == b"other"
    os.close(h1)


def orphaned(one, two, at):
    """What its remover wrote and has not synced is read by who has the file open elsewhere."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    for turn in range(8):
        size, moves, closes = (5000 if turn & 1 else 100), turn & 2, turn & 4
        write(f1, b"1" * size)
        h1, h2 = os.open(f1, os.O_WRONLY), os.open(f2, os.O_RDWR)
        assert os.pread(h2, size + 2, 0) == b"1" * size
        os.pwrite(h1, b"2" * (size + 1), 0)
        if closes:
            os.close(h1)
        if moves:
            write(f1 + ".new", b"new")
            os.rename(f1 + ".new", f1)
        else:
            os.unlink(f1)
        if not closes:
            os.close(h1)
        assert os.fstat(h2).st_nlink == 0 and os.pread(h2, size + 2, 0) == b"2" * (size + 1), turn
        os.pwrite(h2, b"3", 0)
        assert os.pread(h2, 2, 0) == b"32"
        os.close(h2)
        assert not moves or read(f2) == b"new"


def mapped(one, two, at):
    """What is read through a mapping is what the other wrote before; what was written through one is there after msync."""
    f1, f2 = os.path.join(one, at), os.path.join(two, at)
    write(f1, bytes(3 * 4096))
    h1, h2 = os.open(f1, os.O_RDWR), os.open(f2, os.O_RDWR)
    with mmap.mmap(h1, 3 * 4096) as m1, mmap.mmap(h2, 3 * 4096) as m2:
        for turn in range(20):
            mine, theirs, handle = (m1, m2, h2) if turn % 2 else (m2, m1, h1)
            at_byte, data = turn * 500, bytes([turn + 1]) * 100
            mine[at_byte : at_byte + 100] = data
            mine.flush()
            assert os.pread(handle, 100, at_byte) == data, turn
            assert theirs[at_byte : at_byte + 100] == data, turn
    os.close(h1)
    os.close(h2)


def crossing(one, two, at):
    """Both make and rename in one directory at once, so that recalls go in both directions: nobody hangs, nothing is lost."""
    d1 = os.path.join(one, at)
    os.mkdir(d1)
    count = 120

    def work(top, tag):
        here = os.path.join(top, at)
        for number in range(count):
            write(f"{here}/{tag}-{number}.new", str(number).encode())
            os.rename(f"{here}/{tag}-{number}.new", f"{here}/{tag}-{number}")
            if number % 3 == 0:
                os.listdir(here)

    run_all([lambda t=t, g=g: work(t, g) for t, g in ((one, "a"), (two, "b"), (one, "c"), (two, "d"))])
    expected = sorted(f"{tag}-{number}" for tag in "abcd" for number in range(count))
    assert sorted(os.listdir(d1)) == expected == sorted(os.listdir(os.path.join(two, at)))
    for top in (one, two):
        for name in expected[:: 17]:
            assert read(os.path.join(top, at, name)).decode() == name.split("-")[1]


def replaced(one, two, at):
    """A file that is replaced by rename, again and again, is never missing and always whole to a reader elsewhere."""
    target = os.path.join(one, at)
    write(target, b"0" * 5000)
    done = threading.Event()

    def look():
        seen = 0
        while not done.is_set():
            data = read(os.path.join(two, at))
            assert len(data) == 5000 and len(set(data)) == 1, len(data)
            seen += 1
        assert seen > 0

    def replace():
        try:
            for number in range(150):
                write(target + ".new", str(number % 10).encode() * 5000)
                os.rename(target + ".new", target)
        finally:
            done.set()

    run_all([look, replace])


def random_steps(seed, steps):
    """Random steps on either mount against a model in memory."""
    source = random.Random(seed)
    top = f"random-{seed}"
    os.mkdir(os.path.join(A, top))
    model = {}
    for step in range(steps):
        here = os.path.join(source.choice((A, B)), top)
        there = os.path.join(source.choice((A, B)), top)
        name, other = (f"n{source.randrange(8)}" for _ in range(2))
        path = os.path.join(here, name)
        what = source.choice(("write", "write", "append", "read", "truncate", "rename", "unlink", "list", "link"))
        if what == "write":
            data = source.randbytes(source.choice((0, 10, 900, 3000, 200_000)))
            with open(path, "wb") as file:
                file.write(data)
            cell = model.get(name)
            if cell is None:
                model[name] = [data]
            else:
                cell[0] = data
        elif what == "append":
            data = source.randbytes(source.choice((1, 2000)))
            write(path, data, "ab")
            model.setdefault(name, [b""])[0] += data
        elif what == "truncate" and name in model:
            size = source.randrange(5000)
            os.truncate(path, size)
            model[name][0] = model[name][0][:size].ljust(size, b"\0")
        elif what == "rename" and name in model:
            os.rename(path, os.path.join(here, other))
            # Two names of one inode: rename does nothing.
            if model.get(other) is not model[name]:
                model[other] = model.pop(name)
        elif what == "link" and name in model and other not in model:
            os.link(path, os.path.join(here, other))
            model[other] = model[name]
        elif what == "unlink" and name in model:
            os.unlink(path)
            del model[name]
        seen = sorted(os.listdir(there))
        assert seen == sorted(model), (step, what, seen, sorted(model))
        for known in source.sample(sorted(model), min(2, len(model))):
            found = os.path.join(there, known)
            assert os.stat(found).st_size == len(model[known][0]), (step, what, known)
            assert read(found) == model[known][0], (step, what, known)
        if name not in model:
            assert is_missing(os.path.join(there, name)), (step, what, name)


def main():
    failed = passed = 0
    checks = [names, attributes, contents, appends, counter, locks, unlinked, orphaned, mapped, crossing, replaced]
    wanted = os.environ.get("ONLY")
    works = [
        (f"{check.__name__} {'AB' if one == A else 'BA'}", lambda c=check, o=one, t=two: c(o, t, f"{c.__name__}-{o == A}"))
        for check in checks
        for one, two in both()
    ]
    works += [(f"random {seed}", lambda s=seed: random_steps(s, STEPS)) for seed in range(SEED, SEED + 6)]
    for title, work in works:
        if wanted and not title.startswith(wanted):
            continue
        try:
            work()
            passed += 1
            print(f"ok {title}", flush=True)
        except Exception as error:  # noqa: BLE001 (counted)
            failed += 1
            print(f"FAILED {title}: {type(error).__name__}: {str(error)[:500]}", flush=True)
            import traceback

            traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
