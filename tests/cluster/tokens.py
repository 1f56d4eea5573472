"""What processes can reach through a mount whose token shows one directory: its files, and nothing else.

tokens.py ALL PART HOME: ALL is a mount of the whole volume, PART one of its directory HOME. Makes what it needs.
"""
import ctypes
import errno
import os
import struct
import sys

ALL, PART, HOME = sys.argv[1:]
SECRET = "nobody below may read this"
libc = ctypes.CDLL(None, use_errno=True)
LONGEST = 128
# Of the kernel's file handles of FUSE: a number and its generation.
INO64_GEN = 0x81


def name_to_handle(path):
    handle = ctypes.create_string_buffer(struct.pack("Ii", LONGEST, 0) + bytes(LONGEST))
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at", path)
    size, kind = struct.unpack_from("Ii", handle.raw)
    return kind, handle.raw[8 : 8 + size]


def forged(number, generation):
    return INO64_GEN, struct.pack("III", number >> 32, number & 0xFFFFFFFF, generation)


def open_by_handle(mount, handle, flags=os.O_RDONLY | os.O_PATH):
    kind, data = handle
    packed = ctypes.create_string_buffer(struct.pack("Ii", len(data), kind) + data)
    fd = libc.open_by_handle_at(mount, packed, flags)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return fd


def refused(what, call, *numbers):
    try:
        call()
    except OSError as error:
        assert error.errno in (numbers or (errno.ESTALE,)), f"{what}: {error}"
        return
    raise AssertionError(f"{what} was not refused")


def all_numbers(top):
    found = {os.stat(top).st_ino}
    for place, directories, files in os.walk(top):
        for name in directories + files:
            found.add(os.lstat(os.path.join(place, name)).st_ino)
    return found


def make():
    os.makedirs(f"{ALL}/outside/deep")
    os.makedirs(f"{ALL}/{HOME}/below/deeper")
    for path in ("outside/secret", "outside/deep/secret", "secret", "outside/linked"):
        with open(f"{ALL}/{path}", "w") as file:
            file.write(SECRET)
    for path in ("own", "below/own", "below/deeper/own"):
        with open(f"{ALL}/{HOME}/{path}", "w") as file:
            file.write("own")
    os.symlink("../secret", f"{ALL}/{HOME}/up")
    os.symlink("/secret", f"{ALL}/{HOME}/absolute")
    os.symlink("../../outside/secret", f"{ALL}/{HOME}/below/up")
    os.symlink("../own", f"{ALL}/{HOME}/below/inside")
    os.sync()


