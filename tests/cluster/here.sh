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

# Read once by way of the proxy of its machine, which then has all of it: the others are stopped for the second time.
on a mount_shared one
has_right_bytes one
[ "$(node one)" -ge $((total * 9 / 10)) ] || fail "$(node one) of $total bytes came from the proxy of the machine"
umount_volume "$SCRATCH/one"
before=$(of_store reads)
kill -STOP "${PROXY_PID[b]}" "${PROXY_PID[c]}"
on a mount_shared two
has_right_bytes two
[ "$(of_store reads)" = "$before" ] && [ "$(others two)" = 0 ] || fail "of what is here $(others two) bytes came from others, with $(($(of_store reads) - before)) requests to the store"
"$FOREBAY" status "$SCRATCH/two" | grep "from this machine's proxy (100%)" >/dev/null || fail "the status does not say which share came from here"
kill -CONT "${PROXY_PID[b]}" "${PROXY_PID[c]}"
wait_for 60 "the others are in the group again" has_members 3

# Who has the host name of a proxy, but is on no machine with one.
on nowhere mount_shared elsewhere
has_right_bytes elsewhere
[ "$(node elsewhere)" = 0 ] || fail "$(node elsewhere) bytes came from a proxy that is not on this machine"
[ "$(others elsewhere)" -ge $((total * 9 / 10)) ] || fail "$(others elsewhere) of $total bytes came from the group"
umount_volume "$SCRATCH/elsewhere"

# The first copy of what is written is here: it is read from here while the store does not have it.
ask volume set "$VOLUME_NAME" --durability replica:2 >/dev/null
on a mount_shared three
for number in 1 2 3 4 5 6; do
  head -c 3000000 /dev/urandom >"$SCRATCH/three/new-$number"
  sync "$SCRATCH/three/new-$number"
done
here=$(appended a)
[ "$here" -ge 18000000 ] || fail "of 18000000 bytes the proxy of the machine has $here, the others $(appended b) and $(appended c)"
there=$(($(appended b) + $(appended c)))
[ "$there" -ge 18000000 ] && [ "$there" -le $((here * 11 / 10)) ] || fail "the other copy has $there bytes, the one here $here"
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
