#!/usr/bin/env bash
# How a group of three proxies scales, as ratios, by root: TESTS=$PWD/tests FOREBAY=$PWD/target/release/forebay SCRATCH=$(mktemp -d) bash tests/measure/group.sh [links] [wide] [small] [near] [converged].
# The binary far-link is beside forebay, and SCRATCH is a directory that all may enter. Nothing is judged here. Links are capped (docs/benchmarks.md says how, and what came of it), so the ratios hold on a machine that has something else to do.
#
#   links   clients with links of a quarter of a proxy's: 1, 2 and 4 of them write, and read what is cached
#   wide    four clients whose links are wider than the proxies'; beside it what TCP alone carries to a proxy
#   small   4 KiB reads of what is cached, alone and while another client streams writes
#   near    reads of what the proxy of the machine has, beside reads of what remote ones have, over a link of a tenth of the disk's speed
#   converged   three mounts on machines of their own, and on the proxies', with links alike: what they write and read
NODES=(node1 node2 node3 node4)
. "$TESTS/prelude.sh"
. "$TESTS/cluster/net.bash"
. "$TESTS/cluster/work.bash"
. "$TESTS/cluster/postgres.bash"
. "$TESTS/cluster/site.bash"
. "$TESTS/cluster/members.bash"

readonly CACHE_SIZE=2GiB CLIENT_MBIT=${CLIENT_MBIT:-96} ROUNDS=${ROUNDS:-2} EACH_MIB=${EACH_MIB:-48}
# No cable is slower than this where it is not what is measured.
readonly OPEN_MBIT=4000
MEMBERS=(proxy1 proxy2 proxy3)
NUMBER=0

end() { [ $? -eq 0 ] || tail -n 12 "$SCRATCH"/meta?.log "$SCRATCH"/node?.log "$SCRATCH"/proxy?.log >&2 || true; kill "${PROXY_PID[@]}" "${META_PID[@]}" 2>/dev/null || true; end_site; }
trap end EXIT

caps() { # NODE_MBIT PROXY_MBIT
  local name
  for name in "${NODES[@]}"; do cap_link "$name" "$1"; done
  for name in "${MEMBERS[@]}"; do cap_link "$name" "$2"; done
}
work() { python3 "$TESTS/measure/group.py" "$@"; }

