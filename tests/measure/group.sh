#!/usr/bin/env bash
# How a group of three proxies scales, as ratios, by root: TESTS=$PWD/tests FOREBAY=$PWD/target/release/forebay SCRATCH=$(mktemp -d) bash tests/measure/group.sh [links] [wide] [small].
# The binary far-link is beside forebay, and SCRATCH is a directory that all may enter. Nothing is judged here. Links are capped (docs/benchmarks.md says how, and what came of it), so the ratios hold on a machine that has something else to do.
#
#   links   clients with links of a quarter of a proxy's: 1, 2 and 4 of them write, and read what is cached
#   wide    four clients whose links are wider than the proxies'; beside it what TCP alone carries to a proxy
#   small   4 KiB reads of what is cached, alone and while another client streams writes
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

links() {
  local round count
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
  local round name pids=() said=() at
  make_cached
  caps $((CLIENT_MBIT * 4)) $((CLIENT_MBIT * 2))
  echo "links of clients $((CLIENT_MBIT * 4)) Mbit/s, of proxies $((CLIENT_MBIT * 2)); MiB/s of all clients together"
  for name in "${MEMBERS[@]}"; do run_on "$name" python3 "$TESTS/measure/group.py" take 7500 & done
  sleep 1
  at=$(work now 2)
  for name in "${MEMBERS[@]}"; do
    on "node${name#proxy}" python3 "$TESTS/measure/group.py" send "$(address_of "$name")" 7500 "$EACH_MIB" "$at" >"$SCRATCH/tcp-$name" &
    pids+=($!) said+=("$SCRATCH/tcp-$name")
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "TCP alone"; done
  echo "TCP alone to three proxies: $(rate "${said[@]}")"
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

for name in "${MEMBERS[@]}"; do mkdir -p "$SCRATCH/disk-$name"; done
start_site
start_group
for what in "${@:-links}"; do "$what"; done
end_group
end_in_order
