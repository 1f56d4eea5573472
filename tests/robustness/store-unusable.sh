#!/usr/bin/env bash
# An unreachable endpoint, a wrong credential, a missing bucket and a bucket that ignores If-None-Match.
. "$TESTS/prelude.sh"
trap '[ -z "${S3_SERVER_PID:-}" ] || stop_s3; [ -z "${careless:-}" ] || kill "$careless"' EXIT
start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" forebay-bucket
refused "" env AWS_ENDPOINT_URL=http://127.0.0.1:9 "$FOREBAY" create "$SCRATCH/volume" --store s3://forebay-bucket/v
says '127.0.0.1:9'
[ ! -e "$SCRATCH/volume" ] || fail "a volume was made without a store"
refused "$SCRATCH/s3/buckets" env AWS_SECRET_ACCESS_KEY=wrong "$FOREBAY" create "$SCRATCH/volume" --store s3://forebay-bucket/v
says 'credential|access|denied|signature|secret|permission'
[ ! -e "$SCRATCH/volume" ] || fail "a volume was made without access"
refused "$SCRATCH/s3/buckets" "$FOREBAY" create "$SCRATCH/volume" --store s3://no-such-bucket/v
says 'no-such-bucket'
/usr/bin/python3 "$TESTS/robustness/careless_s3.py" "$SCRATCH/careless.port" >"$SCRATCH/careless.log" 2>&1 &
careless=$!
wait_for 30 "the careless server" test -s "$SCRATCH/careless.port"
refused "" env AWS_ENDPOINT_URL="http://127.0.0.1:$(cat "$SCRATCH/careless.port")" "$FOREBAY" create "$SCRATCH/volume" --store s3://forebay-bucket/v
says 'If-None-Match|conditional'
[ ! -e "$SCRATCH/volume" ] || fail "a volume was made on a careless store"
