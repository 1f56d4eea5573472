"""What clients of a group do while they are measured. Each prints one line: when it began and when it ended (CLOCK_MONOTONIC, seconds), and how many bytes that was.

group.py write FILE MIB AT      writes a new file by 1 MiB, then one fsync; begins at AT
group.py synced FILE MIB AT     the same, with an fsync after each MiB
group.py read FILE AT           reads a file by 1 MiB
group.py small FILE COUNT AT    reads 4 KiB at COUNT places, none of which shares 256 KiB with another, and prints p50 and p99 in ms, too
group.py send HOST PORT MIB AT  as write, over one TCP connection without any protocol: what the link carries
group.py take PORT              takes what is sent, until the connection ends
group.py now SECONDS            so many seconds from now
"""

import os
import random
import socket
import sys
import time

MIB = 1 << 20
PLACE = 256 << 10


def wait(at):
    time.sleep(max(0.0, at - time.monotonic()))
    return time.monotonic()


def say(began, count, *more):
    print(began, time.monotonic(), count, *more)


def synced(path, mib, at):
    write(path, mib, at, each=True)


def write(path, mib, at, each=False):
    block = os.urandom(MIB)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    began = wait(float(at))
    for number in range(int(mib)):
        # No two blocks are alike, and none compresses.
        os.write(file, number.to_bytes(8, "little") + block[8:])
        if each:
            os.fsync(file)
    os.fsync(file)
    say(began, int(mib) * MIB)


def read(path, at):
    file, count = os.open(path, os.O_RDONLY), 0
    began = wait(float(at))
    while data := os.read(file, MIB):
        count += len(data)
    say(began, count)


def small(path, count, at):
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    places = list(range(os.fstat(file).st_size // PLACE))
    random.Random(7).shuffle(places)
    assert len(places) >= int(count), "the file is too small for so many places"
    began, took = wait(float(at)), []
    for place in places[: int(count)]:
        since = time.monotonic()
        assert len(os.pread(file, 4096, place * PLACE)) == 4096
        took.append(time.monotonic() - since)
    took.sort()
    say(began, 4096 * len(took), *(round(took[len(took) * part // 100] * 1000, 3) for part in (50, 99)))


def send(host, port, mib, at):
    block, peer = bytes(MIB), socket.create_connection((host, int(port)))
    began = wait(float(at))
    for _ in range(int(mib)):
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)
    # The other side ends when it has everything.
    assert peer.recv(1) == b""
    say(began, int(mib) * MIB)


def take(port):
    listener = socket.create_server(("", int(port)))
    peer, _ = listener.accept()
    while peer.recv(MIB):
        pass


what, *words = sys.argv[1:]
if what == "now":
    print(time.monotonic() + float(words[0]))
else:
    {"write": write, "synced": synced, "read": read, "small": small, "send": send, "take": take}[what](*words)
