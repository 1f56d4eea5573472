"""Runs a command while files that it may change are open for reading by the kernel itself (passthrough), and compares: in the end the open files
must hold what is in the files, by reading and by a mapping.

read_beside.py MOUNTPOINT FILE... -- COMMAND...: makes the files. The command must leave them there.
"""
import json
import mmap
import os
import subprocess
import sys
import time

SIZE, PATIENCE = 8192, 120


def opens(mountpoint):
    """How many opens were handed to the kernel."""
    status = subprocess.run([os.environ["FOREBAY"], "status", mountpoint, "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(status.stdout)["passthrough"]["opens"]


def open_beside(mountpoint, path, deadline):
    while True:
        before = opens(mountpoint)
        file = os.open(path, os.O_RDONLY)
        if opens(mountpoint) > before:
            return file
        os.close(file)
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {path} is never handed to the kernel")


def whole(file):
    os.lseek(file, 0, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(file, 1 << 20), b""))


def main():
    mountpoint, *rest = sys.argv[1:]
    paths, command = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    for path in paths:
        with open(path, "wb") as file:
            file.write(os.urandom(SIZE))
    # Opened twice, a file is worth it; all of them get ready at once.
    for path in paths * 2:
        os.close(os.open(path, os.O_RDONLY))
    deadline = time.monotonic() + PATIENCE
    held = [open_beside(mountpoint, path, deadline) for path in paths]
    subprocess.run(command, check=True)
    for path, by_kernel in zip(paths, held):
        with open(path, "r+b") as file:
            wanted = file.read()
        if whole(by_kernel) != wanted:
            sys.exit(f"FAILED: who has had {path} open reads something else than what is in it")
        if wanted and mmap.mmap(by_kernel, len(wanted), prot=mmap.PROT_READ)[:] != wanted:
            sys.exit(f"FAILED: who maps {path} sees something else than what is in it")


if __name__ == "__main__":
    main()