# rate FILE...: MiB a second of all of them together. With UNTIL, until then.
rate() { cat "$@" | python3 -c 'import os, sys
lines = [line.split() for line in sys.stdin]
until = float(os.environ.get("UNTIL") or max(float(line[1]) for line in lines))
print(f"{sum(int(line[2]) for line in lines) / (until - min(float(line[0]) for line in lines)) / 2**20:.2f}")'; }

# write_by COUNT [synced]: so many clients write a file each at once, all in one directory; sets ACKNOWLEDGED and DRAINED.
write_by() {
  local at name pids=() said=()
  NUMBER=$((NUMBER + 1))
  at=$(work now 2)
  for name in "${NODES[@]:0:$1}"; do
    work "${2:-write}" "$SCRATCH/$name/w$NUMBER-$name" "$EACH_MIB" "$at" >"$SCRATCH/said-$name" &
    pids+=($!) said+=("$SCRATCH/said-$name")
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "a write"; done
  ACKNOWLEDGED=$(rate "${said[@]}")
  # Members say each second what they have.
  sleep 2
  wait_for 120 "everything to be in the store" is_clean
  DRAINED=$(UNTIL=$(work now 0) rate "${said[@]}")
  rm "$SCRATCH"/node1/w"$NUMBER"-*
}

remount() {
  local name
  for name in "${NODES[@]}"; do umount_volume "$SCRATCH/$name"; done
  for name in "${NODES[@]}"; do mount_node "$name"; done
}

# read_by COUNT: so many clients read files that the group has, and no client; sets READ.
read_by() {
  local at name pids=() said=() pid number=0
  remount
  at=$(work now 2)
  for name in "${NODES[@]:0:$1}"; do
    number=$((number + 1))
    work read "$SCRATCH/$name/cached-$number" "$at" >"$SCRATCH/said-$name" &
    pids+=($!) said+=("$SCRATCH/said-$name")
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "a read"; done
  READ=$(rate "${said[@]}")
}

# make_cached: files that members have in their caches.
make_cached() {
  local number
  caps "$OPEN_MBIT" "$OPEN_MBIT"
  rm -f "$SCRATCH"/node1/cached-*
  for number in 1 2 3 4; do work write "$SCRATCH/node1/cached-$number" "${1:-$EACH_MIB}" 0 >/dev/null; done
  sleep 2
  wait_for 120 "everything to be in the store" is_clean
  remount
  for number in 1 2 3 4; do cat "$SCRATCH/node2/cached-$number" >/dev/null; done
}

from_store() { local name sum=0; for name in "${NODES[@]}"; do sum=$((sum + $(status_of "$SCRATCH/$name" read_bytes | tr "'" '"' | python3 -c 'import json, sys; print(json.load(sys.stdin)["store"])'))); done; echo "$sum"; }

# tcp_alone MIB [PUT_MIB]: what three clients send to a proxy each, without any protocol; sets RATE. With PUT_MIB each proxy sends that to the store's machine meanwhile.
tcp_alone() {
  local name number pid at pids=() said=()
  for number in 1 2 3; do
    run_on "proxy$number" python3 "$TESTS/measure/group.py" take 7500 &
    [ -z "${2:-}" ] || run_on s3 python3 "$TESTS/measure/group.py" take "750$number" &
  done
  sleep 1
  at=$(work now 2)
  for number in 1 2 3; do
    name=proxy$number
    on "node$number" python3 "$TESTS/measure/group.py" send "$(address_of "$name")" 7500 "$1" "$at" >"$SCRATCH/tcp-$name" &
    pids+=($!) said+=("$SCRATCH/tcp-$name")
    [ -n "${2:-}" ] || continue
    on "$name" python3 "$TESTS/measure/group.py" send "$(address_of s3)" "750$number" "$2" "$at" >/dev/null &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "TCP alone"; done
  RATE=$(rate "${said[@]}")
}

links() {
  local round count
  caps "$OPEN_MBIT" "$OPEN_MBIT"
  tcp_alone 1024
  echo "TCP alone to three proxies over open cables: $RATE MiB/s; all caps together: $((CLIENT_MBIT * 16 * 10 / 84)) MiB/s"
  make_cached
  caps "$CLIENT_MBIT" $((CLIENT_MBIT * 4))
  echo "links of clients $CLIENT_MBIT Mbit/s, of proxies $((CLIENT_MBIT * 4)); MiB/s of all clients together"
  for round in $(seq "$ROUNDS"); do
    for count in 1 2 4; do
      write_by "$count"
      echo "write by $count: acknowledged $ACKNOWLEDGED drained $DRAINED"
    done
    for count in 1 2 4; do
      read_by "$count"
      echo "read by $count: $READ (from the store: $(from_store) bytes)"
    done
  done
}

wide() {
  local round
  make_cached
  caps $((CLIENT_MBIT * 4)) $((CLIENT_MBIT * 2))
  echo "links of clients $((CLIENT_MBIT * 4)) Mbit/s, of proxies $((CLIENT_MBIT * 2)); MiB/s of all clients together"
  tcp_alone "$EACH_MIB"
  echo "TCP alone to three proxies: $RATE"
  tcp_alone "$EACH_MIB" "$EACH_MIB"
  echo "the same while each proxy sends as much to the store's machine: $RATE"
  for round in $(seq "$ROUNDS"); do
    write_by 4
    echo "write by 4: acknowledged $ACKNOWLEDGED drained $DRAINED"
    write_by 4 synced
    echo "write by 4, each MiB synced: acknowledged $ACKNOWLEDGED drained $DRAINED"
    read_by 4
    echo "read by 4: $READ (from the store: $(from_store) bytes)"
  done
}

small() {
  local round streaming
  make_cached 64
  caps $((CLIENT_MBIT * 4)) $((CLIENT_MBIT * 4))
  cap_link node2 "$CLIENT_MBIT"
  for round in $(seq "$ROUNDS"); do
    remount
    echo "4 KiB reads alone, p50 and p99, ms: $(work small "$SCRATCH/node1/cached-$round" 250 0 | cut -d' ' -f4-)"
    work write "$SCRATCH/node2/stream-$round" 64 0 >/dev/null &
    streaming=$!
    sleep 3
    echo "4 KiB reads beside a stream: $(work small "$SCRATCH/node1/cached-$((5 - round))" 250 0 | cut -d' ' -f4-)"
    kill -0 "$streaming" || fail "the stream has ended before the reads"
    wait "$streaming"
  done
}

# mount_beside PROXY, umount_beside PROXY: a mount on the machine of a proxy.
mount_beside() {
  mkdir -p "$SCRATCH/on-$1"
  # shellcheck disable=SC2046
  on "$1" "$FOREBAY" mount "forebay://$(servers)/shared" "$SCRATCH/on-$1" -o allow_other --token "$SCRATCH/token" --log "$SCRATCH/on-$1.log" $(tls_of "$1") </dev/null >"$SCRATCH/mount.log" 2>&1 ||
    { cat "$SCRATCH/mount.log" >&2; fail "the mount beside $1"; }
}
umount_beside() { umount_volume "$SCRATCH/on-$1"; }
# places MOUNT KEY: bytes from (read_bytes) or to (written_bytes) the proxy of the machine, others, the store.
places() { status_of "$SCRATCH/$1" "$2" | tr "'" '"' | python3 -c 'import json, sys; all = json.load(sys.stdin); print(all["node"], all["group"], all["store"])'; }

# disk_speed: MiB/s of what the disk of proxy1 reads past the page cache.
disk_speed() { dd if="$SCRATCH/disk-proxy1/plain" of=/dev/null bs=1M iflag=direct 2>&1 | awk '/copied/ { print int($1 / $(NF - 3) / 1048576) }'; }

near() {
  local disk round at mib=256
  make_cached "$mib"
  mount_beside proxy1
  cat "$SCRATCH"/on-proxy1/cached-[123] >/dev/null
  dd if=/dev/urandom of="$SCRATCH/disk-proxy1/plain" bs=1M count=512 conv=fsync status=none
  echo "the link of node1 carries a tenth of what the disk gives; MiB/s of a file of $mib MiB, by mounts that have read two others before"
  for round in $(seq "$ROUNDS"); do
    remount
    umount_beside proxy1
    mount_beside proxy1
    cat "$SCRATCH"/on-proxy1/cached-[23] "$SCRATCH"/node1/cached-[23] >/dev/null
    # Virtual disks give more and less from minute to minute.
    disk=$(disk_speed)
    cap_link node1 $((disk * 8389 / 10000))
    at=$(work now 1)
    work read "$SCRATCH/node1/cached-1" "$at" >"$SCRATCH/said-remote"
    at=$(work now 1)
    work read "$SCRATCH/on-proxy1/cached-1" "$at" >"$SCRATCH/said-near"
    cap_link node1 "$OPEN_MBIT"
    echo "disk $disk; remote $(rate "$SCRATCH/said-remote") (node, group, store: $(places node1 read_bytes)); of the machine $(rate "$SCRATCH/said-near") ($(places on-proxy1 read_bytes))"
  done
  rm "$SCRATCH/disk-proxy1/plain"
  umount_beside proxy1
}

# by_three WORD PREFIX...: three mounts do this at once, each with a file of its own; sets RATE. WORD: write or read.
by_three() {
  local word=$1 at number=0 name pid pids=() said=()
  shift
  at=$(work now 2)
  for name in "$@"; do
    number=$((number + 1))
    if [ "$word" = write ]; then work write "$SCRATCH/$name/three-$number" "$EACH_MIB" "$at"; else work read "$SCRATCH/$name/cached-$number" "$at"; fi >"$SCRATCH/said-$number" &
    pids+=($!) said+=("$SCRATCH/said-$number")
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "$word"; done
  RATE=$(rate "${said[@]}")
}

# share KEY MOUNT...: which share of what these read or wrote was of their own machine, in percent.
share() {
  local key=$1 name
  shift
  for name in "$@"; do places "$name" "$key"; done | awk '{ node += $1; all += $1 + $2 + $3 } END { print int(100 * node / all) }'
}

converged() {
  local round name
  make_cached
  caps "$CLIENT_MBIT" "$CLIENT_MBIT"
  echo "all links $CLIENT_MBIT Mbit/s; MiB/s of three mounts together, on machines of their own and on the proxies'"
  for round in $(seq "$ROUNDS"); do
    remount
    by_three read node1 node2 node3
    echo "dedicated: read $RATE"
    by_three write node1 node2 node3
    echo "dedicated: written $RATE"
    wait_for 120 "everything to be in the store" is_clean
    rm "$SCRATCH"/node1/three-*
    for name in "${MEMBERS[@]}"; do mount_beside "$name"; done
    by_three read on-proxy1 on-proxy2 on-proxy3
    echo "converged: read $RATE, of the own machine $(share read_bytes on-proxy1 on-proxy2 on-proxy3) %"
    by_three write on-proxy1 on-proxy2 on-proxy3
    echo "converged: written $RATE, to the own machine $(share written_bytes on-proxy1 on-proxy2 on-proxy3) %"
    wait_for 120 "everything to be in the store" is_clean
    rm "$SCRATCH"/node1/three-*
    for name in "${MEMBERS[@]}"; do umount_beside "$name"; done
  done
}

for name in "${MEMBERS[@]}"; do mkdir -p "$SCRATCH/disk-$name"; done
start_site
start_group
for what in "${@:-links}"; do "$what"; done
end_group
end_in_order
