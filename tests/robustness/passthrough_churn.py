"""Processes open, read and map files of which half have room to be handed to the kernel, while others write to them: none may fail, and what nobody
writes to must be what it was.

They write in bursts. After each they rest until the kernel was given a file anew, so that every burst but the first finds files in its hands, however
fast the machine.

passthrough_churn.py DIR OPENS...: an empty directory on a mount with room for three files of 3 MiB, and the command that says how many opens the
kernel was given.
"""

import mmap
import multiprocessing
import os
import random
import subprocess
import sys
import time

FILES, LENGTH, WRITTEN = 6, 3 << 20, 1 << 16
BURSTS, BURST = 8, 50


def contents(index):
    return random.Random(index).randbytes(LENGTH)


def read(directory, seed, done):
    dice, wanted, mappings = random.Random(seed), [contents(index) for index in range(FILES)], []
    while not done.is_set() and multiprocessing.parent_process().is_alive():
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
    for count in range(BURST):
        file = os.open(f"{directory}/{dice.randrange(FILES)}", dice.choice([os.O_RDWR, os.O_WRONLY]))
        os.pwrite(file, bytes([count % 256]) * 4096, dice.randrange(WRITTEN - 4096))
        os.close(file)
        # Between them readers have a file to themselves.
        time.sleep(dice.random() / 20)


def together(tasks):
    """Runs them all to their end, and says whether one failed."""
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    return any(task.exitcode for task in tasks)


def given(command):
    """How many opens the kernel was given."""
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    directory, command = sys.argv[1], sys.argv[2:]
    for index in range(FILES):
        with open(f"{directory}/{index}", "wb") as file:
            file.write(contents(index))
    done = multiprocessing.Event()
    readers = [multiprocessing.Process(target=read, args=(directory, seed, done)) for seed in range(4)]
    for reader in readers:
        reader.start()
    failed = False
    for burst in range(BURSTS):
        failed |= together([multiprocessing.Process(target=write, args=(directory, f"{burst} {each}")) for each in range(2)])
        before = given(command)
        while given(command) == before and all(reader.is_alive() for reader in readers):
            time.sleep(0.1)
    done.set()
    for reader in readers:
        reader.join()
    sys.exit(failed or any(reader.exitcode for reader in readers))


main()
