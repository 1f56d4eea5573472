"""A file under the directory given is written to while others open and read it over and over: no write may be undone.

A server that lets the kernel drop a file's pages at an open (FUSE: without FOPEN_KEEP_CACHE) loses writes here: pages that a write has
filled and not yet sent are dropped too, and a read that overtakes the write brings the old bytes back.

Prints `ok NAME` or `FAILED NAME` for each check; nothing that differs between correct file systems.
"""
import os
import random
import sys

PAGES, PAGE, WRITES, READERS = 4, 4096, 20_000, 3
os.chdir(sys.argv[1])


def check(name, right):
    print(f"ok {name}" if right else f"FAILED {name}")


def read_over_and_over():
    while os.path.exists("go on"):
        fd = os.open("file", os.O_RDONLY)
        os.pread(fd, PAGES * PAGE, 0)
        os.close(fd)


def write_and_look():
    """Writes at random places and reads back at once, then everything. Gives how many writes were not there."""
    content = bytearray(PAGES * PAGE)
    fd = os.open("file", os.O_RDWR)
    undone = 0
    places = random.Random(1)
    for number in range(WRITES):
        value = number.to_bytes(8, "big")
        at = places.randrange(0, PAGES * PAGE - len(value))
        os.pwrite(fd, value, at)
        content[at : at + len(value)] = value
        undone += os.pread(fd, len(value), at) != value
    whole = os.pread(fd, PAGES * PAGE, 0) == content
    os.close(fd)
    return undone, whole


with open("file", "wb") as file:
    file.write(bytes(PAGES * PAGE))
open("go on", "w").close()
children = []
for _ in range(READERS):
    child = os.fork()
    if child == 0:
        read_over_and_over()
        os._exit(0)
    children.append(child)
try:
    undone, whole = write_and_look()
finally:
    os.unlink("go on")
    statuses = [os.waitpid(child, 0)[1] for child in children]
if undone:
    print(f"{undone} of {WRITES} writes were undone", file=sys.stderr)
check("what was just written is read", undone == 0)
check("in the end all writes are there", whole)
check("the readers end well", not any(statuses))
