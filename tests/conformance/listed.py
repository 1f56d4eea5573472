"""A directory is listed a little at a time while its names change: what a listing has said is what a look at the name says afterwards.

    listed.py DIRECTORY [THE_SAME_DIRECTORY]

The changes are made through the second path, where one is given. A server that gives entries with their attributes (FUSE: readdirplus) has the kernel keep each as if it had been looked up: one that
it read before a change and gives after it would be a name that stands for the wrong file, for as long as the kernel keeps names.

Prints `ok NAME` or `FAILED NAME` for each check; nothing that differs between correct file systems.
"""
import ctypes
import os
import struct
import sys

GETDENTS64, FILES, BUFFER = 217, 1500, 4096
libc = ctypes.CDLL(None, use_errno=True)
listed, changed = (os.path.join(path, "listed") for path in (sys.argv[1], sys.argv[-1]))


def check(name, right):
    print(f"ok {name}" if right else f"FAILED {name}")


def some_entries(fd):
    """The next few names; none at the end."""
    buffer = ctypes.create_string_buffer(BUFFER)
    length = libc.syscall(GETDENTS64, fd, buffer, BUFFER)
    if length < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    names, at = [], 0
    while at < length:
        size = struct.unpack_from("<H", buffer.raw, at + 16)[0]
        names.append(buffer.raw[at + 19 : at + size].split(b"\0")[0].decode())
        at += size
    return [name for name in names if name not in (".", "..")]


def in_the_order_of_the_listing():
    fd = os.open(listed, os.O_RDONLY | os.O_DIRECTORY)
    names = []
    while some := some_entries(fd):
        names += some
    os.close(fd)
    return names


def there(name):
    try:
        return os.stat(os.path.join(listed, name))
    except FileNotFoundError:
        return None


os.mkdir(changed)
os.mkdir(os.path.join(changed, "below"))
for number in range(FILES):
    open(os.path.join(changed, f"a name of some length {number:04}"), "w").close()
order = [name for name in in_the_order_of_the_listing() if name != "below"]
check("all are listed", len(order) == FILES)
# What the server may have read by then: with what was given, and ahead of that.
groups = {"near": order[200:205], "far": order[700:705]}
# A listing with attributes of names that the kernel has already would change nothing.
os.sync()
with open("/proc/sys/vm/drop_caches", "w") as drop:
    drop.write("2")

fd = os.open(listed, os.O_RDONLY | os.O_DIRECTORY)
seen = some_entries(fd)
check("the listing begins before what changes", seen and not set(seen) & set(sum(groups.values(), [])))
# Who looks at what was listed has the kernel ask for attributes again.
for name in seen:
    there(name)
at = lambda *names: os.path.join(changed, *names)
expected = {}
for where, (moved, linked, replaced, exchanged, other) in groups.items():
    os.rename(at(moved), at("below", moved))
    os.link(at(linked), at("below", linked))
    os.unlink(at(linked))
    os.rename(at(replaced), at("below", replaced))
    with open(at(replaced), "w") as file:
        file.write("new")
    os.rename(at(exchanged), at("below", exchanged))
    os.rename(at(other), at(exchanged))
    expected[where] = os.stat(at(exchanged)).st_ino
while some := some_entries(fd):
    seen += some
    there(some[0])
os.close(fd)
for where, (moved, linked, replaced, exchanged, other) in groups.items():
    check(f"{where}: a name that was moved away is gone", there(moved) is None)
    check(f"{where}: a name that was removed is gone", there(linked) is None)
    check(f"{where}: a name that was replaced is the new file's", there(replaced).st_size == 3)
    check(f"{where}: a name that was moved over is that file's", there(exchanged).st_ino == expected[where])
    check(f"{where}: the name that it had is gone", there(other) is None)
stayed = set(order).difference(*groups.values())
check("what stays is listed once", sorted(stayed) == sorted(name for name in seen if name in stayed))
