"""What programs on mounts do while they are measured (shared.sh). Each prints one line: when it began and when it ended (CLOCK_MONOTONIC, seconds), and how many entries that was.

shared.py create DIR COUNT AT   makes empty files in a new directory, each opened and closed; begins at AT
shared.py synced DIR COUNT AT   the same, each with an fsync
shared.py scan DIR              lists DIR and asks for each entry's size, as `find -printf %s` does
shared.py now SECONDS           so many seconds from now
"""

import os
import sys
import time


def create(path, count, at, sync=False):
    os.mkdir(path)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    time.sleep(max(0.0, float(at) - time.monotonic()))
    began = time.monotonic()
    for number in range(int(count)):
        file = os.open(f"f{number:07}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=directory)
        if sync:
            os.fsync(file)
        os.close(file)
    print(began, time.monotonic(), count)


def synced(path, count, at):
    create(path, count, at, sync=True)


def scan(path):
    began, count, size = time.monotonic(), 0, 0
    with os.scandir(path) as entries:
        for entry in entries:
            size += entry.stat(follow_symlinks=False).st_size
            count += 1
    print(began, time.monotonic(), count)


what, *words = sys.argv[1:]
if what == "now":
    print(time.monotonic() + float(words[0]))
else:
    {"create": create, "synced": synced, "scan": scan}[what](*words)
