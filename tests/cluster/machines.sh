#!/usr/bin/env bash
# Two metadata servers over PostgreSQL, a store that speaks S3, and three machines with a mount each, every one in a network namespace of its own, with
# certificates and tokens, and a relay that delays in front of each server. While all three work and check each other, parts are killed, stopped and cut
# off in turn; after each, everybody goes on.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/net.bash"
. "$TESTS/cluster/work.bash"
. "$TESTS/cluster/postgres.bash"
. "$TESTS/cluster/site.bash"

# ---- who works -----------------------------------------------------------------------------------------------------

# keeps NAME: a process of node1 that has written and not synced.
keeps() {
  setsid python3 "$WORK" keep "$SCRATCH/node1" "$STATE" "$1" "$1" </dev/null >"$SCRATCH/$1.out" 2>&1 &
  wait_for 30 "bytes that are kept back" test -e "$STATE/$1.keeps"
}

# fsync_said NAME: what was kept back is there, or fsync says that it is not.
fsync_said() {
  touch "$STATE/$1.sync"
  wait_for 60 "the sync of what was kept back" test -e "$STATE/$1.said"
  local said found
  said=$(cat "$STATE/$1.said")
  found=$(timeout 30 cat "$SCRATCH/node2/$1")
  case $said in
    synced) [ "$found" = "$1" ] || fail "fsync of $1 said that all is there, and another machine finds '$found'" ;;
    EIO) ;;
    *) fail "fsync of $1 failed in another way: $said" ;;
  esac
  say "  what it had kept back: $said"
}

end() {
  local status=$?
  [ "$status" -eq 0 ] || {
    show_work
    tail -n 12 "$SCRATCH"/meta?.log "$SCRATCH"/node?.log
  } >&2 || true
  end_site
}
trap end EXIT

# ---- what happens --------------------------------------------------------------------------------------------------

server_stopped() {
  settled
  kill -STOP "${META_PID[$OWNER]}"
  wait_for 90 "the other server to own the volume" owns "$OTHER" "$OTHER"
  goes_on "${NODES[@]}"
  # By hand also for a whole minute (tests/README.md).
  sleep "${STOPPED_SECONDS:-0}"
  kill -CONT "${META_PID[$OWNER]}"
  wait_for 90 "the server that was stopped" serves "$OWNER"
  goes_on "${NODES[@]}"
}

server_not_reached() {
  settled
  tell_far "$OWNER" hold
  sleep 4
  tell_far "$OWNER" heal
  goes_on "${NODES[@]}"
}

connections_cut() {
  local name
  settled
  for name in "$OWNER" "$OTHER" "$OWNER"; do
    tell_far "$name" cut
    sleep 1
    tell_far "$name" heal
    goes_on "${NODES[@]}"
  done
}

owner_without_database() {
  settled
  lose "$OWNER" db
  wait_for 90 "the other server to own the volume" owns "$OTHER" "$OTHER"
  goes_on "${NODES[@]}"
  deliver "$OWNER" db
  wait_for 60 "the server that was cut off" serves "$OWNER"
  goes_on "${NODES[@]}"
}

database_restarted() { # MODE
  stop_postgres "${1:-fast}"
  sleep 1
  start_postgres
  goes_on "${NODES[@]}"
}

node_cut_off() {
  may_fail node1
  keeps cut-off
  unplug node1
  # Longer than its session: the others are held up by what it has until then, and no longer.
  sleep 12
  goes_on node2 node3
  plug node1
  is_well node1
  fsync_said cut-off
  goes_on node2 node3
}

# Its mount is dead until it is unmounted; what it was working on is at the others.
node_killed() {
  local daemon
  daemon=$(daemon_of "$SCRATCH/node1")
  may_fail node1
  kill -KILL "$daemon"
  # Its session lasts on: the others are held up by what it has until then, and no longer.
  goes_on node2 node3
  # Below is an empty directory, in which nobody must look for what was recorded.
  kill -STOP "${WORKER[node1]}"
  umount -l "$SCRATCH/node1"
  mount_node node1
  kill -CONT "${WORKER[node1]}"
  is_well node1
  goes_on node2 node3
}

daemon_stopped() {
  local daemon reader
  daemon=$(daemon_of "$SCRATCH/node1")
  echo before >"$SCRATCH/node2/watched"
  [ "$(cat "$SCRATCH/node1/watched")" = before ]
  may_fail node1
  keeps stopped
  kill -STOP "$daemon"
  timeout 60 sh -c "echo after >'$SCRATCH/node2/watched'" || fail "a machine that is stopped holds up another"
  setsid cat "$SCRATCH/node1/watched" >"$SCRATCH/stale" 2>/dev/null </dev/null &
  reader=$!
  goes_on node2 node3
  ! grep -q before "$SCRATCH/stale" || fail "a kernel serves what is old"
  kill -CONT "$daemon"
  wait "$reader" || true
  ! grep -q before "$SCRATCH/stale" || fail "a machine that was stopped serves what is old"
  is_well node1
  fsync_said stopped
  [ "$(cat "$SCRATCH/node1/watched")" = after ]
}

node_without_store() {
  lose node1 s3
  sleep 5
  deliver node1 s3
  goes_on "${NODES[@]}"
}

store_stopped() {
  # Killed: in order it ends only once its connections have, and is away for longer than this.
  kill -KILL "$S3_SERVER_PID"
  sleep 4
  start_store
  goes_on "${NODES[@]}"
}

# ---- all of it -----------------------------------------------------------------------------------------------------

start_site
"$FOREBAY" volume create shared --store s3://bucket/shared --endpoint "$AWS_ENDPOINT_URL" --region "$AWS_REGION" --meta "unix:$SCRATCH/meta1.sock" >"$SCRATCH/volume.log" 2>&1 ||
  { cat "$SCRATCH/volume.log" >&2; fail "volume create"; }
"$FOREBAY" token create shared --meta "unix:$SCRATCH/meta1.sock" >"$SCRATCH/token"
for name in "${NODES[@]}"; do mount_node "$name"; done
set_up_work "${NODES[@]}"
say "all is there"
start_work "${NODES[@]}"
goes_on "${NODES[@]}"

for what in ${WHAT:-server_killed node_cut_off server_stopped daemon_stopped node_killed server_not_reached connections_cut owner_without_database node_without_store store_stopped \
  "database_restarted fast" "database_restarted immediate"}; do
  say "$what"
  $what
done
goes_on "${NODES[@]}"

say "all that was recorded"
end_work "${NODES[@]}"
end_in_order
say "done"
