#!/usr/bin/env bash
# Class replica with real processes: a mount writes over the logs of three proxies, before a store that is 20 ms away. What fsync acknowledged is read by another mount
# before the store has it, and is there after each of these, in turn, while files are written: a member is stopped; one is killed, and comes back; one is drained and
# removed; the store does not answer; the metadata server is killed; a member's disk is full; all members are killed at once; a member's log is damaged, and its disk lost, with
# much on it that the store has not; the mount is killed. Writers see no error
# but the last one. In the end nothing is dirty, and the store alone has everything.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
HARMS=${HARMS:-stopped killed drained store_away meta_killed disk_full all_killed log_damaged disk_lost writer_killed}
FOR=${FOR:-2}
declare -A WRITERS

# One of the disks is small.
truncate -s 2G "$SCRATCH/disk-b.img"
mkfs.ext4 -q -F -m 0 "$SCRATCH/disk-b.img"
mkdir "$SCRATCH/disk-b"
mount -o loop "$SCRATCH/disk-b.img" "$SCRATCH/disk-b"
PROXY_DIR[b]=$SCRATCH/disk-b/proxy
replica_group 20
mount_shared writer
mount_shared reader

work() { python3 "$TESTS/cluster/writeback.py" "$@"; }

# begin: two writers. goes_on: they have synced more since. finish: they end without an error, and what they synced is there for another mount.
begin() {
  for number in 1 2; do
    work write "$SCRATCH/writer" "$SCRATCH/$1-$number" >"$SCRATCH/$1-$number.said" 2>&1 &
    WRITERS[$number]=$!
  done
  for number in 1 2; do wait_for 60 "writer $number to begin" test -s "$SCRATCH/$1-$number"; done
}
synced() { wc -l <"$SCRATCH/$1"; }
has_synced_since() { [ "$(synced "$1")" -gt "$2" ]; }
goes_on() {
  local number now
  for number in 1 2; do
    now=$(synced "$1-$number")
    wait_for "${2:-60}" "writer $number to go on" has_synced_since "$1-$number" "$((now + 3))"
  done
}
finish() {
  touch "$SCRATCH/$1-1.stop" "$SCRATCH/$1-2.stop"
  for number in 1 2; do
    wait "${WRITERS[$number]}" || { tail -n 5 "$SCRATCH/$1-$number.said" >&2; fail "$1: writer $number saw an error"; }
    work check "$SCRATCH/reader" "$SCRATCH/$1-$number" >"$SCRATCH/$1-$number.checked" || fail "$1: what writer $number synced is not there"
  done
}

# Nothing waits for the store: much is synced while it does not answer.
begin quiet
goes_on quiet
kill -STOP "$STORE_PID"
more=$(synced quiet-1)
wait_for 60 "twenty syncs without a store" has_synced_since quiet-1 "$((more + 20))"
kill -CONT "$STORE_PID"
finish quiet
wait_for 60 "what was written is in the store" is_clean

# It can be measured like any other mount.
"$FOREBAY" bench "$SCRATCH/reader" --quick --keep-caches --workload small-sync --workload sequential-read-cold --size synced-files=20 --size stream-bytes=4194304 \
  >"$SCRATCH/bench.log" 2>&1 || { cat "$SCRATCH/bench.log" >&2; fail "bench"; }
for step in "files, synced" "sequential read"; do grep -qi "$step" "$SCRATCH/bench.log" || { cat "$SCRATCH/bench.log" >&2; fail "bench does not tell of: $step"; }; done

stopped() {
  kill -STOP "${PROXY_PID[b]}"
  goes_on stopped
  wait_for 60 "the stopped one is counted out" has_members 2
  goes_on stopped
  kill -CONT "${PROXY_PID[b]}"
  wait_for 60 "it joins again" has_members 3
  goes_on stopped
}

killed() {
  kill_proxy a
  goes_on killed
  wait_for 60 "the killed one is counted out" has_members 2
  start_proxy a
  wait_for 60 "it joins again with what it has" has_members 3
  goes_on killed
}

drained() {
  ask group drain fast "${PROXY_AT[c]}" >/dev/null
  goes() { ask group remove fast "${PROXY_AT[c]}"; }
  wait_for 90 "the drained one goes" goes
  ! wait "${PROXY_PID[c]}" || fail "a removed proxy ended as if nothing were"
  goes_on drained
  # Its disk is a new member's.
  mv "$SCRATCH/proxy-c" "$SCRATCH/removed-c"
  start_proxy c
  wait_for 60 "a new member" has_members 3
  goes_on drained
}

store_away() {
  kill -STOP "$STORE_PID"
  goes_on store_away
  sleep "$FOR"
  goes_on store_away
  kill -CONT "$STORE_PID"
  goes_on store_away
}

