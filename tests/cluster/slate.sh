#!/usr/bin/env bash
# A cluster with no database to run: two servers over SlateDB in a bucket, of which one stands by. It goes on when the other is killed, and when that one is
# back and this one is stopped in order, and when the one that has it stands still: that one finds itself shut out when it goes on, and ends. Two mounts work all the while and are told
# no error.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/work.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
trap '[ $? -eq 0 ] || { show_work; show_logs; }' EXIT

epoch() { "$FOREBAY" meta status --json --meta "$(addresses)" | python3 -c 'import json, sys; print(json.load(sys.stdin)["volumes"][0]["epoch"])'; }

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
: >"$SCRATCH/meta-b.log"
start_meta b "$ENGINE"
wait_for 60 "the second server to stand by" grep -q "stands by" "$SCRATCH/meta-b.log"
kill -STOP "${META_PID[a]}"
goes_on one two
before=$(epoch)
kill -CONT "${META_PID[a]}"
has_ended() { ! kill -0 "${META_PID[a]}" 2>/dev/null || [ "$(ps -o stat= -p "${META_PID[a]}")" = Z ]; }
wait_for 60 "the server that was shut out to end" has_ended
! wait "${META_PID[a]}" || fail "a server that was shut out ended as if it had been asked to"
grep -q "another metadata server has taken slate:s3://bucket/meta" "$SCRATCH/meta-a.log" || fail "it does not say why it ended"
goes_on one two
# It did not take the volume back before it ended.
[ "$(epoch)" = "$before" ] || fail "the volume changed its owner when a server went on that was shut out: epoch $before, then $(epoch)"
start_meta a "$ENGINE"
goes_on one two
end_work one two
end_cluster one two
stop_s3
