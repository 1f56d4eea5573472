#!/usr/bin/env bash
# A mount's process is replaced again and again under programs of nine kinds, by both transports, with and without passthrough: none of them gets an
# error or a wrong byte. Then the new process, or the old one, dies at each step: the mount goes on with the other, or ends with an error.
. "$TESTS/prelude.sh"
passthrough=passthrough_size=64MiB,passthrough_min=4096

# takeover: replaces the process; the new one is another.
takeover() {
  local before
  before=$(daemon_of "$SCRATCH/mount")
  timeout 120 "$FOREBAY" mount --takeover "$SCRATCH/mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 ||
    { cat "$SCRATCH/takeover.log" >&2; fail "takeover"; }
  [ "$(daemon_of "$SCRATCH/mount")" != "$before" ] || fail "the same process serves"
  ended() { ! kill -0 "$before"; }
  wait_for 120 "the old process to end" ended
}

# under_work TRANSPORT COUNT [passthrough]
under_work() {
  local volume=$SCRATCH/volume-$1-${3:-} work round options=transport=$1
  [ -z "${3:-}" ] || options+=,$passthrough
  create_volume "$volume"
  mount_volume "$volume" "$SCRATCH/mount" -o "$options"
  rm -f "$SCRATCH/stop" "$SCRATCH/ready"
  # shellcheck disable=SC2086
  timeout 500 python3 "$TESTS/robustness/takeover_work.py" "$SCRATCH/mount" "$SCRATCH/stop" "$SCRATCH/ready" ${3:-} >"$SCRATCH/work.log" 2>&1 &
  work=$!
  begun() { [ -e "$SCRATCH/ready" ] || ! kill -0 "$work"; }
  wait_for 200 "the programs to begin" begun
  for round in $(seq "$2"); do
    sleep 0.5
    takeover
    grep -o '[0-9.]* ms' "$SCRATCH/takeover.log"
    [ -z "${3:-}" ] || [ "$(open_through)" -gt 0 ] || fail "the new process does not know that the kernel reads a file by itself"
  done
  touch "$SCRATCH/stop"
  wait "$work" || { cat "$SCRATCH/work.log" >&2; fail "$1: a program noticed"; }
  umount_volume "$SCRATCH/mount"
  clean_fsck "$volume"
}

# Opens that the kernel serves by itself now.
open_through() {
  "$FOREBAY" status "$SCRATCH/mount" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["passthrough"]["open"])'
}

# not_taken STEP: the new process dies there; the old one goes on, for those who have files open too.
not_taken() {
  local before
  before=$(daemon_of "$SCRATCH/mount")
  echo "before $1" >>"$SCRATCH/mount/log"
  exec 7>>"$SCRATCH/mount/log"
  if FOREBAY_TEST_DIE=$1 timeout 120 "$FOREBAY" mount --takeover "$SCRATCH/mount" </dev/null >"$SCRATCH/takeover.log" 2>&1; then
    fail "$1: taken over by a process that died"
  fi
  echo "after $1" >&7
  exec 7>&-
  grep -q "after $1" "$SCRATCH/mount/log" || fail "$1: bytes are lost"
  [ "$(daemon_of "$SCRATCH/mount")" = "$before" ] || fail "$1: another process serves"
}

# lost STEP: the new process dies there, when the mount is its own: the mount is dead, and nothing that was synced is lost.
lost() {
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" -o "transport=$transport"
  echo kept >"$SCRATCH/mount/kept"
  sync "$SCRATCH/mount/kept"
  FOREBAY_TEST_DIE=$1 timeout 120 "$FOREBAY" mount --takeover "$SCRATCH/mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 || true
  dead "$1"
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
  [ "$(timeout 30 cat "$SCRATCH/mount/kept")" = kept ] || fail "$1: bytes are lost"
  umount_volume "$SCRATCH/mount"
}

# dead STEP: whoever uses the mount gets an error, and does not wait.
dead() {
  if timeout 30 ls "$SCRATCH/mount" >/dev/null 2>"$SCRATCH/ls.log"; then fail "$1: somebody serves"; fi
  grep -qi "not connected\|connection abort" "$SCRATCH/ls.log" || fail "$1: $(cat "$SCRATCH/ls.log")"
  umount -l "$SCRATCH/mount"
}