meta_killed() {
  kill_meta a
  sleep 1
  start_meta a
  goes_on meta_killed
}

disk_full() {
  dd if=/dev/zero of="$SCRATCH/disk-b/filled" bs=1M 2>/dev/null || true
  goes_on disk_full
  sleep "$FOR"
  goes_on disk_full
  wait_for 60 "the member to say that its disk is full" grep -q 'the disk of the log is full: .* make room' "$SCRATCH/proxy-b.log"
  rm "$SCRATCH/disk-b/filled"
  goes_on disk_full
}

all_killed() {
  for name in a b c; do kill -KILL "${PROXY_PID[$name]}"; done
  for name in a b c; do wait "${PROXY_PID[$name]}" 2>/dev/null || true; done
  # With nobody there the store takes what is written.
  goes_on all_killed
  for name in a b c; do start_proxy "$name"; done
  wait_for 90 "all join again" has_members 3
  goes_on all_killed
}

# Bytes in the middle of what one member has in its log are others; it finds that itself, and who has the other copy puts it. It is the one that has the most: how much each has is chance.
log_damaged() {
  local name most='' at='' dirty said damage='in the log are damaged|log are damaged|of the log is damaged'
  kill -STOP "$STORE_PID"
  # What members said last may be of before, and in the store since: it has to grow.
  ask group show fast --json >"$SCRATCH/group-before"
  has_much() {
    read -r dirty at < <(ask group show fast --json | python3 -c 'import json, sys
dirty = lambda group: {one["address"]: one["dirty_bytes"] for one in json.load(group)["members"]}
before, now = dirty(open(sys.argv[1])), dirty(sys.stdin)
print(*max((now[at] - before[at], at) for at in now if at in before))' "$SCRATCH/group-before")
    [ "$dirty" -gt 8000000 ]
  }
  wait_for 60 "a member with much that the store has not" has_much
  for name in a b c; do [ "${PROXY_AT[$name]}" != "$at" ] || most=$name; done
  kill_proxy "$most"
  said=$(grep -cE "$damage" "$SCRATCH/proxy-$most.log" || true)
  python3 - "${PROXY_DIR[$most]:-$SCRATCH/proxy-$most}/log" <<'PYTHON'
import glob, os, random, sys
source = random.Random(5)
for name in glob.glob(sys.argv[1] + "/*.log"):
    with open(name, "r+b") as log:
        data = log.read()
        end = len(data.rstrip(b"\0"))
        for _ in range(20 if end > 8192 else 0):
            log.seek(source.randrange(4096, end))
            log.write(source.randbytes(3))
PYTHON
  start_proxy "$most"
  is_found() { [ "$(grep -cE "$damage" "$SCRATCH/proxy-$most.log")" -gt "$said" ]; }
  wait_for 60 "the damage to be found" is_found
  kill -CONT "$STORE_PID"
  wait_for 60 "it joins again" has_members 3
  goes_on log_damaged
}

# One disk is gone with all that was on it: what is on its machine next is another member.
disk_lost() {
  kill -STOP "$STORE_PID"
  sleep "$FOR"
  kill_proxy a
  wait_for 60 "the lost one is counted out" has_members 2
  rm -r "$SCRATCH/proxy-a"
  start_proxy a
  kill -CONT "$STORE_PID"
  wait_for 60 "a new member" has_members 3
  goes_on disk_lost
}

writer_killed() {
  kill -KILL "$(daemon_of "$SCRATCH/writer")"
  for number in 1 2; do ! wait "${WRITERS[$number]}" || fail "writer $number did not see that its mount is gone"; done
  umount -l "$SCRATCH/writer"
  for number in 1 2; do
    work check "$SCRATCH/reader" "$SCRATCH/writer_killed-$number" >/dev/null || fail "what writer $number synced is not there after its mount was killed"
  done
}

for harm in $HARMS; do
  since=$SECONDS
  begin "$harm"
  "$harm"
  [ "$harm" = writer_killed ] || finish "$harm"
  [ "$harm" = writer_killed ] && mount_shared writer
  wait_for 90 "nothing is dirty after $harm" is_clean
  echo "$harm ($((SECONDS - since)) s): $(cat "$SCRATCH/$harm"-?.checked 2>/dev/null | paste -sd ' ')"
done

# The store alone has everything.
umount_volume "$SCRATCH/writer"
umount_volume "$SCRATCH/reader"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
declare -A CHECKS
for log in "$SCRATCH"/*-[12]; do
  work check "$SCRATCH/alone" "$log" >/dev/null &
  CHECKS[${log##*/}]=$!
done
for log in "${!CHECKS[@]}"; do wait "${CHECKS[$log]}" || fail "without the group: what $log says is not there"; done
end_cluster alone
umount "$SCRATCH/disk-b"
kill "$STORE_PID"
