#!/usr/bin/env bash
# For how long changes wait while a volume moves from engine to engine, by root: TESTS=$PWD/tests FOREBAY=$PWD/target/release/forebay SCRATCH=$(mktemp -d) bash tests/measure/migrate.sh.
# SCRATCH is a directory that all may enter. One server and two mounts on this machine, which work on the volume and check each other all the time (tests/cluster/machines.py). A round moves it
# from a directory to PostgreSQL, to an object store and back. Nothing is judged here, docs/benchmarks.md says what came of it.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/postgres.bash"
. "$TESTS/cluster/work.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
readonly ROUNDS=${ROUNDS:-5} FILES=${FILES:-20000}

make_database
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" bucket
start_cluster
mount_shared one
mount_shared two
set_up_work one two
write_tree "$SCRATCH/one/tree" "$FILES"
sync "$SCRATCH/one/tree"
start_work one two
for ((round = 1; round <= ROUNDS; round++)); do
  for engine in "postgres://forebay:$PG_PASSWORD@127.0.0.1:$PG_PORT/forebay?sslmode=verify-full&sslrootcert=$SCRATCH/pki/ca.pem" slate:s3://bucket/meta "dir:$SCRATCH/engine"; do
    goes_on one two
    "$FOREBAY" volume migrate "$VOLUME_NAME" --to "$engine" --meta "$(addresses)" --json 2>/dev/null |
      python3 -c 'import json, sys
of = json.load(sys.stdin)
print("to", sys.argv[1] + ":", of["rows"], "rows, changes waited for", round(of["pause_us"] / 1000, 1), "ms", flush=True)' "${engine%%:*}"
  done
done
end_work one two
end_cluster one two
stop_postgres fast
stop_s3
