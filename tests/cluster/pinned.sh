#!/usr/bin/env bash
# Pinned directories with real processes: three proxies with small caches before a store that counts what it is asked. What is pinned comes into the group without anybody reading it, also what is
# written later; it is read without the store, after much else was read, and after a proxy was started anew; what does not fit is said; what is taken back is let go. What is refused says what to
# do.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"

PROXY_CACHE=64MiB
late_store 2
start_meta a
meta_serves
ask group create fast >/dev/null
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 >/dev/null
mount_shared one

policy() { ask policy "$@"; }
# says WORDS COMMAND...: it fails in one line with these words.
says() {
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then fail "it was not refused: $*"; fi
  grep -q -- "$words" <<<"$said" || fail "refused without '$words': $said"
  [ "$(wc -l <<<"$said")" = 1 ] || fail "it takes more than a line: $said"
}
# kept PATH KEY: what members say of its policy.
kept() { policy show "$1" --json | python3 -c 'import json, sys; k = json.load(sys.stdin)["kept"] or {}; print(k.get(sys.argv[1], 0))' "$2"; }
# all_kept PATH BYTES: all members have gone through it, and it is all there, so much at least.
all_kept() {
  policy show "$1" --json | python3 -c 'import json, sys
k = json.load(sys.stdin)["kept"]
sys.exit(not (k and k["whole"] and k["members_heard"] == k["members"] == 3 and k["kept_bytes"] == k["wanted_bytes"] >= int(sys.argv[1])))' "$2"
}
right() { (cd "$SCRATCH/$1" && sha256sum -c --quiet "$SCRATCH/sums") || fail "$1 reads other bytes than were written"; }

mkdir "$SCRATCH/one/data" "$SCRATCH/one/much" "$SCRATCH/one/aside"
says "read through no group" policy set "$SCRATCH/one/data" --pin
ask volume set "$VOLUME_NAME" --group fast >/dev/null
policy set "$SCRATCH/one/data" --pin | grep -q "pinned in the caches of the group 'fast'" || fail "set does not say it"
policy show "$SCRATCH/one/data" >"$SCRATCH/show.log"
grep -q "no active member" "$SCRATCH/show.log" || fail "$(cat "$SCRATCH/show.log")"

declare -A METRICS
pinned_at() { { curl -sf "http://${METRICS[$1]}/metrics" || true; } | awk '/^forebay_proxy_pinned_bytes[{ ]/ { bytes = $NF } END { printf "%d", bytes }'; }
start_told() { METRICS[$1]=${METRICS[$1]:-127.0.0.1:$(free_port)} && start_proxy "$1" --metrics "${METRICS[$1]}"; }
for name in a b c; do start_told "$name"; done
wait_for 60 "three members" has_members 3

# Files of each size, written while it is pinned, and by somebody who caches nothing in the group.
for number in {1..40}; do head -c $((number * 1000)) /dev/urandom >"$SCRATCH/one/data/small-$number"; done
for number in {1..4}; do head -c 5000000 /dev/urandom >"$SCRATCH/one/data/large-$number"; done
for number in {1..16}; do head -c 10000000 /dev/urandom >"$SCRATCH/one/much/$number"; done
sync -f "$SCRATCH/one"
(cd "$SCRATCH/one" && sha256sum data/*) >"$SCRATCH/sums"
# Any change of a policy has members look again; without one they do within a minute.
policy set "$SCRATCH/one/data" --durability object | grep -q "fsync waits for object" || fail "both are said"
wait_for_passes one "all that is pinned is there" all_kept "$SCRATCH/one/data" 20000000
grep -q "^policy .*object and pin, said by itself" <<<"$(policy show "$SCRATCH/one/data")" || fail "show: $(policy show "$SCRATCH/one/data")"
grep -q "^policies .* for the volume '$VOLUME_NAME'" <<<"$(ask group show fast)" || fail "group show: $(ask group show fast)"

# Others read much more than the caches have; then a mount that has nothing reads what is pinned, and nobody asks the store. A member that is late, as one may be on a busy machine, is not
# waited for: then all of it once more. What was fetched for that leaves the caches again for what others read; what is pinned does not. So it is after a member was started anew.
umount_volume "$SCRATCH/one"
pinned_are_read() {
  local before asked pass
  for pass in $(seq 10); do
    mount_shared other
    wait_for 60 "the mount to know the group" knows_group other
    cat "$SCRATCH"/other/much/* "$SCRATCH"/other/much/* >/dev/null
    umount_volume "$SCRATCH/other"
    before=$(of_store reads)
    mount_shared two
    wait_for 60 "the mount to know the group" knows_group two
    right two
    asked=$(($(of_store reads) - before))
    [ "$asked" -gt 0 ] || return 0
    umount_volume "$SCRATCH/two"
  done
  fail "the store was asked for what is pinned in each of $pass readings, in the last one $asked times"
}
pinned_are_read
# Which of them has how much is chance: their ids are, and the pieces are few. It is the one with the most.
pinned=0 anew=a
for name in a b c; do [ "$(pinned_at "$name")" -le "$pinned" ] || { pinned=$(pinned_at "$name") anew=$name; }; done
[ "$pinned" -gt 1000000 ] || fail "no member has pinned more than $pinned bytes"
end_proxy "$anew"
start_told "$anew"
wait_for 60 "three members again" has_members 3
# Asked of the member itself: the owner goes by what its former process said, for up to a second.
pinned_again() { [ "$(pinned_at "$anew")" -ge "$pinned" ]; }
wait_for_passes two "it is pinned again" pinned_again
wait_for_passes two "all members say so" all_kept "$SCRATCH/two/data" 20000000
umount_volume "$SCRATCH/two"
pinned_are_read

# What does not fit among the pins is said, and what is pinned already stays.
policy set "$SCRATCH/two/much" --pin >/dev/null
no_room() { [ "$(kept "$SCRATCH/two/much" no_room_bytes)" -gt 10000000 ]; }
wait_for_passes two "much of it has no room" no_room
policy show "$SCRATCH/two/much" >"$SCRATCH/show.log"
grep -q "do not fit: half of each member's cache may be pinned" "$SCRATCH/show.log" || fail "$(cat "$SCRATCH/show.log")"
wait_for_passes two "no pin to have taken the place of another one" all_kept "$SCRATCH/two/data" 20000000

# What is taken back is let go, by what it was said for alone.
says "nothing was said for" policy unset "$SCRATCH/two/data/small-1" --pin
policy unset "$SCRATCH/two/data" --pin >/dev/null
says "says nothing of --pin" policy unset "$SCRATCH/two/data" --pin
grep -q "^policy .*object, said by itself" <<<"$(policy show "$SCRATCH/two/data")" || fail "its class went with the pin"
[ "$(kept "$SCRATCH/two/data" wanted_bytes)" = 0 ] || fail "it is wanted still"
policy unset "$SCRATCH/two/much" >/dev/null
nothing_kept() { ! ask group show fast | grep -q "^policies"; }
wait_for 60 "nothing is pinned" nothing_kept
if "$FOREBAY" policy set "$SCRATCH/two/data" >"$SCRATCH/refused.log" 2>&1; then fail "nothing was said, and taken"; fi
grep -q -- "--pin" "$SCRATCH/refused.log" || fail "$(cat "$SCRATCH/refused.log")"

umount_volume "$SCRATCH/two"
for name in a b c; do end_proxy "$name"; done
mount_shared alone
right alone
end_cluster alone
kill "$STORE_PID"
