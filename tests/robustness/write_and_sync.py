"""Writes files, syncs each with its directory, and only then notes its sum; ends when the file system goes away."""
import hashlib
import os
import random
import sys

mount, notes, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
source = random.Random(seed)
with open(notes, "w") as log:
    try:
        for number in range(100_000):
            name = f"round-{seed}-{number % 5}/file-{number}"
            os.makedirs(os.path.join(mount, os.path.dirname(name)), exist_ok=True)
            content = source.randbytes(source.choice([0, 10, 900, 5_000, 70_000, 700_000]))
            with open(os.path.join(mount, name + ".new"), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(os.path.join(mount, name + ".new"), os.path.join(mount, name))
            for directory in (os.path.dirname(os.path.join(mount, name)), mount):
                fd = os.open(directory, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)
            log.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
            log.flush()
    except OSError:
        pass
