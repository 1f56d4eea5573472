#!/usr/bin/env bash
# Tier 0: a proxy on the machine of a mount. What is cached there is read while all other members are stopped, the first copy of what is written is there, its
# end and return cost no error; and who only shares a host name with a proxy takes it for one elsewhere.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
late_store 20
# All of these are one machine; which one each takes itself for is said by where it looks for proxies.
on() { FOREBAY_PROXY_DIR=$SCRATCH/on-$1 "${@:2}"; }
node() { read_from "$1" node; }
others() { read_from "$1" group; }

start_meta a
meta_serves
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 >/dev/null
ask group create fast >/dev/null
declare -A METRICS
for name in a b c; do
  METRICS[$name]=127.0.0.1:$(free_port)
  on "$name" start_proxy "$name" --metrics "${METRICS[$name]}"
done
# appended NAME: bytes that writers gave to a proxy.
appended() { curl -sf "http://${METRICS[$1]}/metrics" | awk '/^forebay_proxy_append_bytes_total/ { print $2 }'; }
wait_for 60 "three members" has_members 3
ask volume set "$VOLUME_NAME" --group fast >/dev/null
on nowhere mount_shared writer
python3 - "$SCRATCH/writer" <<'PYTHON'
import random, sys
for number in range(12):
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(random.Random(number).randbytes(2_500_000 + number * 70_001))
PYTHON
sync "$SCRATCH/writer"/*
(cd "$SCRATCH/writer" && sha256sum -- *) >"$SCRATCH/sums"
has_right_bytes() { (cd "$SCRATCH/$1" && sha256sum --quiet -c "$SCRATCH/sums") || fail "$1 reads other bytes than were written"; }
total=$(du -sb --apparent-size "$SCRATCH/writer" | cut -f1)
umount_volume "$SCRATCH/writer"

# all_from_here MOUNT: a new mount reads all of it, and all comes from the proxy of its machine, which asks nobody either. A proxy that is late, as one may be on a busy machine, is
# not waited for: what it was asked for comes from elsewhere, and it may not have it then.
all_from_here() {
  local before pass said
  for pass in $(seq 20); do
    before=$(of_store reads)
    on a mount_shared "$1"
    has_right_bytes "$1"
    if [ "$(of_store reads)" = "$before" ] && [ "$(others "$1")" = 0 ]; then return; fi
    said="$(node "$1") of $total bytes came from the proxy of the machine and $(others "$1") from others, with $(($(of_store reads) - before)) requests to the store"
    umount_volume "$SCRATCH/$1"
  done
  fail "in $pass readings: $said"
}
# Read by way of the proxy of its machine until that has all of it; then the others are stopped.
all_from_here one
umount_volume "$SCRATCH/one"
kill -STOP "${PROXY_PID[b]}" "${PROXY_PID[c]}"
all_from_here two
"$FOREBAY" status "$SCRATCH/two" | grep "from this machine's proxy (100%)" >/dev/null || fail "the status does not say which share came from here"
kill -CONT "${PROXY_PID[b]}" "${PROXY_PID[c]}"
wait_for 60 "the others are in the group again" has_members 3

# Who has the host name of a proxy, but is on no machine with one. What a member that is late was asked for comes from the store: then a new mount reads all of it.
for pass in $(seq 20); do
  on nowhere mount_shared elsewhere
  has_right_bytes elsewhere
  [ "$(node elsewhere)" = 0 ] || fail "$(node elsewhere) bytes came from a proxy that is not on this machine"
  gave=$(others elsewhere)
  umount_volume "$SCRATCH/elsewhere"
  [ "$gave" -lt $((total * 9 / 10)) ] || break
done
[ "$gave" -ge $((total * 9 / 10)) ] || fail "in the last of $pass readings $gave of $total bytes came from the group"

# The first copy of what is written is here: it is read from here while the store does not have it.
ask volume set "$VOLUME_NAME" --durability replica:2 >/dev/null
mount_three() {
  on a mount_shared three --log "$SCRATCH/three.log"
  wait_for 60 "the mount to know the group" knows_group three
}
# A member that answers a second after another one, as one may whose disk is busy, is left out for ten: the mount's log tells of each, and a file that was written meanwhile says
# nothing. A new mount knows nothing of it.
left_out() { grep -c 'a member does not take what is written' "$SCRATCH/three.log" || true; }
mount_three
number=0 judged=0
while [ "$judged" -lt 6 ]; do
  number=$((number + 1))
  here=$(appended a) there=$(($(appended b) + $(appended c))) before=$(left_out)
  head -c 3000000 /dev/urandom >"$SCRATCH/three/new-$number"
  sync "$SCRATCH/three/new-$number"
  here=$(($(appended a) - here)) there=$(($(appended b) + $(appended c) - there))
  if [ "$(left_out)" = "$before" ]; then
    [ "$here" -ge 3000000 ] || fail "of 3000000 bytes the proxy of the machine has $here, the others $there"
    [ "$there" -ge 3000000 ] && [ "$there" -le $((here * 11 / 10)) ] || fail "the other copy has $there bytes, the one here $here"
    judged=$((judged + 1))
  else
    umount_volume "$SCRATCH/three"
    mount_three
  fi
done
for number in $(seq 60); do head -c 600000 /dev/urandom >"$SCRATCH/three/part-$number"; done
(cd "$SCRATCH/three" && sha256sum -- part-*) >"$SCRATCH/parts"
umount_volume "$SCRATCH/three"

# The proxy of the machine ends and comes back under a mount, which reads something that it has not read each time.
READ=0
reads_next() {
  READ=$((READ + 1))
  [ "$READ" -le 60 ] || fail "all is read, and nothing of it came from the proxy that is back"
  grep -- " part-$READ\$" "$SCRATCH/parts" >"$SCRATCH/part"
  (cd "$SCRATCH/two" && sha256sum --quiet -c "$SCRATCH/part") || fail "part $READ is read wrong"
}
kill_proxy a
before=$(node two)
for _ in 1 2 3 4 5; do reads_next; done
[ "$(node two)" = "$before" ] || fail "a proxy that is dead has given something"
on a start_proxy a
wait_for 60 "it is back" has_members 3
near_again() { sleep 1; reads_next; [ "$(node two)" -gt "$before" ]; }
wait_for 60 "it is asked again" near_again
umount_volume "$SCRATCH/two"
for name in a b c; do end_proxy "$name"; done
end_cluster
