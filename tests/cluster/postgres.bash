# A PostgreSQL server of Debian's package, for cases of clusters. After prelude.sh; not a case itself.
#
# make_postgres ADDRESS PORT NETWORK, then start_postgres and stop_postgres MODE; PG_ON has the words before each program, such as those that enter a namespace.

PG_BIN=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
PG_ON=()
PG_PASSWORD=only-for-tests

as_postgres() {
  local words=()
  [ "$(id -u)" -ne 0 ] || words=(setpriv --reuid=postgres --regid=postgres --clear-groups)
  (cd / && "${PG_ON[@]}" "${words[@]}" env HOME=/tmp PGPASSWORD="$PG_PASSWORD" "$@")
}

# Its certificate and key are $SCRATCH/pg/server.pem and .key, put there by the case: the server is reached by TLS alone.
make_postgres() {
  PG_ADDRESS=$1 PG_PORT=$2
  mkdir -p "$SCRATCH/pg"
  echo "$PG_PASSWORD" >"$SCRATCH/pg/password"
  [ "$(id -u)" -ne 0 ] || chown -R postgres "$SCRATCH/pg"
  chmod 600 "$SCRATCH"/pg/*
  as_postgres "$PG_BIN/initdb" -D "$SCRATCH/pg/data" -U forebay --pwfile "$SCRATCH/pg/password" -E UTF8 --no-locale --no-sync \
    --auth-local=trust --auth-host=scram-sha-256 >"$SCRATCH/initdb.log" 2>&1 || { tail -n 20 "$SCRATCH/initdb.log" >&2; fail initdb; }
  as_postgres sh -c "echo 'hostssl all all $3 scram-sha-256' >>'$SCRATCH/pg/data/pg_hba.conf'"
}

# start_postgres: waits until it answers.
start_postgres() {
  as_postgres "$PG_BIN/pg_ctl" -D "$SCRATCH/pg/data" -w -t 120 -l "$SCRATCH/pg/log" -o "-c listen_addresses=$PG_ADDRESS -c port=$PG_PORT \
    -c unix_socket_directories=$SCRATCH/pg -c ssl=on -c ssl_cert_file=$SCRATCH/pg/server.pem -c ssl_key_file=$SCRATCH/pg/server.key \
    -c shared_buffers=32MB -c fsync=off" start >"$SCRATCH/pg_ctl.log" 2>&1 </dev/null || { cat "$SCRATCH/pg_ctl.log" >&2; tail -n 20 "$SCRATCH/pg/log" >&2; fail "PostgreSQL did not start"; }
}

# stop_postgres fast|immediate: in order, or as a crash.
stop_postgres() { as_postgres "$PG_BIN/pg_ctl" -D "$SCRATCH/pg/data" -m "$1" -w -t 60 stop >/dev/null; }

# psql_on DATABASE STATEMENT
psql_on() { as_postgres "$PG_BIN/psql" -h "$SCRATCH/pg" -p "$PG_PORT" -U forebay -d "$1" -XAtq -v ON_ERROR_STOP=1 -c "$2"; }

# make_database: a server on this machine's loopback and a database in it, with an authority of its own in $SCRATCH/pki.
make_database() {
  local pki=$SCRATCH/pki
  "$FOREBAY" pki init "$pki" >/dev/null
  "$FOREBAY" pki issue "$pki" db --server --ip 127.0.0.1 >/dev/null
  chmod 755 "$pki"
  mkdir "$SCRATCH/pg"
  cp "$pki/db.pem" "$SCRATCH/pg/server.pem"
  cp "$pki/db.key" "$SCRATCH/pg/server.key"
  make_postgres 127.0.0.1 "$(free_port)" 127.0.0.1/32
  start_postgres
  psql_on postgres "CREATE DATABASE forebay"
}
