"""Reads files in pieces of 64 KiB. Passes if some pieces are EIO, most are not, and every whole file has its sum."""
import errno
import hashlib
import os
import sys

PIECE = 64 << 10
errors = pieces = 0
for line in open(sys.argv[2]):
    expected, name = line.split()
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
    sum, whole = hashlib.sha256(), True
    for at in range(0, os.fstat(fd).st_size, PIECE):
        pieces += 1
        try:
            sum.update(os.pread(fd, PIECE, at))
        except OSError as error:
            assert error.errno == errno.EIO, error
            errors += 1
            whole = False
    assert not whole or sum.hexdigest() == expected, f"{name}: wrong bytes"
assert errors > 0, "everything could be read"
assert errors < pieces * 3 // 4, f"{errors} of {pieces} pieces are errors"