# dies STEP OUTCOME: the old process dies there; then the mount is taken over, or dead.
dies() {
  FOREBAY_TEST_DIE=$1 mount_volume "$SCRATCH/volume" "$SCRATCH/mount" -o "transport=$transport"
  echo kept >"$SCRATCH/mount/kept"
  sync -f "$SCRATCH/mount/kept"
  timeout 120 "$FOREBAY" mount --takeover "$SCRATCH/mount" </dev/null >"$SCRATCH/takeover.log" 2>&1 || true
  if [ "$2" = taken ]; then
    [ "$(timeout 30 cat "$SCRATCH/mount/kept")" = kept ] || fail "$1: the mount is not served"
    umount_volume "$SCRATCH/mount"
  else
    dead "$1"
  fi
}

# waits: a process waits for a lock until the file "go" is there; then it has it.
waits() {
  touch "$SCRATCH/mount/locked"
  rm -f "$SCRATCH/held" "$SCRATCH/go" "$SCRATCH/got"
  flock "$SCRATCH/mount/locked" sh -c "touch '$SCRATCH/held'; until [ -e '$SCRATCH/go' ]; do sleep 0.05; done" &
  HOLDER=$!
  wait_for 30 "a lock" test -e "$SCRATCH/held"
  flock "$SCRATCH/mount/locked" touch "$SCRATCH/got" &
  WAITER=$!
}

# waited: it still does, and gets the lock when it is free.
waited() {
  [ ! -e "$SCRATCH/got" ] || fail "who waited for a lock got it beside the one who has it"
  touch "$SCRATCH/go"
  wait "$HOLDER" || fail "who held a lock noticed"
  wait "$WAITER" && [ -e "$SCRATCH/got" ] || fail "who waited for a lock did not get it"
}

uring=/sys/module/fuse/parameters/enable_uring
[ ! -w "$uring" ] || echo Y >"$uring"
for transport in dev_fuse io_uring; do
  under_work "$transport" 4
  under_work "$transport" 4 passthrough
  rm -rf "$SCRATCH/volume"
  create_volume "$SCRATCH/volume"
  mount_volume "$SCRATCH/volume" "$SCRATCH/mount" -o "transport=$transport,$passthrough"
  head -c 200000 /dev/urandom >"$SCRATCH/file"
  python3 "$TESTS/conformance/read_beside.py" "$SCRATCH/mount" "$SCRATCH/mount/file" -- bash -c '
    cp "$0" "$1/file" && read -r _ && cp "$0" "$1/file"' "$SCRATCH/file" "$SCRATCH/mount" < <(until [ -e "$SCRATCH/change" ]; do sleep 0.1; done; echo) &
  beside=$!
  same() { cmp "$SCRATCH/file" "$SCRATCH/mount/file"; }
  wait_for 150 "a file that the kernel reads by itself" same
  waits
  for step in new-asked new-received new-opened new-ready; do not_taken "$step"; done
  takeover
  waited
  head -c 100000 /dev/urandom >"$SCRATCH/file"
  touch "$SCRATCH/change"
  wait "$beside" || fail "who has a file open by the kernel itself noticed"
  rm "$SCRATCH/change"
  umount_volume "$SCRATCH/mount"
  dies old-asked dead
  dies old-paused dead
  dies old-sent taken
  lost new-taken
  clean_fsck "$SCRATCH/volume"
done

mkdir "$SCRATCH/plain"
refused "" "$FOREBAY" mount --takeover "$SCRATCH/plain"
says "not where a Forebay volume is mounted"
mount_volume "$SCRATCH/volume" "$SCRATCH/mount"
refused "" "$FOREBAY" mount --takeover "$SCRATCH/volume-dev_fuse-" "$SCRATCH/mount"
says "volume-dev_fuse"
refused "" "$FOREBAY" mount --takeover -o ro "$SCRATCH/mount"
says "takeover"
umount_volume "$SCRATCH/mount"
