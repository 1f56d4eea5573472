"""Signals to who waits for a lock, come before the daemon took the request: it is stopped meanwhile.

signalled.py DAEMON FILE: prints what was seen; fails if a waiter does not hear of its signal, or hears of another thread's.
"""
import errno
import fcntl
import os
import signal
import sys
import threading
import time

daemon, path = int(sys.argv[1]), sys.argv[2]
PATIENCE = 60


def until(what, true):
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: waited in vain until {what}")
        time.sleep(0.002)


def asks(thread):
    """Whether a thread waits for the answer to a request."""
    with open(f"/proc/{thread}/wchan") as where:
        return where.read().startswith("request_wait")


def state(thread):
    with open(f"/proc/{thread}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


def on_signal(*_):
    raise InterruptedError(errno.EINTR, "a signal")


def in_child(work):
    """Runs `work` in a child once the daemon stands still, and gives the child's number and a call that starts it."""
    ready, say_ready = os.pipe()
    wait_for_it, go = os.pipe()
    child = os.fork()
    if child == 0:
        file = os.open(path, os.O_RDWR)
        os.write(say_ready, b"x")
        os.read(wait_for_it, 1)
        os._exit(work(file))
    os.read(ready, 1)
    return child, lambda: os.write(go, b"x")


def lock_or_signal(file):
    signal.signal(signal.SIGALRM, on_signal)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
    except InterruptedError:
        return 4
    return 0


def lock_in_a_thread(file):
    """The process's signals come to the first thread; the second one, which waits for the lock, must get it."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    results = []

    def lock():
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)
            results.append(0)
        except OSError as error:
            results.append(error.errno)

    thread = threading.Thread(target=lock)
    thread.start()
    thread.join()
    return results[0]


def before_it_is_taken(work, number):
    """Sends a child that has asked for a lock a signal while the daemon stands still; gives the child."""
    child, go = in_child(work)
    os.kill(daemon, signal.SIGSTOP)
    try:
        go()
        threads = lambda: [int(thread) for thread in os.listdir(f"/proc/{child}/task")]
        until("the lock is asked for", lambda: any(map(asks, threads())))
        os.kill(child, number)
        if work is not lock_in_a_thread:
            until("it has left its first wait", lambda: state(child) != "S")
    finally:
        os.kill(daemon, signal.SIGCONT)
    return child


def ended(child):
    statuses = []

    def true():
        pid, status = os.waitpid(child, os.WNOHANG)
        statuses.append(status)
        return pid == child

    until("it has heard of its signal", true)
    return os.waitstatus_to_exitcode(statuses[-1])


held = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(held, fcntl.LOCK_EX)
for turn in range(5):
    seen = ended(before_it_is_taken(lock_or_signal, signal.SIGALRM))
    if seen != 4:
        sys.exit(f"FAILED: a waiter with a handler ends with {seen}")
    seen = ended(before_it_is_taken(lock_or_signal, signal.SIGKILL))
    if seen != -signal.SIGKILL:
        sys.exit(f"FAILED: a killed waiter ends with {seen}")
    child = before_it_is_taken(lock_in_a_thread, signal.SIGALRM)
    time.sleep(0.05)
    if os.waitpid(child, os.WNOHANG)[0]:
        sys.exit("FAILED: a thread that waits has heard of another one's signal")
    fcntl.lockf(held, fcntl.LOCK_UN)
    seen = ended(child)
    if seen != 0:
        sys.exit(f"FAILED: a thread that waits beside one with a signal ends with {seen}")
    fcntl.lockf(held, fcntl.LOCK_EX)
print("15 waiters were as they should be")
