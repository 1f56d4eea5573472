# A site: two metadata servers over PostgreSQL, each behind a relay that delays, a store that speaks S3, and machines with a mount each, all in namespaces of their
# own, with certificates and tokens. After prelude.sh, net.bash, work.bash and postgres.bash; not a case itself.

unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

[ -n "${NODES[*]:-}" ] || NODES=(node1 node2 node3)
readonly NODES SERVERS=(meta1 meta2) PKI=$SCRATCH/pki PORT=7300
# Other machines, with a certificate for both sides each.
MEMBERS=()
declare -A META_PID

certificates() {
  "$FOREBAY" pki init "$PKI" >/dev/null
  local name
  for name in "${SERVERS[@]}" db; do "$FOREBAY" pki issue "$PKI" "$name" --server --ip "$(address_of "$name")" >/dev/null; done
  for name in "${MEMBERS[@]}"; do "$FOREBAY" pki issue "$PKI" "$name" --ip "$(address_of "$name")" >/dev/null; done
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

# servers: the addresses of all, as --meta takes them.
servers() {
  local name list=
  for name in "${SERVERS[@]}"; do list=${list:+$list,}$(address_of "$name"):$PORT; done
  echo "$list"
}

mount_node() {
  mkdir -p "$SCRATCH/$1"
  # shellcheck disable=SC2046
  on "$1" "$FOREBAY" mount "forebay://$(servers)/shared" "$SCRATCH/$1" -o allow_other --token "$SCRATCH/token" --log "$SCRATCH/$1.log" $(tls_of "$1") \
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
# One look may take twenty seconds, as `meta status` asks the other servers, too: who waits for it gives it time for several.
owns() { [ "$(owner "$2")" = "$1" ]; }

# settled: one of them has the volume; sets OWNER and OTHER.
settled() {
  has_owner() { OWNER=$(owner meta1) && [ -n "$OWNER" ]; }
  wait_for 60 "an owner" has_owner
  OTHER=$(other "$OWNER")
}

# ---- who works -----------------------------------------------------------------------------------------------------

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }

# may_fail NODE, is_well NODE: around what ends its session.
may_fail() { touch "$STATE/$1.may-fail"; echo "break" >>"$STATE/$1.log"; }
is_well() { goes_on "$1"; echo "break" >>"$STATE/$1.log"; rm "$STATE/$1.may-fail"; goes_on "$1"; }

# start_site: all but the volume and its mounts.
start_site() {
  local name
  make_switch
  for name in "${SERVERS[@]}" db s3 "${NODES[@]}" "${MEMBERS[@]}"; do make_machine "$name"; done
  certificates
  start_database
  start_store
  for name in "${SERVERS[@]}"; do
    start_far "$name" "$(address_of "$name"):$PORT" "$(address_of "$name"):$((PORT + 1))" 0.5
    start_server "$name"
  done
  for name in "${SERVERS[@]}"; do wait_for 60 "the server $name" serves "$name"; done
}

# end_in_order: mounts, servers and database, each of which ends by itself.
end_in_order() {
  local name
  for name in "${NODES[@]}"; do umount_volume "$SCRATCH/$name"; done
  for name in "${SERVERS[@]}"; do kill -TERM "${META_PID[$name]}"; done
  for name in "${SERVERS[@]}"; do wait "${META_PID[$name]}" || fail "server $name did not end in order"; done
  stop_postgres fast
}

# end_site: whatever happened. What runs in the namespaces is ended by tools/test; they end with those that hold them.
end_site() {
  kill -CONT "${META_PID[@]}" 2>/dev/null || true
  [ -z "${S3_SERVER_PID:-}" ] || "$TESTS/../tools/s3-server" stop "$S3_SERVER_PID" || true
  kill "${FAR[@]}" "${MACHINE[@]}" 2>/dev/null || true
}

# ---- what happens in more than one case ----------------------------------------------------------------------------

server_killed() {
  settled
  kill -KILL "${META_PID[$OWNER]}"
  wait "${META_PID[$OWNER]}" 2>/dev/null || true
  wait_for 90 "the other server to own the volume" owns "$OTHER" "$OTHER"
  goes_on "${NODES[@]}"
  start_server "$OWNER"
  wait_for 90 "the server that was killed" serves "$OWNER"
  goes_on "${NODES[@]}"
}
