#!/usr/bin/env bash
# A volume is moved to PostgreSQL, to an object store and back to a directory, while two mounts work on it and check each other: nobody is told an error, nothing
# is lost. Once the server is killed in the middle of it, and the command goes on with its successor.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/postgres.bash"
. "$TESTS/cluster/work.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
trap '[ $? -eq 0 ] || { show_work; show_logs; }' EXIT
PKI=$SCRATCH/pki

# migrate ENGINE [OPTION...], and moved_to ENGINE: all that it says is in $SCRATCH/moved and, of how it goes, in $SCRATCH/moving.
migrate() { timeout 180 "$FOREBAY" volume migrate "$VOLUME_NAME" --to "$1" --meta "$(addresses)" "${@:2}" </dev/null >"$SCRATCH/moved" 2>"$SCRATCH/moving"; }
moved_to() {
  migrate "$@" || { cat "$SCRATCH/moving" >&2; fail "the move to $1"; }
  goes_on one two
}
says_moved() { grep -qE "$1" "$SCRATCH/moved" || { cat "$SCRATCH/moved" >&2; fail "it does not say: $1"; }; }

make_database
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" bucket
PLACE="postgres://forebay:$PG_PASSWORD@127.0.0.1:$PG_PORT/forebay?sslmode=verify-full&sslrootcert=$PKI/ca.pem"
start_cluster
mount_shared one
mount_shared two
set_up_work one two
write_tree "$SCRATCH/one/tree" 400
sync "$SCRATCH/one/tree"
manifest "$SCRATCH/two/tree" >"$SCRATCH/tree"
start_work one two
goes_on one two

# Without a terminal: lines that count, and no control characters.
moved_to "$PLACE"
says_moved "is in postgres://"
! grep -q "$PG_PASSWORD" "$SCRATCH/moved" "$SCRATCH/moving" || fail "it shows the password"
grep -qE '^copying: [0-9]+ rows' "$SCRATCH/moving" || { cat "$SCRATCH/moving" >&2; fail "it does not say how far it is"; }
! grep -q $'\x1b\|\r' "$SCRATCH/moving" || fail "it draws where there is no terminal"
[ "$(psql_on forebay "SELECT count(*) > 0 FROM pg_tables WHERE schemaname = 'forebay'")" = t ] || fail "nothing is in PostgreSQL"

# On a terminal: a bar, which is gone at the end.
AT=$(addresses)
TERM=xterm script -qec "timeout 180 '$FOREBAY' volume migrate $VOLUME_NAME --to slate:s3://bucket/meta --meta $AT" "$SCRATCH/terminal" </dev/null >/dev/null ||
  { cat -v "$SCRATCH/terminal" >&2; fail "the move to the object store"; }
grep -q 'is in slate:s3://bucket/meta' "$SCRATCH/terminal" || { cat -v "$SCRATCH/terminal" >&2; fail "it does not say where the volume is"; }
grep -qE $'\x1b.*(copying|comparing): [0-9]+' "$SCRATCH/terminal" || { cat -v "$SCRATCH/terminal" >&2; fail "no bar is drawn on a terminal"; }
[ -n "$(ls "$SCRATCH/s3/buckets/bucket/meta")" ] || fail "nothing is in the bucket"
goes_on one two

# Back, and as JSON.
moved_to "dir:$SCRATCH/engine" --json
python3 -c 'import json, sys; of = json.load(sys.stdin); assert of["engine"].startswith("dir:") and of["rows"] > 400 and of["compared"] > 400 and of["pause_us"] > 0, of' \
  <"$SCRATCH/moved"

# The server dies while it moves the volume: its successor has it at one of both places, and moves it on.
rm -f "$SCRATCH/moving"
migrate "$PLACE" &
MOVES=$!
wait_for 60 "the move to begin" grep -q copying "$SCRATCH/moving"
kill_meta a
start_meta a
wait "$MOVES" || { cat "$SCRATCH/moving" >&2; fail "the move by a server that was killed"; }
says_moved "is in postgres://"
goes_on one two

# It can go nowhere else: one line, and it is where it was.
refused "" "$FOREBAY" volume migrate "$VOLUME_NAME" --to "postgres://forebay:$PG_PASSWORD@127.0.0.1:1/forebay" --meta "$(addresses)"
says "cannot be reached"
moved_to "$PLACE"

moved_to "dir:$SCRATCH/engine"
end_work one two
for name in one two; do manifest "$SCRATCH/$name/tree" | diff "$SCRATCH/tree" - >&2 || fail "the tree of $name is another"; done
end_cluster one two
# Nothing is needed of where it has been.
stop_postgres fast
stop_s3
start_meta a
meta_serves
mount_shared one
manifest "$SCRATCH/one/tree" | diff "$SCRATCH/tree" - >&2 || fail "the tree is another after all"
end_cluster one
