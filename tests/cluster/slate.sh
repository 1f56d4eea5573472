#!/usr/bin/env bash
# A cluster with no database to run: two servers over SlateDB in a bucket, of which one stands by. It goes on when the other is killed, and when that one is
# back and this one is stopped in order, and when the one that has it stands still: that one finds itself shut out when it goes on, and ends. Two mounts work all the while and are told
# no error.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/work.bash"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
trap '[ $? -eq 0 ] || { show_work; show_logs; }' EXIT

# of_volume KEY: what servers say of the volume.
of_volume() { "$FOREBAY" meta status --json --meta "$(addresses)" | python3 -c 'import json, sys; print(json.load(sys.stdin)["volumes"][0][sys.argv[1]])' "$1"; }
epoch() { of_volume epoch; }
start_anew() { : >"$SCRATCH/meta-$1.log" && start_meta "$1" "$ENGINE"; }
has_ended() { ! kill -0 "${META_PID[$1]}" 2>/dev/null || [ "$(ps -o stat= -p "${META_PID[$1]}")" = Z ]; }
# was_shut_out NAME: it has ended with an error, and says why.
was_shut_out() {
  ! wait "${META_PID[$1]}" || fail "a server that was shut out ended as if it had been asked to: $1"
  grep -q "another metadata server has taken $ENGINE" "$SCRATCH/meta-$1.log" || fail "the server $1 does not say why it ended"
}
# Who listens has had the registry: what it says of standing by is of before.
stands_by() { grep -q "stands by" "$SCRATCH/meta-$1.log" && ! grep -q "^listening at" "$SCRATCH/meta-$1.log"; }
owns() { [ "$(of_volume owner 2>/dev/null)" = "127.0.0.1:${META_PORT[$1]}" ]; }
is_settled() { OWNER=$1 && stands_by "$2" && owns "$1" && ! has_ended "$1" && ! has_ended "$2"; }
# settle: one of both has the volume, and the other one stands by; sets OWNER. One that lives but has put nothing for seconds, as may be on a slow disk, may be shut out by the one that stands by: it
# ends by itself, and is started anew.
settle() {
  local name deadline=$((SECONDS + 120))
  until is_settled a b || is_settled b a; do
    [ "$SECONDS" -lt "$deadline" ] || fail "waited in vain for one server that has the volume and one that stands by"
    for name in a b; do
      if has_ended "$name"; then
        was_shut_out "$name"
        start_anew "$name"
      fi
    done
    sleep 0.1
  done
}

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
settle
kill_meta "$OWNER"
goes_on one two
start_anew "$OWNER"
# Whichever has the volume: it is asked to end, and the other goes on.
settle
kill -TERM "${META_PID[$OWNER]}"
wait "${META_PID[$OWNER]}" || fail "the server did not end in order"
goes_on one two
start_anew "$OWNER"
settle
kill -STOP "${META_PID[$OWNER]}"
goes_on one two
before=$(epoch)
kill -CONT "${META_PID[$OWNER]}"
wait_for 60 "the server that was shut out to end" has_ended "$OWNER"
was_shut_out "$OWNER"
goes_on one two
# It did not take the volume back before it ended.
[ "$(epoch)" = "$before" ] || fail "the volume changed its owner when a server went on that was shut out: epoch $before, then $(epoch)"
start_anew "$OWNER"
goes_on one two
end_work one two
settle
end_cluster one two
stop_s3
