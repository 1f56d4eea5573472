#!/usr/bin/env bash
# The server is killed, and another of the same engine or the same one again goes on: nobody is told an error, nothing is lost or done twice,
# open files and locks go on. Then the same with a server that is stopped in order.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
start_cluster
mount_shared one
mount_shared two
echo open >"$SCRATCH/one/open"
# A process of its own holds a lock and an open file: what the shell itself had open, the servers that it starts would have, too.
python3 - "$SCRATCH/one/locked" "$SCRATCH/one/open" "$SCRATCH/holder" >"$SCRATCH/holder.log" 2>&1 <<'PYTHON' &
import fcntl, os, sys, time
locked, opened, name = sys.argv[1:]
lock = os.open(locked, os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
file = os.open(opened, os.O_RDWR)
open(name + ".holds", "w").close()
while not os.path.exists(name + ".go"):
    time.sleep(0.05)
with open(name + ".new", "w") as out:
    out.write(os.pread(file, 100, 0).decode())
os.rename(name + ".new", name + ".said")
PYTHON
holder=$!
wait_for 60 "a lock and an open file" test -e "$SCRATCH/holder.holds"
rm "$SCRATCH/two/open"

# Makes, renames, links and removes while servers come and go; each step must succeed exactly once.
work() {
  python3 - "$1" "$2" <<'PYTHON'
import os, sys
top, tag = sys.argv[1], sys.argv[2]
os.mkdir(f"{top}/{tag}")
number = 0
while not os.path.exists(f"{top}/stop"):
    path = f"{top}/{tag}/{number}"
    handle = os.open(path + ".new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(handle, str(number).encode())
    os.close(handle)
    os.rename(path + ".new", path)
    os.link(path, path + ".link")
    os.unlink(path + ".link")
    number += 1
print(number)
PYTHON
}
work "$SCRATCH/one" a >"$SCRATCH/done-a" & first=$!
work "$SCRATCH/two" b >"$SCRATCH/done-b" & second=$!
for round in kill kill term; do
  sleep 2
  if [ "$round" = kill ]; then kill_meta a; else kill -TERM "${META_PID[a]}"; wait "${META_PID[a]}" || fail "the server did not end in order"; fi
  start_meta a
  wait_for 60 "the volume to be served again" touch "$SCRATCH/one/after-$round"
done
touch "$SCRATCH/one/stop"
wait "$first" || fail "the first worker was told an error"
wait "$second" || fail "the second worker was told an error"
for tag in a b; do
  count=$(cat "$SCRATCH/done-$tag")
  [ "$count" -gt 0 ] || fail "nothing was done"
  seq 0 $((count - 1)) | sort >"$SCRATCH/expected"
  for top in one two; do
    ls "$SCRATCH/$top/$tag" | sort | diff - "$SCRATCH/expected" >&2 || fail "$top/$tag is not what was made"
  done
  for number in 0 $((count / 2)) $((count - 1)); do [ "$(cat "$SCRATCH/two/$tag/$number")" = "$number" ] || fail "contents of $tag/$number"; done
done
! flock -n -x "$SCRATCH/two/locked" true || fail "the lock was lost with the server"
touch "$SCRATCH/holder.go"
wait "$holder" || { cat "$SCRATCH/holder.log" >&2; fail "the open file without a name was lost with the server"; }
[ "$(cat "$SCRATCH/holder.said")" = open ] || fail "the open file without a name has other bytes"
# A file is released some time after its close has returned.
wait_for 60 "the lock of a closed handle" flock -n -x "$SCRATCH/two/locked" true
same_tree "$SCRATCH/one" "$SCRATCH/two"
end_cluster one two
