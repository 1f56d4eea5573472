#!/usr/bin/env bash
# Policies with real processes: a volume of class replica over three proxies, before a store that can be stopped. While the store does not answer, fsync of what was made in a
# directory of class object waits for it, and fsync beside it does not; so it is on another mount, for files that were there before, after another class was said, after the
# metadata server was killed, and until the policy is taken back. What is refused says what to do.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

replica_group 5
mount_shared one
mount_shared two

policy() { ask policy "$@"; }
durability() { policy show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["durability"])'; }
is_of() { local found; found=$(durability "$1"); [ "$found" = "$2" ] || fail "$1 is of $found, and should be of $2"; }
# says WORDS COMMAND...: it fails in one line with these words.
says() {
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then fail "it was not refused: $*"; fi
  grep -q -- "$words" <<<"$said" || fail "refused without '$words': $said"
  [ "$(wc -l <<<"$said")" = 1 ] || fail "it takes more than a line: $said"
}
write_synced() { dd if=/dev/urandom of="$1" bs=100k count=1 conv=fsync,notrunc status=none; }
# at_once FILE: its fsync does not wait for the store, which is stopped. waits FILE: it does, until the store goes on.
at_once() {
  kill -STOP "$STORE_PID"
  timeout 30 dd if=/dev/urandom of="$1" bs=100k count=1 conv=fsync,notrunc status=none || { kill -CONT "$STORE_PID"; fail "fsync of $1 waited for the store"; }
  kill -CONT "$STORE_PID"
}
waits() {
  kill -STOP "$STORE_PID"
  write_synced "$1" &
  local writer=$!
  sleep 3
  if ! kill -0 "$writer" 2>/dev/null; then kill -CONT "$STORE_PID"; fail "fsync of $1 did not wait for the store"; fi
  kill -CONT "$STORE_PID"
  wait "$writer" || fail "fsync of $1 failed"
}

mkdir -p "$SCRATCH/one/safe/deep" "$SCRATCH/one/plain" "$SCRATCH/one/safe/scratch"
for name in safe/before safe/deep/before plain/before safe/scratch/before; do write_synced "$SCRATCH/one/$name"; done
is_of "$SCRATCH/one/safe" replica:2
at_once "$SCRATCH/one/safe/before"

# What is in a directory goes by its policy, on every mount; what was said for a part of it before stays.
policy set "$SCRATCH/one/safe/scratch" --durability replica:2 >/dev/null
policy set "$SCRATCH/one/safe" --durability object >"$SCRATCH/set.log"
grep -q "3 below it" "$SCRATCH/set.log" && grep -q "1 go by" "$SCRATCH/set.log" || fail "$(cat "$SCRATCH/set.log")"
for name in safe safe/before safe/deep safe/deep/before; do is_of "$SCRATCH/two/$name" object; done
for name in plain/before safe/scratch safe/scratch/before; do is_of "$SCRATCH/two/$name" replica:2; done
waits "$SCRATCH/one/safe/before"
waits "$SCRATCH/two/safe/deep/before"
waits "$SCRATCH/two/safe/deep/new"
at_once "$SCRATCH/one/plain/before"
at_once "$SCRATCH/two/safe/scratch/new"
is_of "$SCRATCH/one/safe/deep/new" object
policy show "$SCRATCH/one/safe/deep/new" >"$SCRATCH/show.log"
grep -q "said for '$SCRATCH/one/safe'" "$SCRATCH/show.log" || fail "$(cat "$SCRATCH/show.log")"

# A neighbour of class object does not hold up one that is not: both are written before either is synced.
python3 - "$SCRATCH/one" "$STORE_PID" <<'P' || fail "a file waited for the store because of its neighbour"
import os, signal, sys
root, store = sys.argv[1], int(sys.argv[2])
safe, plain = (os.open(f"{root}/{name}", os.O_CREAT | os.O_WRONLY) for name in ("safe/n1", "safe/scratch/n2"))
for fd in (safe, plain):
    os.write(fd, b"x" * 50_000)
os.kill(store, signal.SIGSTOP)
signal.alarm(30)
try:
    os.fsync(plain)
