#!/usr/bin/env bash
# A cluster with no database to run: two servers over SlateDB in a bucket, of which one stands by. It goes on when the other is killed, and when that one is
# back and this one is stopped in order; two mounts work all the while and are told no error.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/work.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
trap '[ $? -eq 0 ] || { show_work; show_logs; }' EXIT

start_s3 "$SCRATCH/s3"
make_bucket "$SCRATCH/s3" bucket
ENGINE=slate:s3://bucket/meta
META_PORT[b]=$(free_port)
start_cluster "$ENGINE" s3://bucket/data
start_meta b "$ENGINE"
mount_shared one
mount_shared two
set_up_work one two
start_work one two
goes_on one two
kill_meta a
goes_on one two
start_meta a "$ENGINE"
# Whichever has the volume: it is asked to end, and the other goes on.
stands_by() { grep -q "stands by" "$SCRATCH/meta-a.log"; }
wait_for 60 "the first server to stand by" stands_by
kill -TERM "${META_PID[b]}"
wait "${META_PID[b]}" || fail "the server did not end in order"
goes_on one two
start_meta b "$ENGINE"
goes_on one two
end_work one two
end_cluster one two
stop_s3
