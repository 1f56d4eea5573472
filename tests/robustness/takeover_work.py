"""Programs of nine kinds that use a mount while its process is replaced again and again.

takeover_work.py DIR STOP READY [passthrough]: each verifies what it reads and ends when the file STOP is there; READY is made when each has done a round.
The exit status is 0 only if none of them ever got an error or a wrong byte, and all did something. With `passthrough` a tenth one reads a file by the
kernel itself, which the mount must allow for files of 4 KiB.
"""
import fcntl, hashlib, mmap, multiprocessing, os, random, sqlite3, sys, time

sys.path.insert(0, f"{os.environ['TESTS']}/conformance")
from read_beside import open_beside

ROOT, STOP, READY = sys.argv[1:4]
THROUGH = sys.argv[4:] == ["passthrough"]


# Of the program that runs in this process: how often it has asked whether to go on, and what is set once it has done a round.
asked, begun = 0, None


def running():
    """Asked before each round: the second time one is done."""
    global asked
    asked += 1
    if asked == 2:
        begun.set()
    return not os.path.exists(STOP)


def pattern(seed, length):
    return hashlib.shake_128(str(seed).encode()).digest(length)


def writer(dir):
    """Whole files, written, synced, read back and removed."""
    rounds = 0
    while running():
        path, size = f"{dir}/file-{rounds % 7}", random.choice([1, 900, 5000, 70_000, 700_000, 3_000_000])
        data = pattern(rounds, size)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            if rounds % 3 == 0:
                os.fsync(file.fileno())
        assert open(path, "rb").read() == data, path
        if rounds % 5 == 0:
            os.remove(path)
        rounds += 1
    return rounds


