#!/usr/bin/env bash
# Two metadata servers over PostgreSQL, a store that speaks S3, and three machines with a mount each, every one in a network namespace of its own, with
# certificates and tokens, and a relay that delays in front of each server. While all three work and check each other, parts are killed, stopped and cut
# off in turn; after each, everybody goes on.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/net.bash"
. "$TESTS/cluster/postgres.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

readonly NODES=(node1 node2 node3) SERVERS=(meta1 meta2) STATE=$SCRATCH/state PKI=$SCRATCH/pki PORT=7300
declare -A META_PID WORKER LAST_ROUNDS
WORK=$TESTS/cluster/machines.py

# ---- what there is -------------------------------------------------------------------------------------------------

certificates() {
  "$FOREBAY" pki init "$PKI" >/dev/null
  local name
  for name in "${SERVERS[@]}" db; do "$FOREBAY" pki issue "$PKI" "$name" --server --ip "$(address_of "$name")" >/dev/null; done
  for name in "${NODES[@]}"; do "$FOREBAY" pki issue "$PKI" "$name" --client >/dev/null; done
  # The store and the database are others' programs.
  chmod 755 "$PKI"
}

tls_of() { echo "--tls-ca $PKI/ca.pem --tls-cert $PKI/$1.pem --tls-key $PKI/$1.key"; }

start_database() {
  PG_ON=(nsenter "--net=/proc/${MACHINE[db]}/ns/net")
  mkdir -p "$SCRATCH/pg"
  cp "$PKI/db.pem" "$SCRATCH/pg/server.pem"
  cp "$PKI/db.key" "$SCRATCH/pg/server.key"
  make_postgres "$(address_of db)" 5432 "$NETWORK.0/24"
  start_postgres
  psql_on postgres "CREATE DATABASE forebay"
  ENGINE="postgres://forebay:$PG_PASSWORD@$(address_of db)/forebay?sslmode=verify-full&sslrootcert=$PKI/ca.pem"
}

start_store() {
  make_bucket "$SCRATCH/s3" bucket
  eval "$(S3_SERVER_HOST=$(address_of s3) on s3 "$TESTS/../tools/s3-server" start "$SCRATCH/s3" 7070)"
}

# The server is behind its relay on the same machine, which is what others are told of.
start_server() {
  local at
  at=$(address_of "$1")
  # shellcheck disable=SC2046
  run_on "$1" "$FOREBAY" meta --engine "$ENGINE" --listen "$at:$((PORT + 1))" --advertise "$at:$PORT" --listen "unix:$SCRATCH/$1.sock" \
    $(tls_of "$1") </dev/null >>"$SCRATCH/$1.log" 2>&1 &
  META_PID[$1]=$!
}

serves() { "$FOREBAY" volume list --meta "unix:$SCRATCH/$1.sock"; }

mount_node() {
  local addresses name
  for name in "${SERVERS[@]}"; do addresses=${addresses:+$addresses,}$(address_of "$name"):$PORT; done
  mkdir -p "$SCRATCH/$1"
  # shellcheck disable=SC2046
  on "$1" "$FOREBAY" mount "forebay://$addresses/shared" "$SCRATCH/$1" -o allow_other --token "$SCRATCH/token" --log "$SCRATCH/$1.log" $(tls_of "$1") \
    </dev/null >"$SCRATCH/mount.log" 2>&1 || { cat "$SCRATCH/mount.log" >&2; fail "the mount of $1"; }
}

# owner [SERVER]: which server has the volume, by what one of them says.
owner() {
  timeout 20 "$FOREBAY" meta status --json --meta "unix:$SCRATCH/${1:-meta1}.sock" | python3 -c '
import json, sys
owner = json.load(sys.stdin)["volumes"][0]["owner"] or ""
print({"'"$(address_of meta1)"'": "meta1", "'"$(address_of meta2)"'": "meta2"}.get(owner.rpartition(":")[0], ""))'
}
other() { if [ "$1" = meta1 ]; then echo meta2; else echo meta1; fi; }
owns() { [ "$(owner "$2")" = "$1" ]; }

# settled: one of them has the volume; sets OWNER and OTHER.
settled() {
  has_owner() { OWNER=$(owner meta1) && [ -n "$OWNER" ]; }
  wait_for 60 "an owner" has_owner
  OTHER=$(other "$OWNER")
}

# ---- who works -----------------------------------------------------------------------------------------------------

start_work() {
  local node
  for node in "${NODES[@]}"; do
    setsid python3 "$WORK" work "$SCRATCH/$node" "$STATE" "$node" </dev/null >"$SCRATCH/work-$node.log" 2>&1 &
    WORKER[$node]=$!
  done
}

rounds() { local count; count=$(cat "$STATE/$1.$2.rounds" 2>/dev/null) || true; echo "${count:-0}"; }

