#!/usr/bin/env bash
# One volume at two sites with a group of proxies each: a mount goes by the group that is near, or has a proxy on its machine, and both see what either writes. While a writer syncs,
# the near group is killed, then the other one, too, and both come back: no application is told an error, and what was synced is there for both sites. What is confined to one group is
# on no disk of the other, from whichever site it is written.
. "$TESTS/prelude.sh"
. "$TESTS/cluster/cluster.bash"
. "$TESTS/cluster/proxies.bash"
find_far_link
late_store 20
# Those of the far site are reached by relays, which take so long each way.
readonly FAR_MS=${FAR_MS:-4} NEAR=(a1 a2 a3) FAR=(b1 b2 b3)
declare -A METRICS
# Which machine each is on is said by where it looks for proxies.
on() { FOREBAY_PROXY_DIR=$SCRATCH/on-$1 "${@:2}"; }

start_near() { PROXY_GROUP=near on "$1" start_proxy "$1" --metrics "${METRICS[$1]}"; }
start_far() { PROXY_GROUP=far on "$1" start_proxy "$1" --metrics "${METRICS[$1]}" --advertise "${RELAY[$1]}"; }
declare -A RELAY
start_relay() {
  RELAY[$1]=127.0.0.1:$(free_port)
  PROXY_AT[$1]=127.0.0.1:$(free_port)
  mkfifo "$SCRATCH/relay-$1.in"
  # It has both ends open itself: it ends when nobody can tell it anything.
  bash -c 'exec -a "$0" "$@"' "$SCRATCH/relay-$1" "$FAR_LINK" "${RELAY[$1]}" "${PROXY_AT[$1]}" "$FAR_MS" <>"$SCRATCH/relay-$1.in" >"$SCRATCH/relay-$1.log" 2>&1 &
  wait_for 20 "the relay of $1" grep -q . "$SCRATCH/relay-$1.log"
}
has_members_of() { [ "$(ask group show "$1" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["members"]))')" = "$2" ]; }
# appended NAME...: bytes that writers gave to these proxies.
appended() {
  local name sum=0
  for name in "$@"; do sum=$((sum + $(curl -sf "http://${METRICS[$name]}/metrics" | awk '/^forebay_proxy_append_bytes_total/ { print $2 }'))); done
  echo "$sum"
}
# written_to MOUNT WHERE: bytes that the mount wrote to node, group or store.
written_to() { "$FOREBAY" status "$SCRATCH/$1" --json | python3 -c 'import json, sys
status = json.load(sys.stdin)
status = status[0] if isinstance(status, list) else status
print(status["written_bytes"][sys.argv[1]])' "$2"; }
# goes_by MOUNT GROUP: which of the groups; '-': none of them answers. is_measured MOUNT: it knows how far away each of them is.
goes_by() {
  "$FOREBAY" status "$SCRATCH/$1" --json | python3 -c 'import json, sys
status = json.load(sys.stdin)
status = status[0] if isinstance(status, list) else status
groups = status["groups"]
assert [group["name"] for group in groups] == ["near", "far"], groups
chosen = [group["name"] for group in groups if group["chosen"]] or ["-"]
sys.exit(chosen != [sys.argv[1]])' "$2"
}
is_measured() {
  "$FOREBAY" status "$SCRATCH/$1" --json | python3 -c 'import json, sys
status = json.load(sys.stdin)
status = status[0] if isinstance(status, list) else status
sys.exit(any(group["round_trip_us"] is None for group in status["groups"]))'
}

start_meta a
meta_serves
ask volume create "$VOLUME_NAME" --store s3://bucket/v --endpoint "http://$STORE_AT" --region eu-central-1 >/dev/null
for group in near far; do ask group create "$group" >/dev/null; done
for name in "${NEAR[@]}" "${FAR[@]}"; do METRICS[$name]=127.0.0.1:$(free_port); done
for name in "${FAR[@]}"; do start_relay "$name"; done
for name in "${NEAR[@]}"; do start_near "$name"; done
for name in "${FAR[@]}"; do start_far "$name"; done
wait_for 60 "three members" has_members_of near 3
wait_for 60 "three members" has_members_of far 3
ask volume set "$VOLUME_NAME" --group near,far --durability replica | grep -E '^group +near, far$' >/dev/null || fail "volume set does not show both groups"
# mount_at MOUNT: one goes by the near group, two by that with a proxy on its machine. Which one that is is certain once both are measured.
declare -A MACHINE_OF=([one]=nowhere [two]=b1) GROUP_OF=([one]=near [two]=far)
is_at() { goes_by "$1" "${GROUP_OF[$1]}" && is_measured "$1"; }
mount_at() {
  on "${MACHINE_OF[$1]}" mount_shared "$1"
  wait_for 60 "$1 to go by the group '${GROUP_OF[$1]}', with both of them measured" is_at "$1"
}
for name in one two; do mount_at "$name"; done
says_how_far() { "$FOREBAY" status "$SCRATCH/one" | grep -E '^group +near \([0-9.]+ ms away\); beside it far \([0-9.]+ ms away\)$'; }
wait_for 60 "the status to say how far away groups are" says_how_far

# Each writes at its own site, and reads what the other has written a moment ago, which the store does not have.
went_elsewhere() { grep -cE 'a member does not take what is written|written over the group .* now|of its groups none answers' "$(status_of "$SCRATCH/$1" log)" || true; }
# fill MOUNT FILE: writes a file, synced; sets TO_NEAR and TO_FAR to the bytes that proxies of either site were given for it. A member that answers a second after another one, as one
# may whose disk is busy, is left out for ten, and a group that does not answer in time is not gone by: the mount's log tells of each, and what was written meanwhile says nothing. A new mount,
# which knows nothing of that, writes it anew.
fill() {
  local before
  for _ in $(seq 20); do
    before=$(went_elsewhere "$1")
    TO_NEAR=$(appended "${NEAR[@]}")
    TO_FAR=$(appended "${FAR[@]}")
    head -c 3000000 /dev/urandom >"$SCRATCH/$1/$2"
    sync "$SCRATCH/$1/$2"
    TO_NEAR=$(($(appended "${NEAR[@]}") - TO_NEAR))
    TO_FAR=$(($(appended "${FAR[@]}") - TO_FAR))
    [ "$(went_elsewhere "$1")" != "$before" ] || return 0
    umount_volume "$SCRATCH/$1"
    mount_at "$1"
  done
  fail "each time that $2 was written a member was left out, or another group was gone by"
}
fill one of-one
[ "$TO_FAR" = 0 ] && [ "$TO_NEAR" -ge 6000000 ] || fail "what was written at one site is not at its proxies alone: $TO_NEAR bytes are, $TO_FAR are at the others"
fill two of-two
[ "$TO_NEAR" = 0 ] && [ "$TO_FAR" -ge 6000000 ] || fail "what was written at the other site is not at its proxies alone: $TO_FAR bytes are, $TO_NEAR are at the others"
cmp "$SCRATCH/one/of-two" "$SCRATCH/two/of-two" && cmp "$SCRATCH/one/of-one" "$SCRATCH/two/of-one" || fail "the sites see other bytes"

# What is confined to one group is written over it from the other site, too.
mkdir "$SCRATCH/two/ward"
ask policy set "$SCRATCH/two/ward" --confine-to near >/dev/null
fill two ward/secret
[ "$TO_FAR" = 0 ] || fail "the other group has what is confined to one"
[ "$TO_NEAR" -ge 6000000 ] || fail "the one group does not have what is confined to it"
cmp "$SCRATCH/one/ward/secret" "$SCRATCH/two/ward/secret" || fail "the sites see other bytes of what is confined"
ask policy show "$SCRATCH/two/ward" >"$SCRATCH/shown"
grep -E '^on disks of +near, not of far$' "$SCRATCH/shown" >/dev/null && grep -E '^durability +replica:2$' "$SCRATCH/shown" >/dev/null ||
  { cat "$SCRATCH/shown" >&2; fail "policy show does not say where it may be"; }

# The near group is killed while somebody syncs; then the other one, too.
LOG=log
begin_writing() { # DIRECTORY
  mkdir "$1"
  python3 "$TESTS/cluster/writeback.py" write "$1" "$SCRATCH/$LOG" >"$SCRATCH/$LOG.said" 2>&1 &
  writer=$!
}
end_writing() {
  touch "$SCRATCH/$LOG.stop"
  wait "$writer" || { cat "$SCRATCH/$LOG.said" >&2; fail "the writer was told an error"; }
}
synced() { wc -l <"$SCRATCH/$LOG" 2>/dev/null || echo 0; }
begin_writing "$SCRATCH/one/synced"
goes_on() {
  local now
  now=$(synced)
  more() { [ "$(synced)" -gt $((now + 5)) ]; }
  wait_for 60 "the writer to go on" more
  kill -0 "$writer" 2>/dev/null || { cat "$SCRATCH/$LOG.said" >&2; fail "the writer was told an error"; }
}
goes_on
for name in "${NEAR[@]}"; do kill_proxy "$name"; done
wait_for 60 "the far group" goes_by one far
goes_on
# The proxies of this machine's other mount go as well.
before=$(written_to one store)
for name in "${FAR[@]}"; do kill_proxy "$name"; done
wait_for 60 "the store" goes_by one -
goes_on
stores() { [ "$(written_to one store)" -gt "$before" ]; }
wait_for 60 "something to be put into the store while no group answers" stores
"$FOREBAY" status "$SCRATCH/one" | grep -E '^group +none of near \(does not answer\), far \(does not answer\)' >/dev/null || fail "the status does not say that none answers"
for name in "${FAR[@]}"; do start_far "$name"; done
wait_for 60 "the far group again" goes_by one far
goes_on
for name in "${NEAR[@]}"; do start_near "$name"; done
wait_for 60 "three members" has_members_of near 3
goes_on
end_writing
for name in one two; do python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/$name/synced" "$SCRATCH/log" || fail "what was synced is not there for $name"; done

# A group is not taken away under what its members alone may have.
refused "" "$FOREBAY" volume set "$VOLUME_NAME" --group near --meta "$(addresses)"
says "written over 'near' and 'far'" "--durability object"
refused "" "$FOREBAY" group delete far --meta "$(addresses)"
says "has members"
all_stored() {
  ask group show far --json | python3 -c 'import json, sys
segments = json.load(sys.stdin)["segments"]
sys.exit(segments["open"]["bytes"] + segments["sealed"]["bytes"] > 0 or bool(segments["not_known"]))'
}
# It goes from under somebody who syncs, once its members have put what they have.
LOG=leaving
begin_writing "$SCRATCH/two/leaving"
goes_on
refused "" "$FOREBAY" volume set "$VOLUME_NAME" --durability object --group near,nowhere --meta "$(addresses)"
says "no group 'nowhere'"
ask volume set "$VOLUME_NAME" --durability object --group near | grep -E '^group +near$' >/dev/null || fail "one group is left"
all_stored || fail "the group was taken away before its members had put what they have"
goes_on
end_writing
for name in one two; do umount_volume "$SCRATCH/$name"; done
for name in "${FAR[@]}"; do kill_proxy "$name"; done
on nowhere mount_shared three
python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/three/synced" "$SCRATCH/log" || fail "what was synced is not there once one group is left"
python3 "$TESTS/cluster/writeback.py" check "$SCRATCH/three/leaving" "$SCRATCH/leaving" || fail "what was synced while a group went is not there"
cat "$SCRATCH/three/of-two" "$SCRATCH/three/ward/secret" >/dev/null || fail "what the other site wrote is not there"
