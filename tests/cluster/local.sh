#!/usr/bin/env bash
# Class local with real processes: a sync returns once the proxy of the mount's own machine alone has the data, with the store away; others read it from there. That machine
# goes down, mount and proxy at once, and what was synced is there when it is up again, and in the store after that. Where no proxy is on the machine, and where it is
# drained, a sync waits for the store: no proxy elsewhere is ever given the only copy.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
late_store 5
# All of these are one machine; which one each takes itself for is said by where it looks for proxies.
on() { FOREBAY_PROXY_DIR=$SCRATCH/on-$1 "${@:2}"; }
declare -A METRICS
# proxy NAME: the proxy of a machine, started again at the same addresses.
proxy() {
  METRICS[$1]=${METRICS[$1]:-127.0.0.1:$(free_port)}
  on "$1" start_proxy "$1" --metrics "${METRICS[$1]}"
}
# counts NAME METRIC: what a proxy has counted since it was started.
counts() { curl -sf "http://${METRICS[$1]}/metrics" | awk -v name="forebay_proxy_$2" 'index($1, name "{") == 1 { print $2 }'; }
# write MOUNT NAME BYTES: a new file, synced.
write() { head -c "$3" /dev/urandom >"$SCRATCH/given/$2" && dd if="$SCRATCH/given/$2" of="$SCRATCH/$1/$2" bs=1M conv=fsync status=none; }
# is_whole MOUNT NAME...: files that are what was written.
is_whole() { local name; for name in "${@:2}"; do cmp "$SCRATCH/given/$name" "$SCRATCH/$1/$name" || fail "$1 reads other bytes of $name than were written"; done; }
mkdir "$SCRATCH/given"

start_meta a
meta_serves
ask group create fast >/dev/null
for name in a b; do proxy "$name"; done
wait_for 60 "two members" has_members 2
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 --group fast --durability local >/dev/null
ask volume show "$VOLUME_NAME" | grep -qE '^durability +local$' || fail "the volume does not say its class"
on a mount_shared one
on nowhere mount_shared other
for name in one other; do wait_for 60 "$name to know the group" knows_group "$name"; done
[ "$("$FOREBAY" policy show "$SCRATCH/one" --json --meta "$(addresses)" | python3 -c 'import json, sys; print(json.load(sys.stdin)["durability"])')" = local ] ||
  fail "what counts for a directory is not the volume's class"

# Nothing waits for the store.
kill -STOP "$STORE_PID"
for number in $(seq 8); do write one "few-$number" 60000; done
write one many 9000000
[ "$(counts a append_bytes_total)" -ge 9000000 ] || fail "the proxy of the machine has only $(counts a append_bytes_total) bytes"
[ "$(counts b append_bytes_total)" = 0 ] || fail "a proxy elsewhere was given $(counts b append_bytes_total) bytes"
is_whole other many few-{1..8}
"$FOREBAY" status "$SCRATCH/one" | grep -E "^written .* to this machine's proxy \(100%\), 0 B to others" >/dev/null || fail "the status does not say where it was written to: $("$FOREBAY" status "$SCRATCH/one")"

# Without a proxy of its own a machine waits for the store.
head -c 60000 /dev/urandom >"$SCRATCH/given/elsewhere"
# A sync gives up after a while without a store, and is repeated: this process goes on for as long as none has returned.
until dd if="$SCRATCH/given/elsewhere" of="$SCRATCH/other/elsewhere" conv=fsync status=none 2>>"$SCRATCH/elsewhere.said"; do
  kill -0 $$ 2>/dev/null || exit 1
  sleep 0.1
done &
elsewhere=$!
synced_elsewhere() { ! kill -0 "$elsewhere"; }
for number in $(seq 9 16); do write one "few-$number" 60000; done
kill -0 "$elsewhere" 2>/dev/null || fail "a sync has returned where nobody has the data"

# The machine goes down, and what was synced is read once it is up again, also by who asks before.
kill -KILL "$(daemon_of "$SCRATCH/one")"
kill_proxy a
umount -l "$SCRATCH/one"
wait_for 60 "it is counted out" has_members 1
on nowhere mount_shared waiting
cmp "$SCRATCH/given/few-16" "$SCRATCH/waiting/few-16" >"$SCRATCH/waiting.said" 2>&1 &
reads=$!
proxy a
wait_for 60 "it is back" has_members 2
wait "$reads" || fail "who waits for what is on a machine that is down: $(cat "$SCRATCH/waiting.said")"
on a mount_shared one
is_whole one many few-{1..16}
# Its proxy takes in what is written, too, once it acts.
takes() { write one again 60000 && [ "$(counts a append_bytes_total)" -gt 0 ]; }
kill -0 "$elsewhere" 2>/dev/null || fail "a sync has returned where nobody has the data"
kill -CONT "$STORE_PID"
wait_for 60 "the sync of a machine without a proxy" synced_elsewhere
wait "$elsewhere" || fail "the sync of a machine without a proxy fails"
wait_for 60 "its proxy takes in what is written" takes
wait_for 60 "all of it is in the store" is_clean
# What was written here stays here: it is read with neither the network nor the store. A proxy that is late, as one may be on a busy machine, is not waited for, neither by who writes
# nor by who reads: then it is another file, which nobody has read yet.
for pass in $(seq 20); do
  write one "stays-$pass" 60000
  wait_for 60 "it is in the store" is_clean
  umount_volume "$SCRATCH/one"
  before=$(of_store reads)
  on a mount_shared one
  wait_for 60 "one to know the group" knows_group one
  is_whole one "stays-$pass"
  asked=$(($(of_store reads) - before)) others=$(read_from one group)
  [ "$asked" != 0 ] || [ "$others" != 0 ] || break
done
[ "$asked" = 0 ] && [ "$others" = 0 ] && [ "$(read_from one node)" -ge 60000 ] ||
  fail "of what was written here $(read_from one node) bytes came from here, $others from others, with $asked requests to the store, in the last of $pass readings"
[ "$(counts a local_read_bytes_total)" -ge 60000 ] && [ "$(counts a local_append_bytes_total)" -ge 60000 ] || fail "the proxy does not say what its own machine has had of it"

# It is drained: syncs go on, and wait for the store.
ask group drain fast "${PROXY_AT[a]}" >/dev/null
goes() { ask group remove fast "${PROXY_AT[a]}"; }
wait_for 60 "the drained one goes" goes
! wait "${PROXY_PID[a]}" || fail "a removed proxy ended as if nothing were"
write one drained 60000
[ "$(counts b append_bytes_total)" = 0 ] || fail "a proxy elsewhere was given $(counts b append_bytes_total) bytes"

# The store alone has everything.
for name in one other waiting; do umount_volume "$SCRATCH/$name"; done
end_proxy b
mount_shared alone
is_whole alone many few-{1..16} elsewhere again "stays-$pass" drained
end_cluster alone
kill "$STORE_PID"