# goes_on NODE...: each of its threads ends two more rounds; the first of them may have begun before.
goes_on() {
  local node title before deadline
  declare -A before
  for node in "$@"; do for title in names contents locks; do before[$node.$title]=$(rounds "$node" "$title"); done; done
  deadline=$((SECONDS + 60))
  for node in "$@"; do
    for title in names contents locks; do
      until [ "$(rounds "$node" "$title")" -ge $((before[$node.$title] + 2)) ]; do
        kill -0 "${WORKER[$node]}" 2>/dev/null || fail "$node was told an error, or saw what should not be"
        [ "$SECONDS" -lt "$deadline" ] || fail "$node does not go on ($title)"
        sleep 0.1
      done
    done
  done
}

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }

# may_fail NODE, is_well NODE: around what ends its session.
may_fail() { touch "$STATE/$1.may-fail"; echo "break" >>"$STATE/$1.log"; }
is_well() { goes_on "$1"; echo "break" >>"$STATE/$1.log"; rm "$STATE/$1.may-fail"; goes_on "$1"; }

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
    tail -n 5 "$SCRATCH"/work-*.log
    tail -n 12 "$SCRATCH"/meta?.log "$SCRATCH"/node?.log
  } >&2 || true
  # What runs in the namespaces is ended by tools/test; they end with those that hold them.
  kill -CONT "${META_PID[@]}" 2>/dev/null || true
  [ -z "${S3_SERVER_PID:-}" ] || "$TESTS/../tools/s3-server" stop "$S3_SERVER_PID" || true
  kill "${FAR[@]}" "${MACHINE[@]}" 2>/dev/null || true
}
trap end EXIT

# ---- what happens --------------------------------------------------------------------------------------------------

server_killed() {
  settled
  kill -KILL "${META_PID[$OWNER]}"
  wait "${META_PID[$OWNER]}" 2>/dev/null || true
  wait_for 30 "the other server to own the volume" owns "$OTHER" "$OTHER"
  goes_on "${NODES[@]}"
  start_server "$OWNER"
  wait_for 30 "the server that was killed" serves "$OWNER"
  goes_on "${NODES[@]}"
}

server_stopped() {
  settled
  kill -STOP "${META_PID[$OWNER]}"
  wait_for 30 "the other server to own the volume" owns "$OTHER" "$OTHER"
  goes_on "${NODES[@]}"
  kill -CONT "${META_PID[$OWNER]}"
  wait_for 30 "the server that was stopped" serves "$OWNER"
  goes_on "${NODES[@]}"
}

server_not_reached() {
  settled
  tell_far "$OWNER" hold
  sleep 4
  tell_far "$OWNER" heal
  goes_on "${NODES[@]}"
}

owner_without_database() {
  settled
  lose "$OWNER" db
  wait_for 30 "the other server to own the volume" owns "$OTHER" "$OTHER"
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
  "$TESTS/../tools/s3-server" stop "$S3_SERVER_PID"
  sleep 4
  start_store
  goes_on "${NODES[@]}"
}

# ---- all of it -----------------------------------------------------------------------------------------------------

make_switch
for name in "${SERVERS[@]}" db s3 "${NODES[@]}"; do make_machine "$name"; done
certificates
start_database
start_store
for name in "${SERVERS[@]}"; do
  start_far "$name" "$(address_of "$name"):$PORT" "$(address_of "$name"):$((PORT + 1))" 0.5
  start_server "$name"
done
for name in "${SERVERS[@]}"; do wait_for 60 "the server $name" serves "$name"; done
"$FOREBAY" volume create shared --store s3://bucket/shared --endpoint "$AWS_ENDPOINT_URL" --region "$AWS_REGION" --meta "unix:$SCRATCH/meta1.sock" >"$SCRATCH/volume.log" 2>&1 ||
  { cat "$SCRATCH/volume.log" >&2; fail "volume create"; }
"$FOREBAY" token create shared --meta "unix:$SCRATCH/meta1.sock" >"$SCRATCH/token"
mkdir "$STATE"
for name in "${NODES[@]}"; do
  mount_node "$name"
  : >"$STATE/$name.log"
done
python3 "$WORK" setup "$SCRATCH/node1" "$STATE"
say "all is there"
start_work
goes_on "${NODES[@]}"

for what in ${WHAT:-server_killed node_cut_off server_stopped daemon_stopped server_not_reached owner_without_database node_without_store store_stopped \
  "database_restarted fast" "database_restarted immediate"}; do
  say "$what"
  $what
done
goes_on "${NODES[@]}"

say "all that was recorded"
touch "$STATE/stop"
for name in "${NODES[@]}"; do wait "${WORKER[$name]}" || fail "$name was told an error, or saw what should not be"; done
for name in "${NODES[@]}"; do timeout 120 python3 "$WORK" verify "$SCRATCH/$name" "$STATE" || fail "$name does not see what was recorded"; done
for name in "${NODES[@]}"; do umount_volume "$SCRATCH/$name"; done
for name in "${SERVERS[@]}"; do kill -TERM "${META_PID[$name]}"; done
for name in "${SERVERS[@]}"; do wait "${META_PID[$name]}" || fail "server $name did not end in order"; done
stop_postgres fast
say "done"
