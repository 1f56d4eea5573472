#!/usr/bin/env bash
# A client that is stopped while its kernel goes on serves nothing old once others may change it, and its late writes are refused and told;
# one that is killed releases what it held.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"

# hold NAME: a process that has a lock and a file with bytes that nobody synced, on the first mount, until $SCRATCH/NAME.go is there; then it says in
# $SCRATCH/NAME.locked what it may do with what it has locked, before and after it gives the lock up, syncs, and says what came of that in $SCRATCH/NAME.said. The shell itself has nothing open there: what it starts would close it, and wait for the mount.
hold() {
  python3 - "$SCRATCH/one/$1-locked" "$SCRATCH/one/$1-record" "$SCRATCH/one/$1-kept" "$SCRATCH/$1" >"$SCRATCH/$1.log" 2>&1 <<'PYTHON' &
import fcntl, os, sys, time
locked, record, kept, name = sys.argv[1:]
record = os.open(record, os.O_CREAT | os.O_RDWR)
fcntl.lockf(record, fcntl.LOCK_EX)
lock = os.open(locked, os.O_CREAT | os.O_RDWR)
os.write(lock, b"mine")
os.fsync(lock)
fcntl.flock(lock, fcntl.LOCK_EX)
file = os.open(kept, os.O_CREAT | os.O_WRONLY)
os.write(file, b"back")
open(name + ".holds", "w").close()
while not os.path.exists(name + ".go"):
    time.sleep(0.05)
def told(what):
    try:
        what()
        return "done"
    except OSError as error:
        return str(error.errno)
under = [lambda: os.pread(lock, 10, 0), lambda: os.pwrite(lock, b"old", 0), lambda: os.ftruncate(lock, 1),
         lambda: os.posix_fallocate(lock, 0, 100), lambda: fcntl.flock(lock, fcntl.LOCK_SH)]
with open(name + ".locked", "w") as out:
    out.write(" ".join([told(what) for what in under + [lambda: fcntl.flock(lock, fcntl.LOCK_UN)] + under[:1]]))
try:
    os.fsync(file)
    said = "synced"
except OSError as error:
    said = str(error.errno)
with open(name + ".new", "w") as out:
    out.write(said)
os.rename(name + ".new", name + ".said")
PYTHON
  HOLDERS+=($!)
  wait_for 60 "a holder" test -e "$SCRATCH/$1.holds"
}
HOLDERS=()

# released NAME: both locks of a holder, of the file and of its record, can be had on the second mount.
released() {
  timeout 60 flock -x "$SCRATCH/two/$1-locked" true || fail "the lock of $1, whose client is gone, was not released"
  timeout 60 python3 -c 'import fcntl, sys; fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX)' "$SCRATCH/two/$1-record" ||
    fail "the record lock of $1, whose client is gone, was not released"
}

# knows: a process that has asked the first mount for a file's attributes and for a name that is not there, and asks again by what it has open once $SCRATCH/knows.go is there.
knows() {
  python3 - "$SCRATCH/one" "$SCRATCH/knows" <<'PYTHON' &
import os, sys, time
mount, name = sys.argv[1:]
file, top = os.open(f"{mount}/attributes", os.O_RDONLY), os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
def asked():
    # First: what has to ask the daemon would hold up the other until that goes on.
    size = os.fstat(file).st_size
    try:
        os.stat("missing", dir_fd=top)
        return f"{size} there"
    except FileNotFoundError:
        return f"{size} missing"
# Twice: the second answer is the kernel's.
assert [asked(), asked()] == ["7 missing"] * 2
open(name + ".holds", "w").close()
while not os.path.exists(name + ".go"):
    time.sleep(0.05)
with open(name + ".new", "w") as out:
    out.write(asked())
os.rename(name + ".new", name + ".said")
PYTHON
  HOLDERS+=($!)
  wait_for 60 "who knows" test -e "$SCRATCH/knows.holds"
}

start_cluster
mount_shared one
mount_shared two
echo before >"$SCRATCH/one/file"
sync "$SCRATCH/one/file"
[ "$(cat "$SCRATCH/one/file")" = before ]
echo before >"$SCRATCH/two/attributes"
hold first
# Last: what is made in the directory has the kernel ask for its attributes again.
knows
daemon=$(daemon_of "$SCRATCH/one")

kill -STOP "$daemon"
# The other waits for the end of the stopped client's session, and no longer.
echo after >"$SCRATCH/two/file"
[ "$(cat "$SCRATCH/two/file")" = after ]
mv "$SCRATCH/two/file" "$SCRATCH/two/moved"
echo "and after" >>"$SCRATCH/two/attributes"
touch "$SCRATCH/two/missing" "$SCRATCH/knows.go"
released first
timeout 60 flock -x "$SCRATCH/two/first-locked" sh -c "echo theirs >'$SCRATCH/two/first-locked'" || fail "the lock of a client that is not heard of was not released"
# What the stopped client's kernel still answers from memory is nothing that has changed since: it asks its daemon, which does not answer.
cat "$SCRATCH/one/file" >"$SCRATCH/stale" 2>/dev/null &
reader=$!
sleep 3
answered=yes
! kill -0 "$reader" 2>/dev/null || answered=no
kill -CONT "$daemon"
wait_for 60 "an answer of the client that was stopped" test -e "$SCRATCH/knows.said"
[ "$(cat "$SCRATCH/knows.said")" = "17 there" ] || fail "a stopped client's kernel answers what is old: $(cat "$SCRATCH/knows.said")"
! wait "$reader" || [ "$(cat "$SCRATCH/stale")" != before ] || fail "a stopped client serves what is old (before it went on: $answered)"
caught_up() { [ "$(cat "$SCRATCH/one/moved")" = after ] && [ ! -e "$SCRATCH/one/file" ]; }
wait_for 60 "the client that was stopped to go on" caught_up
# What it had kept back is lost with its session, and it says so; or it is there.
touch "$SCRATCH/first.go"
wait_for 60 "the sync of what was kept back" test -e "$SCRATCH/first.said"
case $(cat "$SCRATCH/first.said") in
  synced) grep -q back "$SCRATCH/two/first-kept" || fail "fsync said that all is there, and it is not" ;;
  5) ;;
  *) fail "fsync failed in another way: $(cat "$SCRATCH/first.said")" ;;
esac
# And the lock is lost: nothing that was meant to be under it is done to what others have had since.
[ "$(cat "$SCRATCH/first.locked")" = "5 5 5 5 5 done done" ] || fail "with a lock that it has lost: $(cat "$SCRATCH/first.locked")"
[ "$(cat "$SCRATCH/two/first-locked")" = theirs ] || fail "what was locked elsewhere was changed: $(cat "$SCRATCH/two/first-locked")"
echo again >"$SCRATCH/one/again"
[ "$(cat "$SCRATCH/two/again")" = again ]

# Killed: the other goes on after a term at the latest, and what was synced is there.
echo synced >"$SCRATCH/one/synced"
sync "$SCRATCH/one/synced"
hold second
kill -KILL "$(daemon_of "$SCRATCH/one")"
released second
[ "$(cat "$SCRATCH/two/synced")" = synced ]
touch "$SCRATCH/second.go"
wait "${HOLDERS[@]}" || true
umount -l "$SCRATCH/one"
end_cluster two
