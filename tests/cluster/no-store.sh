#!/usr/bin/env bash
# A store that does not answer, that refuses all requests as too many, and that refuses most: what the group has cached is read all the while, each time by a new mount, and what is synced
# is taken in. Nobody is told an error. In the end the store alone has everything. With AWAY=1200, by hand, all of it takes an hour.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
AWAY=${AWAY:-12}

replica_group 5
mount_shared writer
wait_for 60 "the mount to know the group" knows_group writer

mkdir "$SCRATCH/writer/data" "$SCRATCH/writer/synced"
for number in {1..12}; do head -c $((number * 250000)) /dev/urandom >"$SCRATCH/writer/data/$number"; done
sync "$SCRATCH"/writer/data/*
(cd "$SCRATCH/writer" && sha256sum data/*) >"$SCRATCH/sums"
wait_for 120 "everything to be in the store" is_clean
"$FOREBAY" warm --into group "$SCRATCH/writer/data" >/dev/null
right() { (cd "$SCRATCH/reader" && sha256sum -c --quiet "$SCRATCH/sums") >"$SCRATCH/read.log" 2>&1 || { cat "$SCRATCH/read.log" >&2; fail "$1: what is cached is not read"; }; }
reads_without_store reader right "before"
[ "$(read_from reader group)$(read_from reader node)" != 00 ] || fail "it was read from no cache"
umount_volume "$SCRATCH/reader"

# Writes a small file and syncs it, twice a second, until it is to stop; each one that was synced is on the list.
write_on() {
  local number=0
  until [ -e "$SCRATCH/stop" ]; do
    number=$((number + 1))
    head -c $((2000 + number % 50 * 100)) /dev/urandom >"$SCRATCH/new"
    dd if="$SCRATCH/new" of="$SCRATCH/writer/synced/$number" bs=1M conv=fsync status=none || return 1
    (cd "$SCRATCH" && sha256sum new) | sed "s|new|synced/$number|" >>"$SCRATCH/synced"
    sleep 0.5
  done
}
: >"$SCRATCH/synced"
write_on &
writer=$!
synced() { wc -l <"$SCRATCH/synced"; }
has_synced() { [ "$(synced)" -ge "$1" ]; }

# read_all: by a new mount; says in ms how long it took.
read_all() {
  local began=${EPOCHREALTIME/./}
  mount_shared reader
  right "$1"
  umount_volume "$SCRATCH/reader"
  TOOK=$(((${EPOCHREALTIME/./} - began) / 1000))
}

# phase WHAT: reads for so long, three times at least, and has the writer go on.
phase() {
  local until=$((SECONDS + AWAY)) before times=() count=0
  before=$(synced)
  while [ "$count" -lt 3 ] || [ "$SECONDS" -lt "$until" ]; do
    read_all "$1"
    times+=("$TOOK") count=$((count + 1))
    [ "$AWAY" -lt 60 ] || sleep 5
  done
  wait_for 60 "$1: the writer to go on" has_synced $((before + 5))
  kill -0 "$writer" || fail "$1: the writer was told an error"
  printf '%s\n' "${times[@]}" | sort -n | awk -v what="$1" '{ t[NR] = $1 } END { printf "%s: %d readings, of %d ms in the median and %d at most\n", what, NR, t[int((NR + 1) / 2)], t[NR] }'
}

kill -STOP "$STORE_PID"
phase "a store that does not answer"
kill -CONT "$STORE_PID"
of_store "refuse 100" >/dev/null
phase "a store that refuses everything"
of_store "refuse 60" >/dev/null
phase "a store that refuses most"
of_store "refuse 0" >/dev/null

touch "$SCRATCH/stop"
wait "$writer" || fail "the writer was told an error"
wait_for 120 "everything to be in the store" is_clean
umount_volume "$SCRATCH/writer"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
(cd "$SCRATCH/alone" && sha256sum -c --quiet "$SCRATCH/sums" "$SCRATCH/synced") || fail "the store alone has other bytes than were written"
end_cluster alone
kill "$STORE_PID"
