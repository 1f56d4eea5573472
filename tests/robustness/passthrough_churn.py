"""Processes open, read and map files of which half have room to be handed to the kernel, while others write to them: none may fail, and what nobody
writes to must be what it was.

passthrough_churn.py DIR: an empty directory on a mount with room for three files of 3 MiB.
"""

import mmap
import multiprocessing
import os
import random
import sys
import time

FILES, LENGTH, WRITTEN = 6, 3 << 20, 1 << 16
READS, WRITES = 40000, 400


def contents(index):
    return random.Random(index).randbytes(LENGTH)


def read(directory, seed):
    dice, wanted, mappings = random.Random(seed), [contents(index) for index in range(FILES)], []
    for _ in range(READS):
        index, at = dice.randrange(FILES), dice.randrange(WRITTEN, LENGTH - 5000)
        file = os.open(f"{directory}/{index}", os.O_RDONLY)
        seen = os.pread(file, 5000, at)
        if dice.randrange(8) == 0:
            mappings = [*mappings[-4:], mmap.mmap(file, LENGTH, prot=mmap.PROT_READ)]
            seen = mappings[-1][at : at + 5000]
        os.close(file)
        if seen != wanted[index][at : at + 5000]:
            sys.exit(f"FAILED: file {index} is wrong at {at}")


def write(directory, seed):
    dice = random.Random(seed)
    for count in range(WRITES):
        file = os.open(f"{directory}/{dice.randrange(FILES)}", dice.choice([os.O_RDWR, os.O_WRONLY]))
        os.pwrite(file, bytes([count % 256]) * 4096, dice.randrange(WRITTEN - 4096))
        os.close(file)
        # Between them readers have a file to themselves.
        time.sleep(dice.random() / 20)


def main():
    directory = sys.argv[1]
    for index in range(FILES):
        with open(f"{directory}/{index}", "wb") as file:
            file.write(contents(index))
    work = [read] * 4 + [write] * 2
    tasks = [multiprocessing.Process(target=each, args=(directory, seed)) for seed, each in enumerate(work)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    sys.exit(any(task.exitcode for task in tasks))


main()
