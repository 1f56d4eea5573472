"""Work on a volume from several machines that checks itself, and what others have recorded, while things break.

machines.py setup TOP STATE            makes what all of them use
machines.py work TOP STATE NAME        works on the mount TOP as NAME until STATE/stop is there
machines.py verify TOP STATE           looks at everything that anybody recorded, when all have ended
machines.py keep TOP STATE NAME WORD   writes a file, does not sync it until STATE/NAME.sync is there, and says in STATE/NAME.said what came of that

STATE is outside of the volume. What was acknowledged is recorded there, one line each, in NAME.log: what follows there must be seen by whoever looks later,
on any machine. A machine that will lose its session has NAME.may-fail: its calls may fail, and what was not synced before (a line `break`) may be lost. All
others are told no error at all.
"""

import errno
import faulthandler
import fcntl
import os
import random
import re
import signal
import sys
import threading
import time

LINE = re.compile(rb"(\w+) (\d{6}) (x*)\n")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write_new(path, data, sync=True):
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        assert os.write(handle, data) == len(data)
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def sync_directory(path):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def contents(name, number):
    """What a file of somebody's is to have: some in its row, some in an object."""
    size = (10, 900, 5000, 70_000)[number % 4]
    return (f"{name} {number} ".encode() * (size // 8 + 1))[:size]


def names_of(state):
    return sorted(entry[:-4] for entry in os.listdir(state) if entry.endswith(".log"))


class Records:
    """What somebody has recorded: for each kind, what is sure and what may be."""

    def __init__(self, state, name):
        self.sure, self.may_be = {}, {}
        lines = read(os.path.join(state, name + ".log")).decode().splitlines()
        kept = []
        for line in lines:
            kind, *words = line.split()
            if kind == "break":
                # What was only kept back so far may be lost.
                for of, value in kept:
                    self.sure[of].discard(value)
                    self.may_be.setdefault(of, set()).add(value)
                kept = []
                continue
            value, level = words[0], words[1]
            if level == "maybe":
                self.may_be.setdefault(kind, set()).add(value)
                continue
            self.sure.setdefault(kind, set()).add(value)
            if level == "kept":
                kept.append((kind, value))

    def of(self, kind):
        return self.sure.get(kind, set())

    def maybe(self, kind):
        return self.may_be.get(kind, set())


def all_records(state):
    return {name: Records(state, name) for name in names_of(state)}


def check_file(top, name, number, records_again):
    """A file that was recorded is there as recorded, unless its owner was about to remove it."""
    path = os.path.join(top, "own", name, number)
    try:
        found = read(path)
    except FileNotFoundError:
        gone = records_again()
        assert number in gone.of("going") | gone.maybe("file"), f"{path} is missing, and was recorded"
        return
    wanted = contents(name, int(number))
    assert found == wanted, f"{path} has {len(found)} bytes that begin {found[:40]!r}, and should have {len(wanted)}"


def check_appends(top, state):
    """The lines of everybody are whole, once, and in their writer's order; those that were recorded before are there."""
    before = all_records(state)
    data = read(os.path.join(top, "shared", "append"))
    lines, at = {}, 0
    for line in LINE.finditer(data):
        assert line.start() == at, f"bytes between lines at {at}: {data[at:at + 60]!r}"
        at = line.end()
        who, number = line[1].decode(), int(line[2])
        assert len(line[3]) == number % 50, f"line {number} of {who} is not whole"
        lines.setdefault(who, []).append(number)
    assert at == len(data), f"bytes after the last line at {at}: {data[at:at + 60]!r}"
    for who, numbers in lines.items():
        assert numbers == sorted(set(numbers)), f"lines of {who} are twice or not in order"
    for name, records in before.items():
        missing = {int(number) for number in records.of("append")} - set(lines.get(name, []))
        assert not missing, f"lines of {name} are lost: {sorted(missing)[:20]}"


def setup(top, state):
    os.makedirs(os.path.join(top, "shared"))
    os.mkdir(os.path.join(top, "own"))
    for name, data in (("append", b""), ("counter-lockf", b"0"), ("counter-flock", b"0"), ("ball", b"ball"), ("target", b"a" * 3000)):
        write_new(os.path.join(top, "shared", name), data)
    for name in names_of(state):
        os.mkdir(os.path.join(top, "own", name))
    sync_directory(top)


class Machine:
    """Works on one mount, in three threads."""

    def __init__(self, top, state, name):
        self.top, self.state, self.name = top, state, name
        self.own, self.shared = os.path.join(top, "own", name), os.path.join(top, "shared")
        self.log = os.open(os.path.join(state, name + ".log"), os.O_WRONLY | os.O_APPEND)
        self.source = random.Random(name)
        self.number = self.line = 0
        self.highest = {"lockf": 0, "flock": 0}
        self.slot = 0

    def record(self, kind, value, level):
        if level == "kept" and self.may_fail():
            level = "maybe"
        line = f"{kind} {value} {level}\n".encode()
        assert os.write(self.log, line) == len(line)

    def may_fail(self):
        return os.path.exists(os.path.join(self.state, self.name + ".may-fail"))

    # -- names --

    def make(self):
        """A file is made, written, moved and linked; every other one is synced."""
        self.number += 1
        number, synced = self.number, self.number % 2 == 0
        path = os.path.join(self.own, str(number))
        write_new(path + ".new", contents(self.name, number), sync=synced)
        os.rename(path + ".new", path)
        os.link(path, path + ".link")
        assert os.stat(path).st_nlink == 2
        os.unlink(path + ".link")
        assert os.stat(path).st_nlink == 1
        if synced:
            sync_directory(self.own)
        self.record("file", number, "synced" if synced else "kept")
        old = number - 20
        if old > 0 and old % 3:
            self.record("going", old, "synced")
            try:
                os.unlink(os.path.join(self.own, str(old)))
            except FileNotFoundError:
                assert str(old) not in Records(self.state, self.name).of("file"), f"{old} is missing"

    def look(self):
        """What others have recorded is there, here too."""
        for name in names_of(self.state):
            records = Records(self.state, name)
            recent = sorted(records.of("file") - records.of("going"), key=int)[-30:]
            for number in self.source.sample(recent, min(2, len(recent))):
                check_file(self.top, name, number, lambda n=name: Records(self.state, n))

    # -- contents --

    def append(self):
        self.line += 1
        line = f"{self.name} {self.line:06} {'x' * (self.line % 50)}\n".encode()
        synced = self.line % 2 == 0
        handle = os.open(os.path.join(self.shared, "append"), os.O_WRONLY | os.O_APPEND)
        try:
            assert os.write(handle, line) == len(line)
            if synced:
                os.fsync(handle)
        finally:
            os.close(handle)
        self.record("append", self.line, "synced" if synced else "kept")
        if self.line % 15 == 0:
            check_appends(self.top, self.state)

    def replace(self):
        target = os.path.join(self.shared, "target")
        new = f"{target}.{self.name}"
        with open(new, "wb") as file:
            file.write(self.source.choice((b"a", b"b", b"c")) * 3000)
        os.rename(new, target)
        data = read(target)
        assert len(data) == 3000 and len(set(data)) == 1, f"{target} is in between: {len(data)} bytes, {set(data)}"

    # -- one at a time --

    def count(self, how):
        """A counter under an exclusive lock: each number is somebody's, and nobody else's."""
        lock = {"lockf": fcntl.lockf, "flock": fcntl.flock}[how]
        handle = os.open(os.path.join(self.shared, f"counter-{how}"), os.O_RDWR)
        try:
            lock(handle, fcntl.LOCK_EX)
            before = int(os.pread(handle, 100, 0))
            assert before >= self.highest[how], f"the counter went back from {self.highest[how]} to {before}"
            number = before + 1
            level = "maybe"
            try:
                assert os.pwrite(handle, str(number).encode(), 0) == len(str(number))
                os.fsync(handle)
                level = "synced"
            finally:
                self.record(f"count-{how}", number, level)
            self.highest[how] = number
            lock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)

    def exclusive(self):
        """All try to make the same name at about the same time: one does."""
        slot = int(time.time() * 4)
        if slot == self.slot:
            return
        self.slot = slot
        level = "maybe"
        try:
            write_new(os.path.join(self.shared, f"slot-{slot}"), self.name.encode())
            sync_directory(self.shared)
            level = "synced"
        except FileExistsError:
            level = None
        finally:
            if level:
                self.record("slot", slot, level)

    def play(self):
        """One thing, that is always in exactly one place: whoever moves it away has it."""
        ball, mine = os.path.join(self.shared, "ball"), os.path.join(self.own, "ball")
        try:
            os.rename(ball, mine)
        except FileNotFoundError:
            if not os.path.exists(mine):
                return
        assert read(mine) == b"ball"
        assert not os.path.exists(ball), "it is in two places"
        os.rename(mine, ball)

    # -- the whole --

    def rounds(self, title, actions):
        done = 0
        while not os.path.exists(os.path.join(self.state, "stop")):
            try:
                for action in actions:
                    action()
            except OSError as error:
                if not self.may_fail():
                    raise
                self.note(f"{title}: {error}")
                time.sleep(0.2)
                continue
            done += 1
            with open(os.path.join(self.state, f"{self.name}.{title}.rounds"), "w") as file:
                file.write(str(done))

    def note(self, text):
        print(f"{time.strftime('%H:%M:%S')} {self.name} {text}", flush=True)

    def guarded(self, title, actions):
        try:
            self.rounds(title, actions)
        except BaseException as error:  # noqa: BLE001 (told, and the process ends)
            import traceback

            self.note(f"FAILED {title}: {type(error).__name__}: {error}")
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def work(self):
        # Whoever waits for it in vain asks where each thread is.
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        threads = [
            threading.Thread(target=self.guarded, args=args)
            for args in (
                ("names", [self.make, self.look]),
                ("contents", [self.append, self.replace]),
                ("locks", [lambda: self.count("lockf"), lambda: self.count("flock"), self.exclusive, self.play]),
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def verify(top, state):
    records = all_records(state)
    for name, of in records.items():
        for number in sorted(of.of("file") - of.of("going"), key=int):
            check_file(top, name, number, lambda n=name: records[n])
        for number in of.of("going") - of.maybe("file"):
            path = os.path.join(top, "own", name, number)
            assert not os.path.exists(path) or of.maybe("file"), f"{path} was removed, and is there"
    check_appends(top, state)
    for how in ("lockf", "flock"):
        numbers = [int(number) for of in records.values() for number in of.of(f"count-{how}")]
        doubts = sum(len(of.maybe(f"count-{how}")) for of in records.values())
        assert len(numbers) == len(set(numbers)), f"two had the lock of the counter ({how}) at once"
        value = int(read(os.path.join(top, "shared", f"counter-{how}")))
        assert max(numbers) <= value and len(numbers) <= value <= len(numbers) + doubts, (how, value, len(numbers), doubts)
    slots = {}
    for name, of in records.items():
        for slot in of.of("slot"):
            assert slot not in slots, f"{name} and {slots[slot]} both made slot-{slot}"
            slots[slot] = name
            assert read(os.path.join(top, "shared", f"slot-{slot}")).decode() == name
    places = [os.path.join(top, "shared", "ball")] + [os.path.join(top, "own", name, "ball") for name in records]
    found = [place for place in places if os.path.exists(place)]
    assert len(found) == 1, f"the ball is in {found}"
    print(", ".join(f"{name}: {sum(len(all) for all in of.sure.values())} recorded" for name, of in records.items()))


def keep(top, state, name, word):
    handle = os.open(os.path.join(top, name), os.O_CREAT | os.O_WRONLY, 0o644)
    os.fsync(handle)
    os.write(handle, word.encode())
    open(os.path.join(state, name + ".keeps"), "w").close()
    while not os.path.exists(os.path.join(state, name + ".sync")):
        time.sleep(0.05)
    try:
        os.fsync(handle)
        said = "synced"
    except OSError as error:
        said = errno.errorcode[error.errno]
    with open(os.path.join(state, name + ".new"), "w") as file:
        file.write(said)
    os.rename(os.path.join(state, name + ".new"), os.path.join(state, name + ".said"))


def main():
    what, top, state, *words = sys.argv[1:]
    if what == "work":
        Machine(top, state, *words).work()
    else:
        {"setup": setup, "verify": verify, "keep": keep}[what](top, state, *words)


main()
