"""Writes that are synced one after the other, and what of them is there later.

writeback.py write DIR LOG [SECONDS]: makes files in DIR and appends to them, with an fsync after each write, until LOG.stop exists or SECONDS are over. LOG gets a
line "FILE LENGTH" for each fsync that has returned. Any error ends it with a traceback.

writeback.py check DIR LOG: each file has at least what was synced of it, and nothing but what was written."""

import os
import random
import sys
import time

STRIDE = 1 << 20


def content(name: str, length: int) -> bytes:
    """The first bytes of a file. What comes later does not change them."""
    parts, at = [], 0
    while at < length:
        # In whole words: of the last one randbytes gives other bytes where it gives fewer.
        parts.append(random.Random(f"{name}/{at}").randbytes(min(STRIDE, (length - at + 3) // 4 * 4)))
        at += STRIDE
    return b"".join(parts)[:length]


def write(directory: str, log: str, seconds: float) -> None:
    source = random.Random(directory)
    until = time.monotonic() + seconds
    mine = os.path.basename(log)
    with open(log, "a", buffering=1) as told:
        for number in range(1_000_000):
            name = f"{mine}-{os.getpid()}-{number}"
            whole = content(name, 1 + source.choice([200, 4_000, 30_000, 300_000, 2_500_000]))
            file = os.open(os.path.join(directory, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            at = 0
            while at < len(whole):
                piece = source.randrange(1, len(whole) + 1)
                at += os.write(file, whole[at : at + piece])
                os.fsync(file)
                print(name, at, file=told)
                if os.path.exists(log + ".stop") or (seconds and time.monotonic() > until):
                    return
            os.close(file)


def check(directory: str, log: str) -> None:
    synced = {}
    for line in open(log):
        name, length = line.split()
        synced[name] = max(int(length), synced.get(name, 0))
    total = 0
    for name, length in synced.items():
        with open(os.path.join(directory, name), "rb") as file:
            found = file.read()
        assert len(found) >= length, f"{name}: {length} bytes were synced, {len(found)} are there"
        if found != content(name, len(found)):
            wrong = next(at for at, pair in enumerate(zip(found, content(name, len(found)))) if pair[0] != pair[1])
            raise AssertionError(f"{name}: byte {wrong} of {len(found)} (synced: {length}) is another than was written")
        total += length
    assert synced, "nothing was synced"
    print(f"{len(synced)} files, {total} bytes")


if __name__ == "__main__":
    what, directory, log = sys.argv[1:4]
    if what == "write":
        write(directory, log, float(sys.argv[4]) if len(sys.argv) > 4 else 0)
    else:
        check(directory, log)
