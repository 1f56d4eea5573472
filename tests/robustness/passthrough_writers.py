"""Processes write, truncate and map a file on a mount while others, who have it open by the kernel itself, read it.

passthrough_writers.py FILE COPY: COPY is what FILE holds, and holds it again in the end.
"""

import hashlib
import mmap
import multiprocessing
import os
import random
import sys

SLOT = 1 << 20
WRITERS = 4
ROUNDS = 150


def write(path, slot, reader):
    """Overwrites its own part, by write(2) or through a mapping, and looks after each round whether the reader sees it."""
    dice = random.Random(slot)
    for _ in range(ROUNDS):
        at = slot * SLOT + dice.randrange(SLOT - 70000)
        data = dice.randbytes(dice.randrange(1, 70000))
        with open(path, "r+b", buffering=0) as file:
            if dice.randrange(4):
                file.seek(at)
                assert file.write(data) == len(data)
            else:
                with mmap.mmap(file.fileno(), (slot + 1) * SLOT) as mapping:
                    mapping[at : at + len(data)] = data
                    mapping.flush()
        seen = os.pread(reader, len(data), at)
        if seen != data:
            sys.exit(f"FAILED: {len(data)} bytes at {at} are not what was written")


def resize(path, reader, mapping, size):
    """Shortens the file to what the writers use and makes it longer again."""
    for _ in range(ROUNDS):
        for length in (WRITERS * SLOT, size):
            os.truncate(path, length)
            if os.fstat(reader).st_size != length:
                sys.exit(f"FAILED: {os.fstat(reader).st_size} bytes instead of {length}")
        if os.pread(reader, 4096, WRITERS * SLOT) != bytes(4096):
            sys.exit("FAILED: what was cut off came back")


def main():
    path, copy = sys.argv[1:]
    size = os.path.getsize(copy)
    reader = os.open(path, os.O_RDONLY)
    mapping = mmap.mmap(reader, WRITERS * SLOT, prot=mmap.PROT_READ)
    tasks = [multiprocessing.Process(target=write, args=(path, slot, reader)) for slot in range(WRITERS)]
    tasks.append(multiprocessing.Process(target=resize, args=(path, reader, mapping, size)))
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    if any(task.exitcode for task in tasks):
        sys.exit(1)
    by_kernel = b"".join(iter(lambda: os.read(reader, SLOT), b""))
    with open(path, "r+b", buffering=0) as file:
        by_requests = b"".join(iter(lambda: file.read(SLOT), b""))
    assert hashlib.sha256(by_kernel).digest() == hashlib.sha256(by_requests).digest(), "the two ways differ"
    assert mapping[:] == by_kernel[: WRITERS * SLOT], "a mapping differs"
    with open(copy, "rb") as source, open(path, "r+b") as file:
        file.write(source.read())
    os.lseek(reader, 0, os.SEEK_SET)
    with open(copy, "rb") as source:
        assert source.read() == b"".join(iter(lambda: os.read(reader, SLOT), b"")), "the last contents differ"


main()