def the_root():
    root = os.stat(PART)
    assert sorted(os.listdir(PART)) == ["absolute", "below", "own", "up"], os.listdir(PART)
    assert os.stat(f"{PART}/below/..").st_ino == root.st_ino
    assert os.path.ismount(PART) and not os.path.ismount(f"{PART}/below")
    fd = os.open(f"{PART}/below/deeper", os.O_RDONLY | os.O_DIRECTORY)
    at_root = os.open("../..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
    assert os.fstat(at_root).st_ino == root.st_ino
    os.close(fd)
    os.close(at_root)


def names_lead_nowhere():
    # Above the mount is what it is mounted on, never what is above the directory in the volume.
    device = os.stat(PART).st_dev
    fd = os.open(f"{PART}/below", os.O_RDONLY | os.O_DIRECTORY)
    here = os.getcwd()
    os.fchdir(fd)
    ups = [f"{PART}/..", f"/proc/self/fd/{fd}/../..", "../..", "../../..", f"/proc/self/cwd/../.."]
    for up in ups:
        assert os.stat(up).st_dev != device, up
        refused(up, lambda up=up: os.stat(f"{up}/outside"), errno.ENOENT)
    refused("openat", lambda: os.open("../../secret", os.O_RDONLY, dir_fd=fd), errno.ENOENT)
    os.chdir(here)
    os.close(fd)
    for link in ("up", "absolute", "below/up"):
        refused(link, lambda link=link: open(f"{PART}/{link}"), errno.ENOENT)
    with open(f"{PART}/below/inside") as file:
        assert file.read() == "own"
    refused("a move out", lambda: os.rename(f"{PART}/own", f"{PART}/../own"), errno.EXDEV)
    held = os.open(f"{ALL}/secret", os.O_RDONLY)
    refused("a link by a descriptor", lambda: os.link(f"/proc/self/fd/{held}", f"{PART}/x", follow_symlinks=True), errno.EXDEV)
    os.close(held)


def handles_lead_nowhere():
    mount = os.open(PART, os.O_RDONLY | os.O_DIRECTORY)
    for path in ("secret", "outside", "outside/secret", "outside/deep", "outside/deep/secret", "."):
        handle = name_to_handle(f"{ALL}/{path}")
        if path != ".":
            refused(f"the handle of {path}", lambda handle=handle: open_by_handle(mount, handle))
    # Of the whole volume's root and of the part's the kernel has the same handle: which root is meant, says the mount.
    fd = open_by_handle(mount, name_to_handle(f"{ALL}/."))
    assert os.fstat(fd).st_ino == os.stat(PART).st_ino and "secret" not in os.listdir(f"/proc/self/fd/{fd}")
    os.close(fd)
    refused("its own directory by its number elsewhere", lambda: open_by_handle(mount, name_to_handle(f"{ALL}/{HOME}")))
    fd = open_by_handle(mount, name_to_handle(f"{PART}/below/own"), os.O_RDONLY)
    assert os.read(fd, 9) == b"own"
    os.close(fd)
    known, reached = all_numbers(PART), 0
    largest = max(all_numbers(ALL))
    for number in list(range(300)) + [number + offset for number in all_numbers(ALL) for offset in (-1, 0, 1, 1 << 62, 1 << 63)]:
        for generation in (0, 1):
            try:
                fd = open_by_handle(mount, forged(number, generation))
            except OSError as error:
                assert error.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), f"{number}: {error}"
                continue
            assert os.fstat(fd).st_ino in known, f"{number} of {largest} is not below"
            os.close(fd)
            reached += 1
    assert reached >= len(known), (reached, known)
    os.close(mount)


def hard_links_are_names():
    """One made below by a mount that may is a name like any other; nothing else comes with it, and it goes with the name."""
    os.link(f"{ALL}/outside/linked", f"{ALL}/{HOME}/linked")
    with open(f"{PART}/linked") as file:
        assert file.read() == SECRET
    handle = name_to_handle(f"{PART}/linked")
    mount = os.open(PART, os.O_RDONLY | os.O_DIRECTORY)
    refused("a sibling", lambda: os.stat(f"{PART}/deep"), errno.ENOENT)
    os.unlink(f"{ALL}/{HOME}/linked")
    refused("the name", lambda: os.stat(f"{PART}/linked"), errno.ENOENT)
    refused("its handle", lambda: open_by_handle(mount, handle))
    with open(f"{ALL}/outside/linked") as file:
        assert file.read() == SECRET
    os.close(mount)


def work_goes_on():
    os.mkdir(f"{PART}/made")
    with open(f"{PART}/made/file", "w") as file:
        file.write("made")
    os.rename(f"{PART}/made/file", f"{PART}/moved")
    os.link(f"{PART}/moved", f"{PART}/made/again")
    with open(f"{ALL}/{HOME}/made/again") as file:
        assert file.read() == "made"
    with open(f"{ALL}/{HOME}/told", "w") as file:
        file.write("told")
    assert "told" in os.listdir(PART)
    for name in ("moved", "made/again", "told"):
        os.unlink(f"{PART}/{name}")
    os.rmdir(f"{PART}/made")


make()
CASES = (the_root, names_lead_nowhere, handles_lead_nowhere, hard_links_are_names, work_goes_on)
for case in CASES:
    case()
print(f"{len(CASES)} passed, 0 failed")
