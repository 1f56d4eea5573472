"""A SQLite writer is killed while it commits; what it said was committed is there, and the database is whole."""
import os
import signal
import sqlite3
import sys

COMMITS = 60
for mode in ("delete", "truncate", "wal"):
    path = os.path.join(sys.argv[1], f"killed-{mode}.db")
    database = sqlite3.connect(path)
    assert database.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
    database.execute("create table t(id integer primary key, body blob)")
    database.commit()
    database.close()
    total = 0
    for round in range(3):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            own = sqlite3.connect(path, timeout=60)
            own.execute("pragma synchronous=full")
            while True:
                with own:
                    own.executemany("insert into t(body) values(?)", [(os.urandom(700),)] * 3)
                os.write(write, b".")
        os.close(write)
        said = 0
        while said < COMMITS:
            said += len(os.read(read, 1))
        os.kill(child, signal.SIGKILL)
        while piece := os.read(read, 4096):
            said += len(piece)
        os.close(read)
        os.waitpid(child, 0)
        database = sqlite3.connect(path, timeout=60)
        rows = database.execute("select count(*) from t").fetchone()[0]
        # The last commit may have been made and not said.
        assert total + 3 * said <= rows <= total + 3 * said + 3, (mode, total, said, rows)
        assert database.execute("pragma integrity_check").fetchone()[0] == "ok", mode
        database.close()
        total = rows