finally:
    os.kill(store, signal.SIGCONT)
os.fsync(safe)
P

# A moved file keeps what it has; a copy by reference of bytes that members alone have is a copy.
mv "$SCRATCH/one/safe/deep/new" "$SCRATCH/one/plain/moved"
waits "$SCRATCH/one/plain/moved"
write_synced "$SCRATCH/one/plain/source"
cp --reflink=auto "$SCRATCH/one/plain/source" "$SCRATCH/one/safe/copied"
sync "$SCRATCH/one/safe/copied"
cmp "$SCRATCH/one/plain/source" "$SCRATCH/two/safe/copied"

# Another class for the directory counts for all of it at once, also for the server that takes over.
policy set "$SCRATCH/one/safe" --durability replica:3 | grep -q "so it is for all" || fail "it was given name by name"
is_of "$SCRATCH/two/safe/deep/before" replica:3
kill_meta a
start_meta a
meta_serves
is_of "$SCRATCH/two/safe/deep/before" replica:3
until_lower() { timeout 5 dd if=/dev/urandom of="$SCRATCH/two/safe/deep/before" bs=100k count=1 conv=fsync,notrunc status=none; }
kill -STOP "$STORE_PID"
# Members stop acting while the server starts anew. Each that was late is left alone for ten seconds, and an attempt meanwhile waits for the store, which stands still.
wait_for 180 "three copies are enough" until_lower
kill -CONT "$STORE_PID"
policy set "$SCRATCH/two/safe" --durability object >/dev/null
waits "$SCRATCH/one/safe/deep/before"
policy unset "$SCRATCH/two/safe" >/dev/null
is_of "$SCRATCH/one/safe/deep/before" replica:2

# Of one file.
policy set "$SCRATCH/one/plain/before" --durability object | grep -q "fsync waits for object" || fail "a file"
waits "$SCRATCH/two/plain/before"
at_once "$SCRATCH/two/plain/beside"

# More names than one step looks at.
mkdir "$SCRATCH/one/many"
(cd "$SCRATCH/one/many" && mkdir {1..40} && touch {1..40}/{1..60} && touch {1..2000}.file)
policy set "$SCRATCH/two/many" --durability object | grep -q "  4440 below it" || fail "not all names of a large directory"
for name in 1.file 2000.file 999.file 40/60 1/1; do is_of "$SCRATCH/one/many/$name" object; done

# What is refused.
if policy set "$SCRATCH/one/plain" --durability replica:1 >"$SCRATCH/refused.log" 2>&1; then fail "a class that is none was taken"; fi
grep -q "replica:K with K from 2 to 8" "$SCRATCH/refused.log" || fail "$(cat "$SCRATCH/refused.log")"
says "nothing was said for" policy unset "$SCRATCH/one/safe/deep/before"
ask volume set "$VOLUME_NAME" --durability replica:3 >/dev/null
says "never promises less" policy set "$SCRATCH/one/plain" --durability replica:2
says "never promises less" policy set "$SCRATCH/one/plain" --durability local
is_of "$SCRATCH/one/safe/scratch" replica:3
says "is not on a mounted Forebay volume" policy show /proc
mkdir "$SCRATCH/here"
"$FOREBAY" create "$SCRATCH/volume" >/dev/null
"$FOREBAY" mount "$SCRATCH/volume" "$SCRATCH/here" >"$SCRATCH/mount.log" 2>&1 || fail "$(cat "$SCRATCH/mount.log")"
says "of this machine alone" policy show "$SCRATCH/here"
umount_volume "$SCRATCH/here"

# The store alone has everything.
for name in safe/before safe/copied safe/n1 safe/scratch/n2 plain/moved; do (cd "$SCRATCH/one" && sha256sum "$name"); done >"$SCRATCH/sums"
umount_volume "$SCRATCH/one"
umount_volume "$SCRATCH/two"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
(cd "$SCRATCH/alone" && sha256sum -c --quiet "$SCRATCH/sums") || fail "files differ"
end_cluster alone
kill "$STORE_PID"