def in_place(dir):
    """One file that stays open, random pieces of it overwritten and read."""
    size, piece, rounds = 4 << 20, 4096, 0
    model = bytearray(pattern("model", size))
    fd = os.open(f"{dir}/file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, model, 0)
    while running():
        at = random.randrange(size // piece) * piece
        data = pattern(rounds, piece)
        os.pwrite(fd, data, at)
        model[at : at + piece] = data
        at = random.randrange(size // piece) * piece
        assert os.pread(fd, piece, at) == model[at : at + piece]
        rounds += 1
    os.fsync(fd)
    assert os.pread(fd, size, 0) == bytes(model)
    return rounds


def mapped(dir):
    """A shared mapping that is changed, synced, and looked at by another descriptor."""
    size, rounds = 1 << 20, 0
    fd = os.open(f"{dir}/file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size)
    while running():
        data = pattern(rounds, 10_000)
        at = random.randrange(size - len(data))
        memory[at : at + len(data)] = data
        memory.flush()
        with open(f"{dir}/file", "rb") as other:
            other.seek(at)
            assert other.read(len(data)) == data
        rounds += 1
    return rounds


def appender(dir):
    """A log of lines, each synced."""
    rounds = 0
    with open(f"{dir}/log", "ab", buffering=0) as log:
        while running():
            log.write(b"%08d\n" % rounds)
            os.fsync(log.fileno())
            rounds += 1
    assert open(f"{dir}/log", "rb").read() == b"".join(b"%08d\n" % line for line in range(rounds))
    return rounds


def walker(dir):
    """Listings that take longer than a takeover, of a directory whose old entries stay."""
    stay = {f"stay-{number:04}" for number in range(1500)}
    for name in stay:
        open(f"{dir}/{name}", "w").close()
    rounds = 0
    while running():
        seen = []
        with os.scandir(dir) as listing:
            for entry in listing:
                seen.append(entry.name)
                if len(seen) % 300 == 0:
                    open(f"{dir}/new-{rounds}-{len(seen)}", "w").close()
                    time.sleep(0.02)
        assert len(seen) == len(set(seen)) and stay <= set(seen)
        for name in set(os.listdir(dir)) - stay:
            os.remove(f"{dir}/{name}")
        rounds += 1
    return rounds


def locker(dir):
    """Two processes count in one file, each under an exclusive lock that the other waits for."""

    def count(times):
        with open(f"{dir}/count", "r+") as file:
            while running():
                fcntl.flock(file, fcntl.LOCK_EX)
                fcntl.lockf(file, fcntl.LOCK_EX, 1, 100)
                file.seek(0)
                number = int(file.read() or 0) + 1
                file.seek(0)
                file.write(str(number))
                file.flush()
                with times.get_lock():
                    times.value += 1
                fcntl.lockf(file, fcntl.LOCK_UN, 1, 100)
                fcntl.flock(file, fcntl.LOCK_UN)

    open(f"{dir}/count", "w").close()
    times = multiprocessing.Value("q", 0)
    others = [multiprocessing.Process(target=count, args=(times,)) for _ in range(2)]
    [other.start() for other in others]
    [other.join() for other in others]
    assert all(other.exitcode == 0 for other in others)
    assert int(open(f"{dir}/count").read()) == times.value
    return times.value


def renamer(dir):
    """A file that is replaced by rename: one of its versions is always there, whole."""
    rounds = 0
    data = pattern(0, 5000)
    while running():
        with open(f"{dir}/new", "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.rename(f"{dir}/new", f"{dir}/current")
        found = open(f"{dir}/current", "rb").read()
        assert found[32:] == data and hashlib.sha256(found[32:]).digest() == found[:32]
        os.mkdir(f"{dir}/d-{rounds}")
        os.rename(f"{dir}/d-{rounds}", f"{dir}/e-{rounds}")
        os.rmdir(f"{dir}/e-{rounds}")
        rounds += 1
        data = pattern(rounds, 5000)
    return rounds


def nameless(dir):
    """An open file without a name, a directory that was removed while it was somebody's own, and one that gets a name late."""
    rounds, model = 0, b""
    fd = os.open(f"{dir}/gone", os.O_RDWR | os.O_CREAT)
    os.unlink(f"{dir}/gone")
    os.mkdir(f"{dir}/cwd")
    place = os.open(f"{dir}/cwd", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(f"{dir}/cwd")
    late = os.open(dir, os.O_TMPFILE | os.O_RDWR, 0o600)
    while running():
        data = pattern(rounds, 2000)
        os.pwrite(fd, data, len(model))
        model += data
        assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == len(model)
        assert os.pread(fd, 2000, max(0, len(model) - 4000)) == model[max(0, len(model) - 4000) :][:2000]
        assert os.fstat(place).st_nlink == 0 and os.listdir(place) == []
        os.pwrite(late, data, 0)
        rounds += 1
        time.sleep(0.002)
    assert os.pread(fd, len(model), 0) == model
    # With a descriptor it is linkat(2), which follows the link.
    os.link(f"/proc/self/fd/{late}", f"{dir}/late", src_dir_fd=place, follow_symlinks=True)
    assert open(f"{dir}/late", "rb").read() == data
    return rounds


def database(dir):
    """Transactions of SQLite that move amounts between rows."""
    base = sqlite3.connect(f"{dir}/base", timeout=60, isolation_level=None)
    base.execute("create table account (id integer primary key, amount integer)")
    base.executemany("insert into account values (?, 100)", [(number,) for number in range(50)])
    rounds = 0
    while running():
        base.execute("begin immediate")
        one, other = random.sample(range(50), 2)
        base.execute("update account set amount = amount - 1 where id = ?", (one,))
        base.execute("update account set amount = amount + 1 where id = ?", (other,))
        base.execute("commit")
        rounds += 1
        if rounds % 20 == 0:
            assert base.execute("select sum(amount) from account").fetchone() == (5000,)
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    return rounds


def beside(dir):
    """A file that is open and mapped by the kernel itself all the time, while it is changed by another descriptor."""
    size, rounds, path = 300_000, 0, f"{dir}/file"
    model = bytearray(pattern("model", size))
    with open(path, "wb") as file:
        file.write(model)
    reader = open_beside(ROOT, path, time.monotonic() + 120)
    memory = mmap.mmap(reader, size, prot=mmap.PROT_READ)
    writer = os.open(path, os.O_RDWR)
    while running():
        data = pattern(rounds, random.randrange(1, 9000))
        at = random.randrange(size - len(data))
        os.pwrite(writer, data, at)
        model[at : at + len(data)] = data
        assert os.pread(reader, size, 0) == model
        assert memory[at : at + len(data)] == data
        if rounds % 10 == 0:
            os.ftruncate(writer, size - 5000)
            assert os.fstat(reader).st_size == size - 5000 and len(os.pread(reader, size, 0)) == size - 5000
            os.ftruncate(writer, size)
            model[size - 5000 :] = bytes(5000)
            with open(path, "rb") as other:
                assert other.read() == model
        rounds += 1
    os.close(writer)
    assert open(path, "rb").read() == model
    return rounds


def run(work, done, has_begun):
    global begun
    begun = has_begun
    dir = f"{ROOT}/{work.__name__}"
    os.mkdir(dir)
    done.value = work(dir)


works = [writer, in_place, mapped, appender, walker, locker, renamer, nameless, database] + [beside] * THROUGH
counts = [multiprocessing.Value("q", 0) for _ in works]
all_begun = [multiprocessing.Event() for _ in works]
processes = [multiprocessing.Process(target=run, args=each) for each in zip(works, counts, all_begun)]
[process.start() for process in processes]
if all(has_begun.wait(timeout=150) for has_begun in all_begun):
    open(READY, "w").close()
[process.join() for process in processes]
for work, process, count in zip(works, processes, counts):
    print(f"{work.__name__}: {count.value} rounds, status {process.exitcode}")
sys.exit(any(process.exitcode != 0 or count.value == 0 for process, count in zip(processes, counts)))
