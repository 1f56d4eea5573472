#!/usr/bin/env bash
# A PostgreSQL server whose cluster is on the volume: pgbench, an immediate stop, recovery, and all balances agree.
. "$TESTS/prelude.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
sockets=$(mktemp -d /tmp/fbpg.XXXXXX)   # A socket's address has 108 bytes.
data=$DIR/cluster
mkdir "$data"
if [ "$(id -u)" -eq 0 ]; then
  chown postgres "$data" "$sockets"
  as() { (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=/tmp "$@"); }
else
  as() { "$@"; }
fi
chmod 700 "$data"
trap 'as "$bin/pg_ctl" -D "$data" -m immediate -w -t 60 stop >/dev/null 2>&1 || true; rm -rf "$sockets"' EXIT
start() {
  as "$bin/pg_ctl" -D "$data" -w -t 120 -l "$sockets/log" -o "-c listen_addresses='' -k $sockets -c shared_buffers=32MB" start >/dev/null ||
    { cat "$sockets/log"; fail "the server did not start"; }
}
query() { as "$bin/psql" -h "$sockets" -d postgres -tA -v ON_ERROR_STOP=1 -c "$1"; }
as "$bin/initdb" -D "$data" -A trust --data-checksums -E UTF8 --locale=C >"$SCRATCH/initdb.log" 2>&1 || { tail -n 20 "$SCRATCH/initdb.log"; fail initdb; }
start
as "$bin/pgbench" -h "$sockets" -q -i -s 2 postgres >/dev/null 2>&1
for round in 1 2; do
  as "$bin/pgbench" -h "$sockets" -c 4 -j 2 -t 150 -n postgres >"$SCRATCH/pgbench.log" 2>&1 || { cat "$SCRATCH/pgbench.log"; fail pgbench; }
  as "$bin/pg_ctl" -D "$data" -m immediate -w -t 60 stop >/dev/null
  start
  [ "$(query 'select count(*) from pgbench_history')" = $((round * 600)) ] || fail "transactions are missing after recovery"
  [ "$(query 'select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)
    and (select sum(delta) from pgbench_history) = (select sum(bbalance) from pgbench_branches)')" = t ] || fail "balances disagree"
done
query 'vacuum full pgbench_accounts' >/dev/null
query 'checkpoint' >/dev/null
as "$bin/pg_ctl" -D "$data" -m fast -w -t 60 stop >/dev/null
as "$bin/pg_checksums" -D "$data" --check >"$SCRATCH/checksums.log" 2>&1 || { tail -n 5 "$SCRATCH/checksums.log"; fail "page checksums"; }
