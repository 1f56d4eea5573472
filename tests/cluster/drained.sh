#!/usr/bin/env bash
# `forebay group drain --wait` under load: it says how much is left, in lines where it is piped and as a bar on a terminal, and ends when the store has all that the member
# took in, not before: not while the store is away, nor because a server is. Who interrupts it or loses the member meanwhile is told so by its status, and gives it again.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

# Half of it may be what the store does not have: more than is written while that is away.
PROXY_CACHE=1GiB
replica_group 20
mount_shared writer

# of_member NAME QUESTION: what the group says of a member, `one`.
of_member() {
  ask group show fast --json | python3 -c "import json, sys
one = next(one for one in json.load(sys.stdin)['members'] if one['address'] == sys.argv[1])
print($2)" "${PROXY_AT[$1]}"
}
dirty_bytes() { of_member "$1" "one['dirty_bytes']"; }
has_dirtied() { [ "$(dirty_bytes "$1")" -gt $(($2 + 1000000)) ]; }
# stop_store_until_dirty NAME: the store is away, and the member has what that lacks. What a member said last may be of before, and in the store since: it has to grow.
stop_store_until_dirty() {
  local before
  kill -STOP "$STORE_PID"
  before=$(dirty_bytes "$1")
  wait_for 60 "something that the store has not" has_dirtied "$1" "$before"
}
drains() { [ "$(of_member "$1" "one['state']")" = draining ]; }
synced() { wc -l <"$SCRATCH/load"; }
has_synced_since() { [ "$(synced)" -gt "$1" ]; }
load_goes_on() { local now; now=$(synced); wait_for 60 "the writer to go on" has_synced_since $((now + 3)); }

# drain NAME SAID: in the background, with what it says in a file. As at a terminal an interrupt ends it.
drain() {
  env --default-signal=INT "$FOREBAY" group drain fast "${PROXY_AT[$1]}" --wait --meta "$(addresses)" </dev/null >"$SCRATCH/$2.out" 2>"$SCRATCH/$2.err" &
  DRAIN=$!
}
still_drains() { kill -0 "$DRAIN" 2>/dev/null || { cat "$SCRATCH/$1.out" "$SCRATCH/$1.err" >&2; fail "it ended $2"; }; }
# ends_with STATUS SAID
ends_with() {
  local status=0
  wait "$DRAIN" || status=$?
  [ "$status" = "$1" ] || { cat "$SCRATCH/$2.out" "$SCRATCH/$2.err" >&2; fail "it ended with $status, and not $1"; }
}
says_drained() { [ "$(of_member "$1" "one['state']")" = drained ]; }
goes() { ask group remove fast "${PROXY_AT[$1]}"; }
# is_drained NAME SAID: it said so, the group does, and it may go. Any change of the view makes it `draining` again until it has acknowledged that one, about a second later.
is_drained() {
  grep -q 'it is drained: `forebay group remove' "$SCRATCH/$2.out" || { cat "$SCRATCH/$2.out" >&2; fail "it does not say that it is drained"; }
  [ "$(of_member "$1" "one['dirty_segments'], one['dirty_bytes']")" = "0 0" ] || fail "the group says otherwise: $(of_member "$1" one)"
  wait_for 60 "the group to say that it is drained" says_drained "$1"
  wait_for 60 "a drained member to go" goes "$1"
  ! wait "${PROXY_PID[$1]}" || fail "a removed proxy ended as if nothing were"
}

python3 "$TESTS/cluster/writeback.py" write "$SCRATCH/writer" "$SCRATCH/load" >"$SCRATCH/load.said" 2>&1 &
load=$!
wait_for 60 "the writer to begin" test -s "$SCRATCH/load"

# The store is away: what is left is said, and nobody says that it is done. The writer goes on with the other two.
stop_store_until_dirty b
drain b piped
load_goes_on
wait_for 60 "a line of progress" grep -qE '^draining: [0-9.]+ [KM]iB to go$' "$SCRATCH/piped.err"
! grep -q $'[\r\e]' "$SCRATCH/piped.err" || fail "it draws on what is no terminal"
still_drains piped "while the store is away"
! ask group remove fast "${PROXY_AT[b]}" >"$SCRATCH/said" 2>&1 || fail "a member goes with what the store has not"
kill -INT "$DRAIN"
ends_with 130 piped
drains b || fail "an interrupt takes back the drain: $(of_member b one)"

# Again, on terminals, of which one draws nothing; a server dies meanwhile. It ends by itself once the store is back.
on_terminal() { # TERM SAID
  TERM=$1 script -qefc "'$FOREBAY' group drain fast '${PROXY_AT[b]}' --wait --meta '$(addresses)'" "$SCRATCH/$2.out" </dev/null >"$SCRATCH/$2.err" 2>&1 &
  DRAIN=$!
}
on_terminal dumb plain
wait_for 60 "a line of progress on a terminal that draws nothing" grep -qE '^draining: [0-9.]+ [KM]iB to go' "$SCRATCH/plain.out"
! grep -q $'\e' "$SCRATCH/plain.out" || fail "it draws on a terminal that draws nothing"
kill "$DRAIN"
wait "$DRAIN" || true
on_terminal xterm terminal
wait_for 60 "a bar" grep -qE 'draining .*[KM]iB' "$SCRATCH/terminal.out"
kill_meta a
start_meta a
meta_serves
still_drains terminal "while the store is away, and a server was"
kill -CONT "$STORE_PID"
ends_with 0 terminal
is_drained b terminal
load_goes_on
mv "$SCRATCH/proxy-b" "$SCRATCH/removed-b"
start_proxy b
wait_for 60 "a new member" has_members 3

# The member is killed meanwhile: an error that says what to do, which is to start it and to drain it again.
stop_store_until_dirty c
drain c killed
wait_for 60 "it drains" drains c
kill_proxy c
ends_with 1 killed
[ "$(grep -c . "$SCRATCH/killed.err")" = "$(grep -cE 'to go$|gone from the group' "$SCRATCH/killed.err")" ] || { cat "$SCRATCH/killed.err" >&2; fail "it says something else"; }
grep -q 'gone from the group .fast. before it was drained; it had .*[KM]iB that the store may not have. Start its proxy again' "$SCRATCH/killed.err" ||
  { cat "$SCRATCH/killed.err" >&2; fail "it does not say what to do"; }
start_proxy c
wait_for 60 "it is back" has_members 3
drain c again
kill -CONT "$STORE_PID"
ends_with 0 again
is_drained c again

# Nobody was told an error, nothing is lost, and the store alone has it.
load_goes_on
touch "$SCRATCH/load.stop"
wait "$load" || { tail -n 5 "$SCRATCH/load.said" >&2; fail "the writer was told an error"; }
wait_for 60 "what was written is in the store" is_clean
umount_volume "$SCRATCH/writer"
for name in a b; do end_proxy "$name"; done
mount_shared alone
python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/alone" "$SCRATCH/load" >/dev/null || fail "without the group: what was synced is not there"
end_cluster alone
kill "$STORE_PID"
